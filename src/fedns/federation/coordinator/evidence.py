"""What is kept of the sites' answers until the end of a run, to tell what each of them did to the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedns.core.clients import Handler, messages_of
from fedns.core.messages import Discloses, Message
from fedns.core.types import FloatArray
from fedns.federation.coordinator.influence import (
    MOST_NUMBERS,
    FinalAnswers,
    SiteInfluence,
    curvature_in,
    influences,
    mean_curvature,
)
from fedns.models.evaluation import LocalEvaluation, evaluate_locally
from fedns.models.losses import Squared
from fedns.models.problem import Problem

SKETCHES_KEPT = 8  # of each site: one says little about a matrix, eight draws a good deal more; of whole Hessians the last

_CURVATURE = {Discloses.SKETCH, Discloses.HESSIAN}


@dataclass
class Evidence:
    """The first and the last evaluation, and the last few replies that show curvature, of every client."""

    first: tuple[FloatArray, dict[int, LocalEvaluation]] | None = None
    last: tuple[FloatArray, dict[int, LocalEvaluation]] | None = None
    curvature: dict[int, deque[Message]] = field(default_factory=dict)

    def heard(self, handler: Handler, replies: Mapping[int, Message], features: int) -> None:
        """Replies to a round's request; kept if they show curvature that there is room for."""
        shown = {spec.discloses for spec in messages_of(handler)[1].specs().values()} & _CURVATURE
        if not shown or len(replies) * features**2 > MOST_NUMBERS:
            return
        kept = SKETCHES_KEPT if Discloses.SKETCH in shown else 1
        for client, reply in replies.items():
            if curvature_in(reply, features) is not None:
                self.curvature.setdefault(client, deque(maxlen=kept)).append(reply)

    def evaluated(self, w: FloatArray, handler: Handler, replies: Mapping[int, Message]) -> None:
        """Replies to an evaluation at w."""
        if handler is evaluate_locally:
            answers = {client: reply for client, reply in replies.items() if isinstance(reply, LocalEvaluation)}
            self.last = w.copy(), answers
            self.first = self.first or self.last

    def influences(
        self, problem: Problem, w: FloatArray, names: Sequence[str], total_weights: FloatArray, *, agreed: bool
    ) -> list[SiteInfluence]:
        """Of those whose answers at w are known; of nobody, if w was never evaluated."""
        if self.first is None or self.last is None or not np.array_equal(self.last[0], w):
            return []
        (start, before), (_, after) = self.first, self.last
        clients = sorted(after)
        gradients = np.array([after[client].gradient for client in clients])
        growths = None
        if not np.array_equal(start, w) and all(client in before for client in clients):
            growths = (gradients - np.array([before[client].gradient for client in clients])) @ (w - start)
        answers = FinalAnswers(
            [names[client] for client in clients],
            total_weights[clients],
            np.array([float(after[client].loss) for client in clients]),
            gradients,
            self._curvatures(clients, w.size),
            growths,
        )
        squared = isinstance(problem.loss, Squared)
        return influences(answers, w, problem.penalty_curvature(w), squared=squared, agreed=agreed)

    def _curvatures(self, clients: Sequence[int], features: int) -> FloatArray | None:
        matrices = [mean_curvature(self.curvature.get(client, ()), features) for client in clients]
        present = [matrix for matrix in matrices if matrix is not None]
        return np.array(present) if len(present) == len(clients) else None
