"""The objective over sites that keep their data: what a run without a pooled copy watches."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, wire
from fedns.core.problem import Evaluation
from fedns.models.problem import Problem


class EvaluationPoint(Message):
    """Coefficients to evaluate at; never rounded, they are the result."""

    coefficients: Payload = wire("features", dtype="float64")


class LocalEvaluation(Message):
    """A client's mean loss and its gradient, without the penalty."""

    fallback: ClassVar[str] = "others"
    loss: Payload = wire(dtype="float64", discloses="loss")
    gradient: Payload = wire("features", dtype="float64", discloses="gradient")


@on_client(EvaluationPoint, LocalEvaluation)
def evaluate_locally(problem: Problem, clients: Clients, request: EvaluationPoint) -> LocalEvaluation:
    """The loss and gradient that tell how far a run has come."""
    losses, gradients = problem.value_and_gradient(request.coefficients, clients.shards)
    return LocalEvaluation(loss=losses, gradient=gradients)


def evaluate(problem: Problem, cohort: Cohort, w: NDArray[np.float64]) -> Evaluation:
    """The objective and its gradient norm over this cohort."""
    replies = cohort.ask(evaluate_locally, EvaluationPoint(w))
    answers = [batch for _, batch in replies]
    losses = np.concatenate([batch.loss for batch in answers])
    gradients = np.concatenate([batch.gradient for batch in answers])
    return problem.combine(replies.weights, losses, gradients, w)
