"""FedNew and Q-FedNew: a round is one pass of ADMM on the Newton system, and clients send directions alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from fedns.core.algorithm import Algorithm, Needs, Outcome, State
from fedns.core.checked import CountOrZero, Limit, NotNegative, Positive
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, as_received, joined_batches, wire
from fedns.core.types import FloatArray
from fedns.methods.curvature import Iterate
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.backend import triangle_size
from fedns.numerics.linalg import add_weighted_rows, symmetric_of, triangle_of

Bits = Annotated[int, Limit("from 1 to 16", lambda bits: 1 <= bits <= 16)]


class DirectionRequest(Iterate):
    """The coefficients and the direction that led to them, by which clients settle their dual variables first."""

    direction: Payload = wire("features", dtype="float64")  # never rounded: the duals have to add up to zero
    iteration: Payload = wire(dtype="int64")  # rounds made so far
    number_bytes: Payload = wire(dtype="uint8")  # of a real number in the replies


class DampedDirection(Message):
    """A client's own solution y_j of the damped Newton system."""

    direction: Payload = wire("features", discloses="direction")


class QuantisedDirection(Message):
    """How y_j differs from what the client sent last, in `bits` bits a number, packed; and the range they span."""

    codes: Payload = wire("bytes", dtype="uint8", discloses="direction")
    radius: Payload = wire(dtype="float32", discloses="direction")


class FedNewState(State):
    """Coefficients, the common direction y and the rounds made."""

    direction: Payload = wire("features", dtype="float64")
    iteration: Payload = wire(dtype="int64")
    total: Payload = wire(dtype="float64")  # the sum of all clients' weights in y, of whom a round may see a part


@dataclass(frozen=True)
class ADMMDirections(Algorithm):
    """What FedNew and Q-FedNew share: the clients' solves, their dual variables and the common direction.

    Clients keep their dual, what they sent last and, between refreshes, the factor of their matrix.
    """

    rho: Positive = 0.01
    alpha: NotNegative = 0.01
    refresh: CountOrZero = 1  # rounds between Hessians; 0 means only at the start
    scale: Literal["mean", "sum"] = "mean"

    reports: ClassVar[tuple[str, ...]] = ("direction_norm", "step_size")

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        square = float(features) ** 2  # a client's matrix and its factor, which is kept between refreshes
        return Needs(server=20.0 * features, client=3.0 * square + 20.0 * features, kept=0.5 * square + 4.0 * features)

    def init(self, problem: Problem, cohort: Cohort) -> FedNewState:
        return FedNewState.first(cohort, total=self._weights(cohort).sum())

    def round(self, problem: Problem, state: FedNewState, cohort: Cohort) -> Outcome:
        request = DirectionRequest(state.coefficients, state.direction, state.iteration, cohort.number_bytes)
        direction = self._common_direction(state, cohort, request)
        w = state.coefficients - direction
        after = state.after(coefficients=w, direction=direction, iteration=state.iteration + 1)
        return Outcome(after, {"direction_norm": float(np.linalg.norm(direction)), "step_size": 1.0})

    @abstractmethod
    def _common_direction(self, state: FedNewState, cohort: Cohort, request: DirectionRequest) -> FloatArray:
        """The mean of what the clients send, in the weights that keep the duals' sum at zero."""

    def _weights(self, cohort: Cohort) -> FloatArray:
        """p_j rho_j up to a factor: what minimises the augmented Lagrangian over y. The same for all with scale="sum"."""
        return np.ones(cohort.num_clients) if self.scale == "sum" else cohort.total_weights

    def _per_client(self, value: float, clients: Clients) -> FloatArray:
        """rho or alpha for each client's mean loss."""
        sizes = clients.shards.total_weights
        return value / sizes if self.scale == "sum" else np.full(sizes.size, value)

    def _directions(self, problem: Problem, clients: Clients, request: DirectionRequest) -> FloatArray:
        """y_j = (hess_j + (alpha + rho) I)^-1 (grad_j - dual_j + rho y), after settling the dual of the last round."""
        w, common = request.coefficients, request.direction
        rho = self._per_client(self.rho, clients)
        dual, sent = clients.read_copy("fednew_dual", w.size), clients.read_copy("fednew_sent", w.size)
        # A client that was absent did not hear what its last direction was averaged to, and its dual stays as it is.
        heard = clients.read_copy("fednew_rounds") == request.iteration
        dual = np.where(heard[:, None], dual + rho[:, None] * (sent - common), dual)
        clients.remember("fednew_dual", dual)
        gradient, solve = self._newton_systems(problem, clients, request)
        right = gradient + problem.penalty_gradient(w) - dual + rho[:, None] * common
        return np.stack(parallel.map_clients(lambda j: solve(j, right[j]), len(right)))

    def _newton_systems(
        self, problem: Problem, clients: Clients, request: DirectionRequest
    ) -> tuple[FloatArray, Callable[[int, FloatArray], FloatArray]]:
        """Gradients, and a function that solves with a client's matrix, made anew or kept from the last refresh."""
        w = request.coefficients
        epoch = 1 + (int(request.iteration) // self.refresh if self.refresh else 0)
        damping = self._per_client(self.alpha, clients) + self._per_client(self.rho, clients)
        diagonal = problem.penalty_curvature(w)
        stale = clients.read_copy("fednew_epoch") != epoch
        if self.refresh == 1:
            stale[:] = True
        gradient = np.empty((stale.size, w.size))
        factors = np.empty((stale.size, w.size, w.size))
        old, new = np.flatnonzero(~stale), np.flatnonzero(stale)
        if old.size:
            gradient[old] = problem.gradient(w, clients.shards.select(old))
            factors[old] = symmetric_of(clients.read_copy("fednew_factor", triangle_size(w.size))[old], w.size)
        if new.size:
            gradient[new], packed = problem.gradient_and_hessian(w, clients.shards.select(new))

            def factor(k: int) -> None:
                matrix = symmetric_of(packed[k], w.size)
                matrix[np.diag_indices(w.size)] += diagonal + damping[new[k]]
                factors[new[k]] = np.linalg.cholesky(matrix)

            parallel.map_clients(factor, new.size)
        if self.refresh != 1 and new.size:
            clients.remember("fednew_epoch", np.full(stale.size, float(epoch)))
            clients.remember("fednew_factor", triangle_of(factors.transpose(0, 2, 1)))

        def solve(client: int, right: FloatArray) -> FloatArray:
            # The transpose, an upper factor, is how LAPACK reads these rows: nothing is copied.
            return np.asarray(lapack.dpotrs(factors[client].T, right)[0])

        return gradient, solve

    def _remember_sent(self, clients: Clients, sent: FloatArray, request: DirectionRequest) -> None:
        clients.remember("fednew_sent", sent)
        clients.remember("fednew_rounds", np.full(len(sent), float(request.iteration + 1)))


@dataclass(frozen=True)
class FedNew(ADMMDirections):
    """w <- w - y, where y is one ADMM iterate towards (sum_j p_j hess F_j + alpha I)^-1 g:

    y_j = (hess F_j + (alpha + rho) I)^-1 (grad F_j - dual_j + rho y), y = sum_j p_j y_j, dual_j <- dual_j + rho (y_j - y).

    A client sends y_j, neither its gradient nor its Hessian; y and the duals are carried over from round to round, and
    sum_j p_j dual_j stays 0. With refresh=r clients compute their Hessian every r rounds, 0 only at the start.

    rho and alpha belong to mean losses. The FedNS paper's table gives them for losses summed over a client's rows:
    scale="sum" takes them as such and divides by the client's number of rows, rho_j = rho / n_j. The minimiser over y then
    weighs clients by p_j rho_j, the same for all: y is the plain mean, as in the FedNew paper.

    Pitfalls: there is no rate in theory. Too small a rho oscillates or diverges, too large a one is gradient descent; the
    table's values taken literally with mean losses damp n_j times too much. The paper lets every client take part in every
    round: one that was absent keeps its dual, and the duals' sum is then no longer 0.

    - rho: weight of the agreement between clients, above 0.
    - alpha: damping added to the Hessians, at least 0.
    - refresh: rounds between Hessians; 0 means only at the start.
    - scale: "mean" or "sum": the losses that rho and alpha belong to.
    """

    name: ClassVar[str] = "fednew"
    summary: ClassVar[str] = "one ADMM pass per round; clients send only a damped direction, never a gradient or Hessian"
    paper: ClassVar[str] = "Elgabli, Issaid, Bedi, Rajawat, Bennis, Aggarwal, FedNew, ICML 2022, Algorithm 1"
    uplink: ClassVar[str] = "M"
    theory: ClassVar[str] = "converges, no rate proved"

    def handlers(self) -> tuple[Handler, ...]:
        return (self.direction,)

    @on_client(DirectionRequest, DampedDirection)
    def direction(self, problem: Problem, clients: Clients, request: DirectionRequest) -> DampedDirection:
        def some(part: Clients) -> DampedDirection:
            sent = as_received(self._directions(problem, part, request), int(request.number_bytes))
            self._remember_sent(part, sent, request)
            return DampedDirection(direction=sent)

        return joined_batches([some(part) for part in clients.slabs(8 * request.coefficients.size**2)])

    def _common_direction(self, state: FedNewState, cohort: Cohort, request: DirectionRequest) -> FloatArray:
        weights = self._weights(cohort) / self._weights(cohort).sum()
        total = np.zeros(cohort.num_features)
        for positions, batch in cohort.ask(self.direction, request):
            add_weighted_rows(total, batch.direction, weights[positions])
        return total


@dataclass(frozen=True)
class QFedNew(ADMMDirections):
    """FedNew whose clients send q_j = Q(y_j - s_j) in `bits` bits a number, s_j being the sum of what they sent before.

    Both ends add: s_j <- s_j + q_j, so that what one round rounds away the next one sends. The common direction and the
    duals are made from s_j. Q rounds to one of 2^bits levels between -R and R, R = max |y_j - s_j|, up or down at random so
    that its mean is right. A message is bits M / 8 bytes and R.

    Pitfall: the rounding error is a fraction of the last change of y_j, so few bits slow down the convergence, and one bit
    can make it diverge. Where clients are absent, the common direction still counts what they sent last.

    - rho: weight of the agreement between clients, above 0.
    - alpha: damping added to the Hessians, at least 0.
    - refresh: rounds between Hessians; 0 means only at the start.
    - scale: "mean" or "sum": the losses that rho and alpha belong to.
    - bits: of a number in a direction, 1 to 16.
    """

    bits: Bits = 3

    name: ClassVar[str] = "qfednew"
    summary: ClassVar[str] = "FedNew with directions in a few bits a number; the fewest bytes per round of all"
    paper: ClassVar[str] = "Elgabli, Issaid, Bedi, Rajawat, Bennis, Aggarwal, FedNew, ICML 2022, section on Q-FedNew"
    uplink: ClassVar[str] = "bits M / 32 + 1"
    theory: ClassVar[str] = "converges, no rate proved"
    draws_random_numbers: ClassVar[bool] = True

    def handlers(self) -> tuple[Handler, ...]:
        return (self.quantised_direction,)

    @on_client(DirectionRequest, QuantisedDirection)
    def quantised_direction(self, problem: Problem, clients: Clients, request: DirectionRequest) -> QuantisedDirection:
        def some(part: Clients) -> QuantisedDirection:
            wanted = self._directions(problem, part, request)
            before = part.read_copy("fednew_sent", wanted.shape[1])
            draws = [np.random.Generator(np.random.Philox(key=key)) for key in part.keys("qfednew quantiser")]
            uniform = np.stack([draw.random(wanted.shape[1]) for draw in draws])
            codes, radius = quantise(wanted - before, self.bits, uniform)
            self._remember_sent(part, before + dequantise(codes, radius, self.bits), request)
            return QuantisedDirection(codes=pack_codes(codes, self.bits), radius=radius)

        return joined_batches([some(part) for part in clients.slabs(8 * request.coefficients.size**2)])

    def _common_direction(self, state: FedNewState, cohort: Cohort, request: DirectionRequest) -> FloatArray:
        weights = self._weights(cohort) / float(state.total)
        direction: FloatArray = state.direction.copy()
        for positions, batch in cohort.ask(self.quantised_direction, request):
            codes = unpack_codes(batch.codes, self.bits, direction.size)
            add_weighted_rows(direction, dequantise(codes, batch.radius, self.bits), weights[positions])
        return direction


def quantise(vectors: FloatArray, bits: int, uniform: FloatArray) -> tuple[NDArray[np.uint16], NDArray[np.float32]]:
    """Codes from 0 to 2^bits - 1 of levels evenly spaced over [-R, R]; rounded up where `uniform` is below the remainder."""
    with np.errstate(over="ignore", invalid="ignore"):  # a diverging run sends an infinite radius, which is refused
        radius = np.abs(vectors).max(axis=1).astype(np.float32)
        # R travels in 32 bits: the next number above still spans all entries.
        radius = np.where(radius > 0, np.nextafter(radius, np.float32(np.inf)), radius)
        wide = radius.astype(np.float64)[:, None]
        gap = 2.0 * wide / (2**bits - 1)
        position = np.divide(vectors + wide, gap, out=np.zeros_like(vectors), where=gap > 0)
        below = np.floor(position)
        codes = np.clip(below + (uniform < position - below), 0, 2**bits - 1).astype(np.uint16)
    return codes, radius


def dequantise(codes: NDArray[np.uint16], radius: NDArray[np.floating], bits: int) -> FloatArray:
    """The levels of these codes, the same to the last bit at both ends."""
    wide = np.asarray(radius, dtype=np.float64)[:, None]
    return np.asarray(codes * (2.0 * wide / (2**bits - 1)) - wide)


def pack_codes(codes: NDArray[np.uint16], bits: int) -> NDArray[np.uint8]:
    """Codes of `bits` bits each, back to back in bytes: (clients, M) to (clients, ceil(bits M / 8))."""
    digits = (codes[:, :, None] >> np.arange(bits, dtype=np.uint16)) & 1
    return np.packbits(digits.astype(np.uint8).reshape(len(codes), -1), axis=1)


def unpack_codes(packed: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint16]:
    """The first `count` codes that `pack_codes` put there."""
    digits = np.unpackbits(packed, axis=1, count=bits * count).reshape(len(packed), count, bits).astype(np.uint16)
    return np.asarray((digits << np.arange(bits, dtype=np.uint16)).sum(axis=2, dtype=np.uint16))
