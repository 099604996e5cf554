"""FedNL: clients teach the server their Hessians by compressed corrections. FedNL-LS, FedNL-PP and Newton-Zero with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedns.core.algorithm import Algorithm, Needs, Outcome, StateOfAll
from fedns.core.checked import Limit
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError, MessageError
from fedns.core.messages import Message, Payload, as_received, joined_batches, wire
from fedns.core.messages.reducers import mean
from fedns.core.types import FloatArray
from fedns.methods.compressors import (
    Compressed,
    RankR,
    WholeTriangle,
    add_compressed,
    entry_weights,
    errors_of_learned,
    learning_needs,
    mean_compressed,
    parse_compressor,
)
from fedns.methods.curvature import Iterate, local_gradient, refuse_impossible_hessian
from fedns.methods.searches import ArmijoSearch, search_handlers, step_along
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.backend import triangle_size
from fedns.numerics.linalg import solve_positive, symmetric_of
from fedns.numerics.spectral import frobenius_norm, positive_part, spectral_norm, symmetric_times


class LearnRequest(Iterate):
    """The coefficients, and the size of a real number in the replies: a client adds to its Hessian what then arrives."""

    number_bytes: Payload = wire(dtype="uint8")


class InitialHessian(Message):
    """The upper triangle of a client's Hessian at the start, row by row."""

    hessian_triangle: Payload = wire("entries", discloses="hessian")

    def check(self) -> None:
        side = int(np.sqrt(2 * self.hessian_triangle.size))
        refuse_impossible_hessian(self.kind, self.hessian_triangle, side)


class InitialModel(Message):
    """What FedNL-PP starts from: a client's right-hand side and shift, and its packed Hessian unless that starts at 0."""

    right_side: Payload = wire("features", discloses="gradient")
    shift: Payload = wire(discloses="hessian")
    hessian_triangle: Payload = wire("learned", discloses="hessian")

    def check(self) -> None:
        if self.hessian_triangle.size:
            refuse_impossible_hessian(self.kind, self.hessian_triangle, len(self.right_side))


class Correction(Message):
    """A client's gradient and compressed Hessian error; fields that the compressor does not use are empty.

    In FedNL-PP, gradient and shift are the changes of the client's right-hand side and shift since it last took part.
    """

    gradient: Payload = wire("features", discloses="gradient")
    shift: Payload = wire("shifts", discloses="hessian")  # the norm of the Hessian error; none with option 1
    values: Payload = wire("values", discloses="hessian")
    vectors: Payload = wire("rank", "features", discloses="hessian")
    indices: Payload = wire("indices", dtype="int32", discloses="hessian")

    def check(self) -> None:
        entries, rank, chosen = triangle_size(len(self.gradient)), len(self.vectors), len(self.indices)
        if len(self.values) != (rank or chosen or entries) or (rank and chosen):
            raise MessageError(
                f"{self.kind} has {len(self.values)} values for {rank} vectors, {chosen} indices and a Hessian of {entries}"
            )
        if chosen and not 0 <= self.indices.min() <= self.indices.max() < entries:
            raise MessageError(f"field 'indices' of {self.kind} points outside the {entries} entries of the Hessian")


class LearnedHessian(StateOfAll):
    """Coefficients and the mean of the Hessians the clients hold."""

    hessian_triangle: Payload = wire("entries", dtype="float64")


class PartialModel(LearnedHessian):
    """Coefficients, and the means over all clients, present or not, of Hessian, shift and right-hand side."""

    shift: Payload = wire(dtype="float64")
    right_side: Payload = wire("features", dtype="float64")


@dataclass(frozen=True)
class FedNL(Algorithm):
    """Both sides hold H_j, which learns the Hessian of client j's loss: H_j <- H_j + alpha C(hess f_j(w) - H_j).

    w <- w - B^-1 g with B from H = sum_j p_j H_j as it was before this round's corrections.
    Option 1 clips the eigenvalues of H at 0 and adds the penalty. Option 2 adds (sum_j p_j l_j) I and the penalty, with
    l_j = |hess f_j(w) - H_j|. Option 0 takes 1 for rank-R and identity from an exact start and 2 otherwise.
    A client sends its gradient, the compressed correction and, with option 2, l_j; with initial_hessian="exact" also
    M(M+1)/2 numbers once. line_search=ArmijoSearch() is FedNL-LS.

    variant="pp" is FedNL-PP, made for participation below 1: w <- (H + l I + penalty)^-1 sum_j p_j [(H_j + l_j I) w_j -
    grad f_j(w_j)], where w_j is the last point that client j saw. The server keeps the three means, and clients send the
    changes of theirs. The standard variant also runs on part of the clients, but on their gradients alone: it then
    wanders around the optimum at a distance set by how much clients differ.

    Pitfalls: option 1 with Top-K can diverge, since changing single entries makes H indefinite, and a direction clipped to
    the penalty alone gets a huge step. From a zero Hessian option 1 makes gradient steps of length 1/strength.

    - compressor: of the corrections: rank1, rank5, topk, top100, randk, rand200 or identity.
    - option: 1 or 2, see above; 0 chooses.
    - initial_hessian: "exact" or "zero".
    - line_search: fedns.ArmijoSearch(), or None for full steps.
    - shift_norm: of l_j with option 2: "frobenius" or "spectral".
    - variant: "standard" or "pp".
    - alpha: the learning rate of H_j; 0 means the compressor's own.
    """

    compressor: str = "rank1"
    option: Literal[0, 1, 2] = 0
    initial_hessian: Literal["exact", "zero"] = "exact"
    line_search: ArmijoSearch | None = None
    shift_norm: Literal["frobenius", "spectral"] = "frobenius"
    variant: Literal["standard", "pp"] = "standard"
    # 0 means the compressor's own: 1, and for rand-k K / (M(M+1)/2).
    alpha: Annotated[float, Limit("from 0 to 1", lambda rate: 0 <= rate <= 1)] = 0.0

    name: ClassVar[str] = "fednl"
    summary: ClassVar[str] = "Hessians learned from compressed corrections; super-linear at the price of one vector a round"
    paper: ClassVar[str] = "Safaryan, Islamov, Qian, Richtarik, FedNL, ICML 2022, Algorithms 1 to 3"
    uplink: ClassVar[str] = "M + R(M+1) for rank-R, M + 2K for top-K (+1 with option 2); M(M+1)/2 once"
    theory: ClassVar[str] = "log 1/δ, super-linear locally"
    reports: ClassVar[tuple[str, ...]] = ("step_size",)
    heterogeneous: ClassVar[str] = "yes"

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        return learning_needs(features)

    def __post_init__(self) -> None:
        parse_compressor(self.compressor)
        if self.variant == "pp" and (self.option == 1 or self.line_search is not None):
            raise ConfigError("FedNL-PP has neither projection nor line search: use option=2 and line_search=none")

    @property
    def shifts(self) -> bool:
        """Whether clients send the norm of their Hessian error (option 2)."""
        safe = isinstance(parse_compressor(self.compressor), (RankR, WholeTriangle)) and self.initial_hessian == "exact"
        return self.option == 2 or self.variant == "pp" or (self.option == 0 and not safe)

    def handlers(self) -> tuple[Handler, ...]:
        if self.variant == "pp":
            return (self.start_partially, self.learn_partially)
        start = (self.start,) if self.initial_hessian == "exact" else ()
        return (*start, self.learn, *search_handlers(self.line_search))

    def init(self, problem: Problem, cohort: Cohort) -> LearnedHessian | PartialModel:
        w = cohort.start
        triangle = np.zeros(triangle_size(w.size))
        request = LearnRequest(w, cohort.number_bytes)
        if self.variant == "pp":
            reducers = [mean(name) for name in ("right_side", "shift", "hessian_triangle")]
            right_side, shift, learned = cohort.ask(self.start_partially, request).fold(*reducers)
            learned = learned if learned.size else triangle
            return PartialModel.first(cohort, hessian_triangle=learned, shift=shift, right_side=right_side)
        if self.initial_hessian == "exact":
            (triangle,) = cohort.ask(self.start, request).fold(mean("hessian_triangle"))
        return LearnedHessian.first(cohort, hessian_triangle=triangle)

    def round(self, problem: Problem, state: Any, cohort: Cohort) -> Outcome:
        return self._partial_round(problem, state, cohort) if self.variant == "pp" else self._round(problem, state, cohort)

    @on_client(LearnRequest, InitialHessian)
    def start(self, problem: Problem, clients: Clients, request: LearnRequest) -> InitialHessian:
        _, triangle = problem.gradient_and_hessian(request.coefficients, clients.shards)
        triangle = _rounded(triangle, request)
        clients.remember("fednl_hessian", triangle)
        return InitialHessian(hessian_triangle=triangle)

    @on_client(LearnRequest, Correction)
    def learn(self, problem: Problem, clients: Clients, request: LearnRequest) -> Correction:
        def some(part: Clients) -> Correction:
            gradient, error, learned = self._gradient_and_error(problem, part, request)
            correction = self._correct(part, error, learned, request)
            shift = self._norms(error, gradient.shape[1])[:, None] if self.shifts else np.zeros((len(error), 0))
            return Correction(gradient, shift, *correction)

        return joined_batches([some(part) for part in clients.slabs(8 * triangle_size(request.coefficients.size))])

    @on_client(LearnRequest, InitialModel)
    def start_partially(self, problem: Problem, clients: Clients, request: LearnRequest) -> InitialModel:
        w = request.coefficients
        gradient, triangle = problem.gradient_and_hessian(w, clients.shards)
        exact = self.initial_hessian == "exact"
        learned = _rounded(triangle, request) if exact else np.zeros_like(triangle)
        shift = _rounded(self._norms(triangle - learned, w.size), request)
        right_side = _rounded(_shifted_times(learned, shift, w) - gradient, request)
        for name, values in (("hessian", learned), ("shift", shift), ("right_side", right_side)):
            clients.remember(f"fednl_{name}", values)
        return InitialModel(right_side, shift, learned if exact else np.zeros((len(triangle), 0)))

    @on_client(LearnRequest, Correction)
    def learn_partially(self, problem: Problem, clients: Clients, request: LearnRequest) -> Correction:
        w = request.coefficients

        def some(part: Clients) -> Correction:
            gradient, error, learned = self._gradient_and_error(problem, part, request)
            correction = self._correct(part, error, learned, request)
            self._add(error, correction, w.size, -1.0)  # what is left of the error
            shift_before, side_before = part.read_copy("fednl_shift"), part.read_copy("fednl_right_side", w.size)
            change = _rounded(self._norms(error, w.size) - shift_before, request)
            part.remember("fednl_shift", shift_before + change)
            side_change = _rounded(_shifted_times(learned, shift_before + change, w) - gradient - side_before, request)
            part.remember("fednl_right_side", side_before + side_change)
            return Correction(side_change, change[:, None], *correction)

        return joined_batches([some(part) for part in clients.slabs(8 * triangle_size(w.size))])

    def _round(self, problem: Problem, state: LearnedHessian, cohort: Cohort) -> Outcome:
        w = state.coefficients
        replies = cohort.ask(self.learn, LearnRequest(w, cohort.number_bytes))
        gradient, shift, correction = replies.fold(mean("gradient"), mean("shift"), mean_compressed(w.size))
        hessian = symmetric_of(state.hessian_triangle, w.size)
        hessian = hessian + shift[0] * np.eye(w.size) if self.shifts else positive_part(hessian)
        newton = problem.newton_step(w, gradient, hessian)
        along = step_along(newton, self.line_search, 1.0, problem, w, cohort)
        if self.shifts:
            along.diagnostics["hessian_error"] = float(shift[0])
        share = self._rate(w.size) * state.share(cohort)
        after = state.after(coefficients=along.after, hessian_triangle=state.hessian_triangle + share * correction)
        return Outcome(after, along.diagnostics, note=along.note)  # the next Hessian is nearer to that of the clients

    def _partial_round(self, problem: Problem, state: PartialModel, cohort: Cohort) -> Outcome:
        features = state.coefficients.size
        matrix = symmetric_of(state.hessian_triangle, features)
        curvature, before = problem.penalty_curvature(state.coefficients), state.coefficients
        matrix[np.diag_indices(features)] += state.shift + curvature
        # The penalty's gradient, linear in w where it is quadratic, is taken as linear from the last point on.
        w = solve_positive(matrix, state.right_side + (curvature * before - problem.penalty_gradient(before)))
        replies = cohort.ask(self.learn_partially, LearnRequest(w, cohort.number_bytes))
        change, shift, correction = replies.fold(mean("gradient"), mean("shift"), mean_compressed(features))
        share = state.share(cohort)
        after = state.after(
            coefficients=w,
            hessian_triangle=state.hessian_triangle + self._rate(features) * share * correction,
            shift=state.shift + share * shift[0],
            right_side=state.right_side + share * change,
        )
        return Outcome(after, {"hessian_error": float(after.shift), "step_size": 1.0})

    def _gradient_and_error(
        self, problem: Problem, clients: Clients, request: LearnRequest
    ) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
        gradient, error = problem.gradient_and_hessian(request.coefficients, clients.shards)
        return gradient, error, errors_of_learned(clients, "fednl_hessian", error)

    def _correct(self, clients: Clients, error: FloatArray, learned: list[FloatArray], request: LearnRequest) -> Compressed:
        """Compress the Hessian errors, and add to the clients' Hessians what the server is going to receive."""
        features = request.coefficients.size
        keys = clients.keys("fednl compressor")
        correction = parse_compressor(self.compressor).compress(error, features, keys).rounded(int(request.number_bytes))
        self._add(learned, correction, features, 1.0)
        return correction

    def _add(self, triangle: FloatArray | list[FloatArray], correction: Compressed, features: int, sign: float) -> None:
        rate = sign * self._rate(features)
        parallel.map_clients(lambda j: add_compressed(triangle[j], correction, j, rate), len(triangle))

    def _rate(self, features: int) -> float:
        return self.alpha or parse_compressor(self.compressor).learning_rate(features)

    def _norms(self, triangle: FloatArray, features: int) -> FloatArray:
        """The norm of each client's packed matrix: (clients,)."""
        weights = entry_weights(features)

        def norm(client: int) -> float:
            if self.shift_norm == "spectral":
                return spectral_norm(triangle[client], features)
            return float(frobenius_norm(triangle[client], weights))

        return np.array(parallel.map_clients(norm, len(triangle)))


@dataclass(frozen=True)
class NewtonZero(Algorithm):
    """w <- w - (hess F(0))^-1 g: FedNL that never corrects. The Hessian at the start is sent once, then gradients alone.

    What the FedNS paper's figures call FedNL. Pitfall: its linear rate is |I - H(0)^-1 H(w*)|, and where the curvature at
    the optimum is far from that at the start it takes hundreds of rounds, or cycles unless line_search=ArmijoSearch().

    - line_search: fedns.ArmijoSearch(), or None for full steps.
    """

    line_search: ArmijoSearch | None = None

    name: ClassVar[str] = "newtonzero"
    summary: ClassVar[str] = "Newton steps with the Hessian at the start for ever; cheap rounds, linear convergence"
    paper: ClassVar[str] = "Safaryan, Islamov, Qian, Richtarik, FedNL, ICML 2022, section on Newton-Zero"
    uplink: ClassVar[str] = "M; M(M+1)/2 once"
    theory: ClassVar[str] = "log 1/δ, locally"
    reports: ClassVar[tuple[str, ...]] = ("newton_decrement", "step_size")
    sees_partition: ClassVar[bool] = False

    def handlers(self) -> tuple[Handler, ...]:
        return (self.start, local_gradient, *search_handlers(self.line_search))

    def init(self, problem: Problem, cohort: Cohort) -> LearnedHessian:
        w = cohort.start
        (triangle,) = cohort.ask(self.start, Iterate(w)).fold(mean("hessian_triangle"))
        return LearnedHessian.first(cohort, hessian_triangle=triangle)

    @on_client(Iterate, InitialHessian)
    def start(self, problem: Problem, clients: Clients, request: Iterate) -> InitialHessian:
        return InitialHessian(hessian_triangle=problem.gradient_and_hessian(request.coefficients, clients.shards)[1])

    def round(self, problem: Problem, state: LearnedHessian, cohort: Cohort) -> Outcome:
        w = state.coefficients
        (gradient,) = cohort.ask(local_gradient, Iterate(w)).fold(mean("gradient"))
        newton = problem.newton_step(w, gradient, state.hessian_triangle)
        along = step_along(newton, self.line_search, 1.0, problem, w, cohort)
        return Outcome(state.after(coefficients=along.after), along.diagnostics, along.finished, stuck=along.stuck)


def _rounded(values: FloatArray, request: LearnRequest) -> FloatArray:
    return as_received(values, int(request.number_bytes))


def _shifted_times(triangle: FloatArray | list[FloatArray], shift: FloatArray, w: FloatArray) -> FloatArray:
    """(H_j + l_j I) w for each client."""
    products = np.stack(parallel.map_clients(lambda j: symmetric_times(triangle[j], w), len(triangle)))
    return products + shift[:, None] * w
