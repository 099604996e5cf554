"""auto: the pooled answer for the fewest bytes, or in the fewest rounds, with nothing to choose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.linalg

from fedns.algorithms.auto.exchanges import (
    MOST_EXPONENT,
    BackRequest,
    Change,
    ClientHalf,
    FloatArray,
    Move,
    ScalesRequest,
    Solve,
    column_scales,
    eighths,
    exponents_of,
    losses_back,
    products_of,
    round_to_nearest,
)
from fedns.algorithms.lbfgs import inverse_times
from fedns.core.algorithm import Algorithm, Outcome
from fedns.core.clients import Handler
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError
from fedns.core.messages import Message, Payload, wire
from fedns.core.reducers import mean
from fedns.numerics.linalg import pack_symmetric, packed_size, unpack_symmetric, weighted_gram
from fedns.problems.problem import Problem

HESSIAN, LOCAL, SKETCH = 1, 2, 3  # where the metric comes from
FEW_SITES = 16  # up to here every site's own Newton direction, above sketches of all
FEW_COLUMNS = {"bytes": 24, "balanced": 60}  # up to here the Hessian itself
SKETCHED_ROWS = 120  # of all sites together, in one sketch
FEWEST_ROWS, MOST_ROWS = 3, 16  # of one site, at first
BITS = {"bytes": (6, 5, 10, 8), "balanced": (8, 6, 12, 9), "rounds": (14, 8, 14, 12)}  # gradient, sketch, Hessian, direction
ARMIJO = 0.1
STEP_BITS, FINE_BITS = 8, 14
# A decrement that falls by less than this factor in a round: a third curvature is asked for, another one, another source.
MEAGRE, STALLED, SLOW = 0.3, 0.6, 0.5
MEMORY = 30  # pairs of moves and gradient changes
FORGETTING = 0.5  # the weight of the last sketch beside a new one
BACK = 0.5 ** np.arange(1.0, 12.0)  # fractions of a step that went too far


class AutoState(Message):
    """Where the run is, and what the server believes of the clients."""

    coefficients: Payload = wire("features", dtype="float64")
    exponents: Payload = wire("scales", dtype="int32")  # of the columns; none before the first round
    step: Payload = wire("features", dtype="int32")  # the move that the clients have not heard of yet
    unit: Payload = wire(dtype="float64")
    gradient: Payload = wire("features", dtype="float64")  # of the mean loss, as the clients have told it
    loss: Payload = wire(dtype="float64")  # the mean loss, up to a constant
    last_point: Payload = wire("known", "features", dtype="float64")  # no row before the first round
    last_gradient: Payload = wire("known", "features", dtype="float64")  # penalty included
    last_value: Payload = wire(dtype="float64")
    slope: Payload = wire(dtype="float64")  # along the last step
    moves: Payload = wire("pairs", "features", dtype="float64")
    changes: Payload = wire("pairs", "features", dtype="float64")
    metric: Payload = wire("entries", dtype="float64")  # packed; none where the clients' own Hessians serve
    metric_weight: Payload = wire(dtype="float64")
    metric_noise: Payload = wire(dtype="float64")  # curvature below this, in scaled columns, may be rounding
    source: Payload = wire(dtype="int32")  # HESSIAN, LOCAL or SKETCH
    rows: Payload = wire(dtype="int32")  # of the next sketch, at each client
    curvatures: Payload = wire(dtype="int32")  # sketches or Hessians so far
    age: Payload = wire(dtype="int32")  # rounds since the last of them
    decrement: Payload = wire(dtype="float64")  # -slope of the last round
    contraction: Payload = wire(dtype="float64")  # the last two decrements' ratio
    slow_rounds: Payload = wire(dtype="int32")
    missed: Payload = wire(dtype="uint8")  # 1 where somebody has not heard the last move
    clients: Payload = wire(dtype="int32")  # all of them, and their weight: who is not asked has not changed
    total_weight: Payload = wire(dtype="float64")


@dataclass(frozen=True)
class Auto(Algorithm):
    """w <- w - B g, where everything is sent in a few bits and B is learnt as cheaply as the run allows.

    Clients send the change of their gradient since they last sent it, in `gradient_bits` bits a number rounded at random,
    with the change of their loss: a rounding error is a fraction of the change, so it shrinks with the steps. The unit step
    is taken; the next message's losses confirm it, and only a step that failed costs an exchange of its own. B is the
    inverse of a metric, corrected by the server's BFGS pairs, which are applied anew to every new metric. The metric is

    - the Hessian, as rounded changes, where there are few columns or prefer="rounds";
    - the mean of the clients' own inverse Hessians, applied by them to the one vector that BFGS asks for, with few clients;
    - else the mean of sketches in `sketch_bits` bits, asked for again when a round has brought too little.

    - prefer: what to save: "bytes", "rounds", or "balanced" between them.
    - gradient_bits: of each number of a gradient; as `prefer` has it unless given, and so are the next three.
    - sketch_bits: of each number of a sketch.
    - hessian_bits: of each number of a Hessian.
    - direction_bits: of each number of a direction.
    """

    prefer: Literal["bytes", "balanced", "rounds"] = "bytes"
    gradient_bits: int | None = None  # of each number; None: as `prefer` has it
    sketch_bits: int | None = None
    hessian_bits: int | None = None
    direction_bits: int | None = None

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "chooses everything itself: rounded changes of gradients, the cheapest curvature that serves"
    paper: ClassVar[str] = "this library, docs/auto.md"
    uplink: ClassVar[str] = "bits M / 32 + 3, curvature when needed"
    theory: ClassVar[str] = "log 1/δ; superlinear with Hessians"
    heterogeneous: ClassVar[str] = "-"
    asks_for_all: ClassVar[bool] = False
    draws_random_numbers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.prefer not in ("bytes", "balanced", "rounds"):
            raise ConfigError(f"prefer must be bytes, balanced or rounds, got {self.prefer!r}")
        for name in ("gradient_bits", "sketch_bits", "hessian_bits", "direction_bits"):
            if getattr(self, name) is not None and not 2 <= getattr(self, name) <= 14:
                raise ConfigError(f"{name} must be from 2 to 14, got {getattr(self, name)}")

    @property
    def client(self) -> ClientHalf:
        given = (self.gradient_bits, self.sketch_bits, self.hessian_bits, self.direction_bits)
        return ClientHalf(*(own or usual for own, usual in zip(given, BITS[self.prefer], strict=True)))

    def handlers(self) -> tuple[Handler, ...]:
        return self.client.handlers()

    def init(self, problem: Problem, cohort: Cohort) -> AutoState:
        features = cohort.num_features
        none, nothing = np.zeros((0, features)), np.zeros(features)
        few = FEW_COLUMNS.get(self.prefer, features)
        source = HESSIAN if features <= few else LOCAL if cohort.num_clients <= FEW_SITES else SKETCH
        return AutoState(
            coefficients=cohort.start,
            exponents=np.zeros(0, np.int32),
            step=np.zeros(features, np.int32),
            unit=np.float64(0.0),
            gradient=nothing,
            loss=np.float64(0.0),
            last_point=none,
            last_gradient=none,
            last_value=np.float64(0.0),
            slope=np.float64(0.0),
            moves=none,
            changes=none,
            metric=np.zeros(0),
            metric_weight=np.float64(0.0),
            metric_noise=np.float64(0.0),
            source=np.int32(source),
            rows=np.int32(np.clip(-(-SKETCHED_ROWS // cohort.num_clients), FEWEST_ROWS, MOST_ROWS)),
            curvatures=np.int32(0),
            age=np.int32(0),
            decrement=np.float64(0.0),
            contraction=np.float64(1.0),
            slow_rounds=np.int32(0),
            missed=np.uint8(0),
            clients=np.int32(cohort.num_clients),
            total_weight=np.float64(cohort.total_weights.sum()),
        )

    def round(self, problem: Problem, state: AutoState, cohort: Cohort) -> Outcome:
        turn = _Turn(self.client, problem, cohort, state)
        turn.learn_scales()
        curvature = self._curvature_wanted(state)
        turn.move(state.step, state.unit, curvature, 0)
        turn.step_back_if_needed()
        turn.remember_pair()
        return turn.next_step(curvature)

    def _curvature_wanted(self, state: AutoState) -> bool:
        """Whether to ask for a sketch or a Hessian: at first, and when the last rounds have brought too little."""
        if state.source == LOCAL:
            return False
        if self.prefer == "rounds" or state.curvatures < 2:
            return True
        return bool(state.age >= 1 and state.contraction > (MEAGRE if state.curvatures < 3 else STALLED))


class _Turn:
    """One round of the server."""

    def __init__(self, client: ClientHalf, problem: Problem, cohort: Cohort, state: AutoState) -> None:
        self.client, self.problem, self.cohort, self.state = client, problem, cohort, state
        self.w, self.gradient, self.loss = state.coefficients, state.gradient, float(state.loss)
        self.exponents = state.exponents
        self.moves, self.changes = state.moves, state.changes
        self.metric, self.metric_weight = state.metric, float(state.metric_weight)
        self.metric_noise = float(state.metric_noise)
        self.diagonal = problem.penalty_diagonal(self.w.size)
        self.missed, self.step_size = bool(state.missed), 1.0

    @property
    def scales(self) -> FloatArray:
        return np.asarray(np.ldexp(1.0, self.exponents))

    @property
    def value(self) -> float:
        return self.loss + self.problem.penalty_value(self.w)

    @property
    def full_gradient(self) -> FloatArray:
        return np.asarray(self.gradient + self.diagonal * self.w)

    def learn_scales(self) -> None:
        if self.exponents.size:
            return
        squares = np.zeros(self.w.size)
        replies = self.cohort.ask(column_scales, ScalesRequest(np.uint8(1)))
        for positions, batch in replies:
            squares += replies.weights[positions] @ np.ldexp(1.0, 2 * batch.exponents.astype(np.int64))
        exponents = exponents_of(squares).astype(np.int32)
        self.exponents = np.where(exponents == -MOST_EXPONENT, 0, exponents)

    def move(self, step: Any, unit: Any, curvature: bool, attempt: int) -> None:
        """Tell the clients where the run is now, and take in how their gradients and losses have changed."""
        first = not (self.state.exponents.size or attempt)
        # Clients begin at zero; a run that begins elsewhere, and whoever has missed a move, is told the whole point.
        whole = self.missed or (first and bool(self.w.any()))
        request = Move(
            step=step.astype(np.int16),
            unit=np.float32(unit),
            attempt=np.uint8(attempt),
            rows=np.int32(self.state.rows),
            exponents=self.exponents.astype(np.int16) if first or whole else np.zeros(0, np.int16),
            point=self.w if whole else np.zeros(0),
        )
        handler = self.client.change
        if curvature:
            handler = self.client.change_and_hessian if self.state.source == HESSIAN else self.client.change_and_sketch
        change, loss, answered, noise, present = np.zeros(self.w.size), 0.0, 0, 0.0, 0.0
        sketch: list[tuple[FloatArray, FloatArray]] = []
        hessian = np.zeros(packed_size(self.w.size)) if curvature and self.state.source == HESSIAN else np.zeros(0)
        replies = self.cohort.ask(handler, request)
        for positions, batch in replies:
            weights = self.cohort.total_weights[positions] / float(self.state.total_weight)
            for row in range(weights.size):  # one after the other: the sum must not depend on how clients are batched
                change += weights[row] * float(batch.unit[row]) * batch.gradient[row]
                loss += weights[row] * float(batch.loss[row])
                present += weights[row] * float(batch.answered[row])
                if hessian.size:
                    hessian += weights[row] * float(batch.hessian_unit[row]) * batch.packed_hessian[row]
                    noise += (weights[row] * float(batch.hessian_unit[row])) ** 2
            answered += int(batch.answered.sum())
            if curvature and not hessian.size:
                sketch.append(_dequantised(batch, weights))
        self.gradient = self.gradient + change * self.scales
        self.loss += loss
        self.missed = answered < self.state.clients
        if hessian.size:
            self.metric = (self.metric if self.metric.size else 0.0) + hessian * products_of(self.scales)
            # A symmetric matrix of rounding errors of variance up to unit^2 / 4 has eigenvalues up to unit sqrt(M).
            self.metric_weight, self.metric_noise = 1.0, np.sqrt(noise * self.w.size)
        elif curvature:
            self._average(sketch, present)

    def _average(self, sketch: list[tuple[FloatArray, FloatArray]], present: float) -> None:
        rows, weights = (np.concatenate(parts) for parts in zip(*sketch, strict=True))
        gram = pack_symmetric(weighted_gram(np.ascontiguousarray(rows * self.scales), weights))
        kept = FORGETTING * self.metric if self.metric.size else 0.0
        self.metric, self.metric_weight = kept + gram / present, FORGETTING * self.metric_weight + 1.0

    def step_back_if_needed(self) -> None:
        """Where the last step went uphill, back along it to a point that has enough decrease."""
        state = self.state
        if not len(state.last_point):
            return
        for attempt in range(1, 4):
            last, slope = float(state.last_value), float(state.slope)
            slack = 1e-14 * max(1.0, abs(last))
            if self.value <= last + ARMIJO * self.step_size * slope + slack or -slope < 100 * slack:
                return
            step = self.w - state.last_point[0]
            (losses,) = self.cohort.ask(losses_back, BackRequest(1.0 - BACK)).fold(mean("losses"))
            penalties = [self.problem.penalty_value(self.w - (1 - t) * step) for t in BACK]
            values = self.loss + losses + np.array(penalties)
            passing = values <= last + ARMIJO * BACK * self.step_size * slope + slack
            fraction = float(BACK[int(np.argmax(passing))] if passing.any() else BACK[-1])
            self.step_size *= fraction
            rounded, unit = round_to_nearest((fraction - 1.0) * step * self.scales, FINE_BITS)
            self.w = self.w + rounded * float(unit) / self.scales
            self.move(rounded, unit, False, attempt)

    def remember_pair(self) -> None:
        state = self.state
        for last, last_gradient in zip(state.last_point, state.last_gradient, strict=True):
            s, y = self.w - last, self.full_gradient - last_gradient
            if float(s @ y) > 1e-10 * float(np.linalg.norm(s) * np.linalg.norm(y)):
                self.moves = np.concatenate([self.moves, s[None]])[-MEMORY:]
                self.changes = np.concatenate([self.changes, y[None]])[-MEMORY:]

    def next_step(self, curvature: bool) -> Outcome:
        state, gradient = self.state, self.full_gradient
        if curvature and state.source == HESSIAN:  # what older pairs know it knows better
            self.moves, self.changes = self.moves[:0], self.changes[:0]
        step = -inverse_times(self.moves, self.changes, gradient, self._start())
        if gradient @ step >= 0:  # rounding noise in the pairs: begin anew
            self.moves, self.changes = self.moves[:0], self.changes[:0]
            step = -self._start()(gradient)
        if gradient @ step >= 0:
            step = -gradient / self.scales**2
        rounded, unit = round_to_nearest(step * self.scales, max(STEP_BITS, self.client.gradient_bits))
        if gradient @ (rounded / self.scales) * float(unit) > 0.5 * (gradient @ step):
            rounded, unit = round_to_nearest(step * self.scales, FINE_BITS)
        taken = rounded * float(unit) / self.scales
        slope = float(gradient @ taken)
        contraction = -slope / float(state.decrement) if state.decrement > 0 else 1.0
        slow = int(state.slow_rounds) + 1 if contraction > SLOW else 0
        source, rows = int(state.source), int(state.rows)
        if source == LOCAL and slow >= 3:
            source, slow = SKETCH, 0
        if source == SKETCH and curvature and state.curvatures >= 3 and contraction > SLOW:
            rows *= 2
        if source == SKETCH and rows * self.client.sketch_bits > (self.w.size + 1) / 2 * self.client.hessian_bits:
            source, self.metric, self.metric_weight = HESSIAN, np.zeros(0), 0.0
        following = replace(
            state,
            coefficients=self.w + taken,
            exponents=self.exponents,
            step=rounded.astype(np.int32),
            unit=np.float64(unit),
            gradient=self.gradient,
            loss=np.float64(self.loss),
            last_point=self.w[None],
            last_gradient=gradient[None],
            last_value=np.float64(self.value),
            slope=np.float64(slope),
            moves=self.moves,
            changes=self.changes,
            metric=self.metric,
            metric_weight=np.float64(self.metric_weight),
            metric_noise=np.float64(self.metric_noise),
            source=np.int32(source),
            rows=np.int32(rows),
            curvatures=np.int32(state.curvatures + int(curvature)),
            age=np.int32(0 if curvature else state.age + 1),
            decrement=np.float64(-slope),
            contraction=np.float64(contraction),
            slow_rounds=np.int32(slow),
            missed=np.uint8(self.missed),
        )
        diagnostics = {
            "newton_decrement": float(np.sqrt(max(0.0, -slope))),
            "step_size": self.step_size,
            "curvature": float(curvature),
            "source": float(state.source),
        }
        return Outcome(following, diagnostics)

    def _start(self) -> Any:
        """The metric's inverse, applied by the server or by the clients."""
        if self.state.source == LOCAL or not self.metric.size:
            return self._solved_by_clients
        return self._solved_here()

    def _solved_by_clients(self, vector: FloatArray) -> FloatArray:
        rounded, unit = round_to_nearest(vector / self.scales, STEP_BITS)
        replies = self.cohort.ask(self.client.solve, Solve(rounded, np.float32(unit)))
        total = np.zeros(vector.size)
        for positions, batch in replies:
            for weight, own, solution in zip(replies.weights[positions], batch.unit, batch.solution, strict=True):
                total += weight * float(own) * solution
        return total / self.scales

    def _solved_here(self) -> Any:
        scales, size = self.scales, self.w.size
        hessian = unpack_symmetric(self.metric / self.metric_weight, size) / np.outer(scales, scales)
        hessian[np.diag_indices(size)] += self.diagonal / scales**2
        if self.state.source == HESSIAN:  # no direction is believed to have less curvature than rounding may have left
            values, vectors = np.linalg.eigh(hessian)
            values = np.maximum(values, min(self.metric_noise, values[-1]))
            return lambda vector: vectors @ ((vectors.T @ (vector / scales)) / values) / scales
        factor = scipy.linalg.cho_factor(hessian, check_finite=False)
        return lambda vector: scipy.linalg.cho_solve(factor, vector / scales, check_finite=False) / scales


def _dequantised(batch: Any, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    rows = batch.sketched_root.values * eighths(batch.row_units.values)[:, None]
    return rows, np.repeat(weights, batch.sketched_root.counts)


__all__ = ["Auto", "AutoState", "Change"]
