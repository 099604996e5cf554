"""FedNL-BC: FedNL whose server, too, sends compressed changes, and whose clients send gradients only now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedns.core.algorithm import Algorithm, Needs, Outcome, StateOfAll
from fedns.core.checked import Fraction
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError
from fedns.core.messages import Message, Payload, as_received, joined_batches, wire
from fedns.core.messages.reducers import mean
from fedns.core.types import FloatArray
from fedns.methods.compressors import (
    Compressed,
    RankR,
    WholeTriangle,
    add_compressed,
    errors_of_learned,
    learning_needs,
    mean_compressed,
    parse_compressor,
)
from fedns.methods.fednl import InitialHessian, LearnRequest
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.backend import triangle_size
from fedns.numerics.linalg import symmetric_of
from fedns.numerics.rng import generator
from fedns.numerics.spectral import positive_part


class ModelStep(Message):
    """A compressed step of the model that the clients hold, or the whole of it where somebody has missed one."""

    values: Payload = wire("kept")
    indices: Payload = wire("kept", dtype="int32")
    model: Payload = wire("whole")
    wants_gradient: Payload = wire(dtype="uint8")
    features: Payload = wire(dtype="int32")
    number_bytes: Payload = wire(dtype="uint8")


class LearntAtModel(Message):
    """A client's compressed Hessian error, and its gradient in rounds that ask for it."""

    values: Payload = wire("values", discloses="hessian")
    vectors: Payload = wire("rank", "features", discloses="hessian")
    indices: Payload = wire("indices", dtype="int32", discloses="hessian")
    gradient: Payload = wire("sent", discloses="gradient")


class BidirectionalState(StateOfAll):
    """The server's model, the clients' model and its last step, the last point with a gradient, and the learnt Hessian."""

    model: Payload = wire("features", dtype="float64")
    step: Payload = wire("features", dtype="float64")  # the last one, which the clients have not heard of yet
    anchor: Payload = wire("features", dtype="float64")
    gradient: Payload = wire("features", dtype="float64")  # there, of the mean loss
    hessian_triangle: Payload = wire("entries", dtype="float64")
    missed: Payload = wire(dtype="uint8")


@dataclass(frozen=True)
class FedNLBC(Algorithm):
    """w <- z - B^-1 g, where z is the model that clients hold: z <- z + C'(w - z), the largest entries of the step.

    B is FedNL's learnt Hessian with its eigenvalues clipped at 0, plus the penalty; H_j <- H_j + C(hess f_j(z) - H_j). With
    probability `gradient_probability`, and in the first round, clients send their gradients at z, which then becomes the
    anchor v. Otherwise the server takes g = grad f(v) + H (z - v).

    Pitfall: what it saves in a round it pays in rounds, and the first Hessian, M(M+1)/2 numbers, is not compressed.

    - compressor: of the Hessian corrections: rank1, rank5, ..., or identity.
    - kept: the part of the entries of a step that the server sends, above 0 and at most 1.
    - gradient_probability: of a round in which clients send gradients, above 0 and at most 1.
    """

    # Deviation (FedNL, Alg. 5): the penalty is the server's. Its Hessian and gradient are exact and are not learnt.
    compressor: str = "rank1"
    kept: Fraction = 0.5
    gradient_probability: Fraction = 0.5

    name: ClassVar[str] = "fednlbc"
    summary: ClassVar[str] = "FedNL compressed both ways, with gradients only now and then; more rounds than FedNL"
    paper: ClassVar[str] = "Safaryan, Islamov, Qian, Richtarik, FedNL, ICML 2022, Algorithm 5"
    uplink: ClassVar[str] = "R(M+1) for rank-R, and M with a probability; M(M+1)/2 once"
    theory: ClassVar[str] = "log 1/δ locally"
    reports: ClassVar[tuple[str, ...]] = ("gradients", "newton_decrement")
    draws_random_numbers: ClassVar[bool] = True

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        return learning_needs(features)

    def __post_init__(self) -> None:
        if not isinstance(parse_compressor(self.compressor), RankR | WholeTriangle):
            raise ConfigError(f"compressor of FedNL-BC must be like rank1, or identity, got {self.compressor!r}")

    def handlers(self) -> tuple[Handler, ...]:
        return (self.start_learning, self.learn_at_model)

    def init(self, problem: Problem, cohort: Cohort) -> BidirectionalState:
        w = as_received(cohort.start, int(cohort.number_bytes))
        request = LearnRequest(w, cohort.number_bytes)
        (triangle,) = cohort.ask(self.start_learning, request).fold(mean("hessian_triangle"))
        return BidirectionalState.first(cohort, coefficients=w, model=w, anchor=w, hessian_triangle=triangle)

    @on_client(LearnRequest, InitialHessian)
    def start_learning(self, problem: Problem, clients: Clients, request: LearnRequest) -> InitialHessian:
        w = request.coefficients
        triangle = as_received(problem.gradient_and_hessian(w, clients.shards)[1], int(request.number_bytes))
        clients.remember("fednlbc_hessian", triangle)
        clients.remember("fednlbc_model", np.tile(w, (clients.ids.size, 1)))
        return InitialHessian(hessian_triangle=triangle)

    @on_client(ModelStep, LearntAtModel)
    def learn_at_model(self, problem: Problem, clients: Clients, request: ModelStep) -> LearntAtModel:
        def some(part: Clients) -> LearntAtModel:
            gradient, correction = self._learn(problem, part, request)
            return LearntAtModel(*correction, gradient=gradient[:, : None if request.wants_gradient else 0])

        return joined_batches([some(part) for part in clients.slabs(8 * triangle_size(int(request.features)))])

    def _learn(self, problem: Problem, clients: Clients, request: ModelStep) -> tuple[FloatArray, Compressed]:
        """Gradients at the new model, and what the clients' Hessians have learnt there."""
        features = int(request.features)
        models = clients.read_copy("fednlbc_model", features)
        models[:, request.indices] += request.values
        if request.model.size:
            models[:] = request.model
        clients.remember("fednlbc_model", models)
        gradient, error = problem.gradient_and_hessian(models, clients.shards)
        learned = errors_of_learned(clients, "fednlbc_hessian", error)
        compressor, keys = parse_compressor(self.compressor), clients.keys("fednlbc compressor")
        correction = compressor.compress(error, features, keys).rounded(int(request.number_bytes))
        parallel.map_clients(lambda j: add_compressed(learned[j], correction, j, 1.0), len(learned))
        return gradient, correction

    def round(self, problem: Problem, state: BidirectionalState, cohort: Cohort) -> Outcome:
        z, anchor, gradient = state.model, state.anchor, state.gradient
        share = state.share(cohort)
        draw = generator(cohort.session.seed, "fednlbc gradients", cohort.session.round).random()
        asks = cohort.session.round == 1 or draw < self.gradient_probability
        replies = cohort.ask(self.learn_at_model, self._request(state, asks, cohort))
        correction, sent = replies.fold(mean_compressed(z.size), mean("gradient"))
        if asks:
            anchor, gradient = z, sent
        hessian = symmetric_of(state.hessian_triangle, z.size)
        newton = problem.newton_step(z, gradient + hessian @ (z - anchor), positive_part(hessian))
        w = z + newton.step
        step = as_received(self._compressed(w - z), int(cohort.number_bytes))
        after = state.after(
            coefficients=w,
            model=z + step,
            step=step,
            anchor=anchor,
            gradient=gradient,
            hessian_triangle=state.hessian_triangle + share * correction,
            missed=share < 1,
        )
        return Outcome(after, {"newton_decrement": newton.newton_decrement, "gradients": float(asks)})

    def _request(self, state: BidirectionalState, asks: bool, cohort: Cohort) -> ModelStep:
        kept = np.flatnonzero(state.step)
        model = state.model if state.missed else np.zeros(0)
        return ModelStep(
            values=state.step[kept],
            indices=kept.astype(np.int32),
            model=model,
            wants_gradient=np.uint8(asks),
            features=np.int32(state.model.size),
            number_bytes=cohort.number_bytes,
        )

    def _compressed(self, step: FloatArray) -> FloatArray:
        """The largest entries of a step, ties to the first; the rest are 0."""
        largest = np.argsort(-np.abs(step), kind="stable")[: int(np.ceil(self.kept * step.size))]
        compressed = np.zeros_like(step)
        compressed[largest] = step[largest]
        return compressed
