"""SHED: clients send the eigenpairs of their Hessian a few at a time, the largest first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedns.core.algorithm import Algorithm, Needs, Outcome, State
from fedns.core.checked import Count
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError
from fedns.core.messages import Message, Payload, Ragged, joined_batches, wire
from fedns.core.messages.reducers import mean
from fedns.core.shards import Shards
from fedns.core.types import FloatArray, IntArray
from fedns.methods.curvature import Iterate, gradients_and_roots
from fedns.methods.searches import ArmijoSearch, search_handlers, step_along
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.linalg import LowRank, symmetric_of
from fedns.numerics.spectral import leading_eigenpairs

_GRAM_BYTES = 16 * 2**20


class EigenRequest(Iterate):
    """The coefficients, how many times Hessians were renewed, and the mean weight of a client."""

    generation: Payload = wire(dtype="int64")
    mean_weight: Payload = wire(dtype="float64")


class EigenUpdate(Message):
    """A client's gradient, the next eigenpairs of its Hessian, and what stands in for all eigenvalues not sent yet."""

    gradient: Payload = wire("features", discloses="gradient")
    residual: Payload = wire(discloses="hessian")
    eigenvalues: Payload = wire("pairs", ragged=True, discloses="hessian")
    eigenvectors: Payload = wire("pairs", "features", ragged=True, discloses="hessian")


class EigenState(State):
    """Coefficients, and of every client what it has sent since it last renewed its Hessian.

    Per client and not summed: its residual falls from round to round, and stands in the coefficient of every pair it sent.
    """

    iteration: Payload = wire(dtype="int64")
    ids: Payload = wire("clients", dtype="int64")
    weights: Payload = wire("clients", dtype="float64")
    generations: Payload = wire("clients", dtype="int64")  # 0 for a client that never took part
    counts: Payload = wire("clients", dtype="int64")
    residuals: Payload = wire("clients", dtype="float64")
    eigenvalues: Payload = wire("clients", "slots", dtype="float64")
    eigenvectors: Payload = wire("clients", "slots", "features", dtype="float64")  # zero beyond a client's count


@dataclass(frozen=True)
class SHED(Algorithm):
    """w <- w - mu (H + penalty)^-1 g, H = sum_j p_j [sum_(i <= q_j) (l_ji - r_j) v_ji v_ji' + r_j I].

    At a renewal client j takes the eigenpairs (l_ji, v_ji), largest first, of its Hessian at the current point. In every
    round it sends the next `eigenpairs` of them, its gradient and the residual r_j, the first eigenvalue it has not sent
    yet. Then H is no smaller than the Hessian at the renewal, and a unit step is safe for quadratics; others need the line
    search, which is on. For squared losses residual="midpoint", between that eigenvalue and the smallest, is optimal.

    renewal: "fibonacci" renews in rounds 1, 2, 3, 5, 8, 13, 21, ... (after 1, 1, 2, 3, 5, 8, ... further rounds); "once"
    only in the first; "every10" every ten rounds. Clients with more bandwidth may send more pairs: eigenpairs_per_client
    gives each its number, and allocation="rows" shares them out by rows, eigenpairs being the mean.

    Pitfalls: a renewal throws away everything sent before. Near the optimum the Hessian no longer changes, and the later the
    rarer it should be; "once" is best for squared losses, whose Hessian is constant. The server keeps up to M pairs of every
    client.

    - eigenpairs: pairs that a client sends in a round, at least 1.
    - renewal: "fibonacci", "once" or "everyN" for a number N.
    - residual: "next" or "midpoint".
    - allocation: "equal" or "rows".
    - eigenpairs_per_client: a number for each client, in place of `eigenpairs`.
    - line_search: fedns.ArmijoSearch(), or None for full steps.
    """

    eigenpairs: Count = 3
    renewal: str = "fibonacci"
    residual: Literal["next", "midpoint"] = "next"
    allocation: Literal["equal", "rows"] = "equal"
    eigenpairs_per_client: tuple[int, ...] = ()  # one per client; as text 5/3/3/8
    line_search: ArmijoSearch | None = ArmijoSearch()

    name: ClassVar[str] = "shed"
    summary: ClassVar[str] = "Hessian eigenpairs sent a few per round, largest first; clients may send unequal numbers"
    paper: ClassVar[str] = "Dal Fabbro, Dey, Rossi, Schenato, SHED, Automatica 2024 (arXiv 2202.05800), Algorithm 1"
    uplink: ClassVar[str] = "M + q(M+1) + 1 + 13"
    theory: ClassVar[str] = "log 1/δ, super-linear once all eigenpairs are sent"
    reports: ClassVar[tuple[str, ...]] = ("eigenpairs_known", "newton_decrement", "step_size")
    heterogeneous: ClassVar[str] = "yes"

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        pairs = float(min(features, rows))  # the most that a client can send, all of which the server keeps
        known = clients * pairs
        matrix = 2.0 * known * features if known < features else 3.0 * features**2 + known * features
        return Needs(matrix + 20.0 * features, client=4.0 * pairs * features + 20.0 * features, kept=pairs * features)

    def __post_init__(self) -> None:
        if any(count < 1 for count in self.eigenpairs_per_client):
            raise ConfigError("shed needs at least one eigenpair per client and round")
        if self.renewal not in ("fibonacci", "once") and not re.fullmatch(r"every[1-9]\d*", self.renewal):
            raise ConfigError(f"renewal must be fibonacci, once, or like every10, got {self.renewal!r}")

    def handlers(self) -> tuple[Handler, ...]:
        return (self.next_pairs, *search_handlers(self.line_search))

    def init(self, problem: Problem, cohort: Cohort) -> EigenState:
        clients = cohort.num_clients
        if self.eigenpairs_per_client and len(self.eigenpairs_per_client) != clients:
            raise ConfigError(
                f"eigenpairs_per_client has {len(self.eigenpairs_per_client)} numbers, but there are {clients} clients"
            )
        return EigenState.first(cohort, ids=cohort.ids, weights=cohort.total_weights)

    @on_client(EigenRequest, EigenUpdate)
    def next_pairs(self, problem: Problem, clients: Clients, request: EigenRequest) -> EigenUpdate:
        width = request.coefficients.size
        slots = self._slots(problem, clients, request)
        return joined_batches([self._next_pairs(problem, part, request) for part in clients.slabs(16 * width * slots)])

    def round(self, problem: Problem, state: EigenState, cohort: Cohort) -> Outcome:
        w = state.coefficients
        generation = renewals(self.renewal, int(state.iteration))
        gradient_mean = mean("gradient")
        received: list[EigenUpdate] = []
        replies = cohort.ask(self.next_pairs, EigenRequest(w, np.int64(generation), state.weights.mean()))
        for positions, batch in replies:
            gradient_mean.add(batch, cohort.weights[positions])
            received.append(batch)
        known = self._received(state, cohort, joined_batches(received), generation)
        newton = problem.newton_step(w, gradient_mean.result(), hessian_estimate(known))
        along = step_along(newton, self.line_search, 1.0, problem, w, cohort)
        diagnostics = along.diagnostics | {"eigenpairs_known": float(known.counts.mean())}
        return Outcome(known.after(coefficients=along.after), diagnostics, note=along.note)

    def _next_pairs(self, problem: Problem, clients: Clients, request: EigenRequest) -> EigenUpdate:
        w = request.coefficients
        features, count = w.size, clients.ids.size
        stale = clients.read_copy("shed_generation") != request.generation
        sent = np.where(stale, 0.0, clients.read_copy("shed_sent")).astype(np.int64)
        slots = self._slots(problem, clients, request)
        values, vectors = clients.read_copy("shed_values", slots), clients.read_copy("shed_vectors", slots, features)
        slots = values.shape[1]
        gradient = np.empty((count, features))
        old, new = np.flatnonzero(~stale), np.flatnonzero(stale)
        if old.size:
            gradient[old] = problem.gradient(w, clients.shards.select(old))
        if new.size:
            gradient[new], values[new], vectors[new] = eigenpairs(problem, w, clients.shards.select(new), slots)
            clients.remember("shed_values", values)
            clients.remember("shed_vectors", vectors)
        # Beyond the numerical rank there is nothing to send: those eigenvalues are rounding errors.
        rank = (values > features * np.finfo(np.float64).eps * values[:, :1]).sum(axis=1)
        until = np.minimum(sent + self._pairs(clients, request), rank)
        clients.remember("shed_generation", np.full(count, float(request.generation)))
        clients.remember("shed_sent", until.astype(np.float64))
        following = np.take_along_axis(np.pad(values, ((0, 0), (0, 1))), until[:, None], 1)[:, 0]
        smallest = values[:, -1] if slots == features else 0.0
        residual = following if self.residual == "next" else 0.5 * (following + smallest)
        taken = (np.arange(slots) >= sent[:, None]) & (np.arange(slots) < until[:, None])
        offsets = np.concatenate([[0], np.cumsum(until - sent)])
        return EigenUpdate(gradient, residual, Ragged(values[taken], offsets), Ragged(vectors[taken], offsets))

    def _slots(self, problem: Problem, clients: Clients, request: EigenRequest) -> int:
        """How many eigenpairs a client keeps at most: what it may send until the next renewal, and the one after."""
        most = min(int(request.coefficients.size), int(problem.root_sizes(clients.shards).max()))  # no more are above 0
        rounds = rounds_between(self.renewal, int(request.generation))
        if rounds == 0 or self.residual == "midpoint":
            return most
        return min(most, rounds * int(self._pairs(clients, request).max()) + 1)

    def _pairs(self, clients: Clients, request: EigenRequest) -> IntArray:
        """How many pairs each client sends this round."""
        if self.eigenpairs_per_client:
            return np.array(self.eigenpairs_per_client, dtype=np.int64)[clients.ids]
        if self.allocation == "rows":
            share = clients.shards.total_weights / float(request.mean_weight)
            return np.maximum(1, np.rint(self.eigenpairs * share)).astype(np.int64)
        return np.full(clients.ids.size, self.eigenpairs, dtype=np.int64)

    def _received(self, state: EigenState, cohort: Cohort, batch: EigenUpdate, generation: int) -> EigenState:
        """The state with what these clients sent; a client that renewed its Hessian starts over."""
        here = np.searchsorted(state.ids, cohort.ids)
        generations, counts, residuals = state.generations.copy(), state.counts.copy(), state.residuals.copy()
        counts[here[generations[here] != generation]] = 0
        before = counts.copy()
        counts[here] += batch.eigenvalues.counts
        generations[here], residuals[here] = generation, batch.residual
        slots = int(counts.max())
        values = np.zeros((len(counts), slots))
        vectors = np.zeros((len(counts), slots, state.coefficients.size))
        for client, kept in enumerate(before.tolist()):
            values[client, :kept] = state.eigenvalues[client, :kept]
            vectors[client, :kept] = state.eigenvectors[client, :kept]
        for position, client in enumerate(here.tolist()):
            values[client, before[client] : counts[client]] = batch.eigenvalues.part(position)
            vectors[client, before[client] : counts[client]] = batch.eigenvectors.part(position)
        return state.after(
            iteration=state.iteration + 1,
            generations=generations,
            counts=counts,
            residuals=residuals,
            eigenvalues=values,
            eigenvectors=vectors,
        )


def renewals(schedule: str, iteration: int) -> int:
    """How many times Hessians have been renewed by this iteration, counted from 0, itself included; at least once."""
    if schedule == "once":
        return 1
    if schedule.startswith("every"):
        return 1 + iteration // int(schedule.removeprefix("every"))
    number, at, gap, following = 1, 1, 1, 1
    while at <= iteration:
        number, at, gap, following = number + 1, at + following, following, gap + following
    return number


def rounds_between(schedule: str, generation: int) -> int:
    """For how many rounds Hessians that were renewed so many times are kept; 0 for ever."""
    if schedule == "once":
        return 0
    if schedule.startswith("every"):
        return int(schedule.removeprefix("every"))
    rounds, following = 1, 1
    for _ in range(1, min(generation, 60)):  # a number that came from elsewhere
        rounds, following = following, rounds + following
    return rounds


def eigenpairs(problem: Problem, w: FloatArray, shards: Shards, slots: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradients at w and the largest eigenpairs of each client's Hessian, in falling order, zeros beyond its rank.

    (clients, features), (clients, slots) and (clients, slots, features). A client with fewer rows than features has them
    from A A' for the root A of its Hessian A' A: an eigenvector u there is A'u here, up to its length. Its direction is the
    less certain the smaller the eigenvalue, which is also its weight: the Hessian they add up to is as exact as ever.
    """
    gradient = np.empty((shards.num_clients, w.size))
    values, vectors = np.zeros((shards.num_clients, slots)), np.zeros((shards.num_clients, slots, w.size))
    tall, wide = np.flatnonzero(~problem.wide(shards)), np.flatnonzero(problem.wide(shards))
    if tall.size:
        gradient[tall], packed = problem.gradient_and_hessian(w, shards.select(tall))
    if wide.size:
        gradient[wide], roots = gradients_and_roots(problem, w, shards.select(wide))

    def of_hessian(k: int) -> None:
        found, vectors[tall[k]] = leading_eigenpairs(symmetric_of(packed[k], w.size), slots)
        values[tall[k]] = np.maximum(found, 0.0)

    def of_rows(k: int) -> None:
        root = roots.part(k)
        found, combinations = leading_eigenpairs(root @ root.T, slots)
        directions = combinations @ root
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        values[wide[k], : len(found)] = np.maximum(found, 0.0)
        vectors[wide[k], : len(found)] = directions / np.where(lengths > 0, lengths, 1.0)

    parallel.map_clients(of_hessian, tall.size)
    parallel.map_clients(of_rows, wide.size)
    return gradient, values, vectors


def hessian_estimate(state: EigenState) -> FloatArray | LowRank:
    """sum_j p_j [sum_i (l_ji - r_j) v_ji v_ji' + r_j I] over the clients that sent anything yet."""
    weights = np.where(state.generations > 0, state.weights, 0.0)
    weights = weights / weights.sum()
    clients, slots, features = state.eigenvectors.shape
    excess = np.maximum(0.0, state.eigenvalues - state.residuals[:, None])
    scale = np.sqrt(weights[:, None] * excess)
    shift, known = float(weights @ state.residuals), scale > 0
    if known.sum() < features:
        return LowRank(state.eigenvectors[known] * scale[known][:, None], shift)
    total = shift * np.eye(features)
    step = max(1, _GRAM_BYTES // max(1, 8 * slots * features))
    for start in range(0, clients, step):
        stop = min(start + step, clients)
        rows = state.eigenvectors[start:stop].reshape(-1, features) * scale[start:stop].reshape(-1, 1)
        total += rows.T @ rows
    return total
