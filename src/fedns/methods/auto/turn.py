"""One round of the server of `auto`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedns.core.algorithm import Outcome
from fedns.core.clients import Handler
from fedns.core.cohort import Cohort
from fedns.core.messages.reducers import Reducer, mean
from fedns.core.types import FloatArray
from fedns.methods.auto.exchanges import ClientHalf, column_scales
from fedns.methods.auto.folding import answers, mean_of_coded, mean_of_squares, rounding_noise, sketched_gram
from fedns.methods.auto.messages import Move, RootRequest, ScalesRequest, Vector
from fedns.methods.auto.metric import Metric, Solver
from fedns.methods.auto.roots import ROOT_BITS, mean_of_roots
from fedns.methods.auto.rounding import FINE_BITS, MOST_EXPONENT, exponents_of, round_to_nearest
from fedns.methods.auto.rules import PAIRS, PRODUCT_BITS, SLOW, Rules, Seen
from fedns.methods.auto.searching import ARMIJO, BACK, FAR, fraction_back, searched
from fedns.methods.auto.state import AutoState, Source
from fedns.methods.lbfgs import inverse_times
from fedns.models.problem import Problem
from fedns.numerics.linalg import LowRank

STEP_BITS = 12  # of what the server sends: an error in a step, unlike one in a gradient, is no smaller for many clients
ENOUGH = 0.3  # of the decrement left by a direction: no further product
ASTRAY = 0.1  # a step that was shortened to less
SURPRISE = 100.0  # times the last round's promise
PRECISION = 1e-10  # of the objective: as far as a run is thought to go


class Turn:
    """Where the server is within a round."""

    def __init__(self, client: ClientHalf, rules: Rules, problem: Problem, cohort: Cohort, state: AutoState) -> None:
        self.client, self.problem, self.cohort, self.state = client, problem, cohort, state
        self.rules = rules = replace(rules, prefer="rounds") if state.gave_up else rules
        self.source, self.spent_before = Source(int(state.source)), cohort.session.meter.uplink_bytes
        self.gradient_bits = rules.bits_of_gradients(state.coefficients.size, int(state.clients), self.source)
        self.asks, self.why = rules.curvature(state)
        self.w, self.gradient, self.loss = state.coefficients, state.gradient, float(state.loss)
        self.exponents = state.exponents
        self.moves, self.changes = state.moves, state.changes
        self.metric = Metric(state.metric, float(state.metric_weight), float(state.metric_noise), state.metric_rows)
        self.missed, self.step_size, self.shortened = bool(state.missed), 1.0, 1.0
        self.looks, self.vectors, self.left = 0, 0, 0.0
        self.searched = 1.0  # what a search has left of the next step

    @property
    def scales(self) -> FloatArray:
        return np.asarray(np.ldexp(1.0, self.exponents))

    @property
    def value(self) -> float:
        return self.loss + self.problem.penalty_value(self.w)

    @property
    def diagonal(self) -> FloatArray:
        return self.problem.penalty_curvature(self.w)

    @property
    def full_gradient(self) -> FloatArray:
        return np.asarray(self.gradient + self.problem.penalty_gradient(self.w))

    def learn_scales(self) -> None:
        if self.exponents.size:
            return
        (squares,) = self.cohort.ask(column_scales, ScalesRequest(np.uint8(1))).fold(mean_of_squares("exponents"))
        exponents = exponents_of(squares).astype(np.int32)
        self.exponents = np.where(exponents == -MOST_EXPONENT, 0, exponents)

    def take_the_last_step(self) -> None:
        self._move(self.state.step, self.state.unit, self.asks, 0)

    def _move(self, step: Any, unit: Any, asks: bool, attempt: int, whole: bool = False) -> None:
        """Tell the clients where the run is now, and take in how their gradients and losses have changed."""
        first = not (self.state.exponents.size or attempt)
        # Clients begin at zero; a run that begins elsewhere, and whoever has missed a move, is told the whole point.
        whole = whole or self.missed or (first and bool(self.w.any()))
        request = Move(
            step=step.astype(np.int16),
            unit=np.float32(unit),
            # After a step that went too far the change is back from there, and a coarse one would leave its errors behind.
            bits=np.uint8(FINE_BITS if attempt else self.gradient_bits),
            attempt=np.uint8(attempt),
            detail=np.int32(self._hessian_bits() if self.source == Source.HESSIAN else self.state.rows),
            weight=np.float32(self.state.total_weight / self.state.clients),
            exponents=self.exponents.astype(np.int16) if first or whole else np.zeros(0, np.int16),
            point=self.w if whole else np.zeros(0),
        )
        handler, reducers = self._asked_for(asks)
        (count, present), loss, change, *found = self.cohort.ask(handler, request).fold(answers(), mean("loss"), *reducers)
        share = float(self.cohort.total_weights.sum() / self.state.total_weight)  # of those asked, among all
        self.gradient = self.gradient + share * change * self.scales
        self.loss += share * float(loss)
        self.missed = count < self.state.clients
        if asks:
            self._learn_curvature(found, share, present)

    def _spent(self) -> float:
        """Bytes that the mean client has sent, this round's included."""
        now = self.cohort.session.meter.uplink_bytes - self.spent_before
        return float(self.state.spent) + now / int(self.state.clients)

    def _cost_of_hessians(self) -> float:
        """Return what it would have sent as `rounds` does."""
        bits = self._hessian_bits(replace(self.rules, prefer="rounds"))
        return self.rules.cost_of_hessians(self.w.size, bits, self.problem.loss.curvature_is_constant)

    def _hessian_bits(self, rules: Rules | None = None) -> int:
        """Of a number of a Hessian, by what the penalty leaves of curvature in scaled columns."""
        penalised = self.diagonal > 0
        least = float(np.min((self.diagonal / self.scales**2)[penalised], initial=np.inf)) if penalised.any() else 0.0
        averaged = float(np.sqrt(self.w.size * np.sum(self.cohort.weights**2)))
        return (rules or self.rules).bits_of_hessians(self.problem.loss.curvature_bound, least, averaged)

    def _asked_for(self, asks: bool) -> tuple[Handler, tuple[Reducer, ...]]:
        """What the clients are asked for, and how their gradients and curvatures are added up."""
        client, gradient = self.client, mean_of_coded("gradient", "unit")
        if not asks or self.source in (Source.ROOT, Source.SOME):
            return client.change, (gradient,)
        if self.source == Source.EXACT:
            return client.change_exactly, (mean("gradient"), mean("packed_hessian"))
        if self.source == Source.HESSIAN:
            noise = rounding_noise("hessian_unit")
            return client.change_and_hessian, (gradient, mean_of_coded("packed_hessian", "hessian_unit"), noise)
        return client.change_and_sketch, (gradient, sketched_gram(self.scales))

    def _learn_curvature(self, found: list[Any], share: float, present: float) -> None:
        if self.source == Source.SKETCH:
            gram = found[0]
            if isinstance(gram, LowRank):
                self.metric = self.metric.averaged_with(LowRank(gram.rows / np.sqrt(present)))
            else:
                self.metric = self.metric.averaged_with(share * gram / (share * present))
        elif found:
            noise = share * (share * found[1]) if self.source == Source.HESSIAN else 0.0
            self.metric = self.metric.moved_by(share * found[0], noise, self.scales)

    def learn_roots(self) -> None:
        """The roots of all clients' Hessians, or those of some, averaged with what others have sent before."""
        if not self.asks or self.source not in (Source.ROOT, Source.SOME):
            return
        cohort = self.cohort
        if self.source == Source.SOME:
            cohort = cohort.part(self.rules.senders(cohort.weights, self.w.size, int(self.state.curvatures)))
        (gram,) = cohort.ask(self.client.root, RootRequest(np.uint8(ROOT_BITS))).fold(mean_of_roots(self.scales))
        fresh = Metric.of_roots(gram, self.diagonal, self.scales)
        averaged = self.metric.averaged_with(fresh.packed)._replace(noise=fresh.noise)
        self.metric = averaged if self.source == Source.SOME else fresh

    def step_back_if_needed(self) -> None:
        """Where the last step went uphill, back along it to a point that has enough decrease."""
        state = self.state
        if not len(state.last_point):
            return
        for attempt in range(1, 4):
            last, slope = float(state.last_value), float(state.slope)
            slack = 1e-14 * max(1.0, abs(last))
            enough = self.value <= last + ARMIJO * self.step_size * slope + slack
            if enough or self.step_size == 0.0 or -slope < 100 * slack:
                return
            step = self.w - state.last_point[0]
            slope_here = self.step_size * slope
            fraction = fraction_back(self.problem, self.cohort, self.w, step, self.loss, last + slack, slope_here)
            self.step_size *= fraction
            rounded, unit = round_to_nearest((fraction - 1.0) * step * self.scales, FINE_BITS)
            self.w = self.w + rounded * float(unit) / self.scales
            far = fraction < BACK[-1]  # what rounding would leave is then no fraction of the step any more
            if far:
                self.w = state.last_point[0] + fraction * step
            # Hessians from where a step went too far have hardly any curvature: with them the next one would go as far.
            self._move(rounded, unit, self.asks and self.source == Source.HESSIAN, attempt, whole=far)

    def remember_pair(self) -> None:
        state = self.state
        for last, last_gradient in zip(state.last_point, state.last_gradient, strict=True):
            self._keep_pair(self.w - last, self.full_gradient - last_gradient)

    def _keep_pair(self, s: FloatArray, y: FloatArray) -> bool:
        """Whether the pair has positive curvature, and so was kept."""
        kept = float(s @ y) > 1e-10 * float(np.linalg.norm(s) * np.linalg.norm(y))
        if kept:
            self.moves = np.concatenate([self.moves, s[None]])[-PAIRS:]
            self.changes = np.concatenate([self.changes, y[None]])[-PAIRS:]
        return kept

    def next_step(self) -> Outcome:
        state, gradient = self.state, self.full_gradient
        if self.asks and self.source not in (Source.SKETCH, Source.SOME):  # what older pairs know a Hessian knows better
            self.moves, self.changes = self.moves[:0], self.changes[:0]
        step = self._within_reason(self._direction(gradient))
        promised = -float(gradient @ step)
        far = not self.problem.loss.nonnegative and float(np.linalg.norm(step * self.scales)) > FAR
        if far or self.step_size == 0.0:  # the last step was taken back, all of it: from here this one may be no better
            step, self.searched, stuck = searched(self.problem, self.cohort, self.w, gradient, step, self.scales)
            if stuck:
                return Outcome(replace(state, coefficients=self.w), self._diagnostics(promised, 0.0), stuck=stuck)
        rounded, unit, taken = self._rounded(step)
        slope = float(gradient @ taken)
        contraction = -slope / float(state.decrement) if state.decrement > 0 else 1.0
        astray = min(self.step_size, self.shortened, self.searched) < ASTRAY
        to_go = float(np.log1p(max(-slope, 0.0) / max(PRECISION * abs(self.value), 1e-300)))
        seen = Seen(self.asks, contraction, astray, self.left, to_go, self._spent(), self._cost_of_hessians())
        source, rows, words = self.rules.next_source(state, seen)
        gives_up = self.rules.gives_up(state, seen)
        if gives_up.taken:
            quadratic = self.problem.loss.curvature_is_constant
            source, rows, words = Source.EXACT if quadratic else Source.HESSIAN, int(state.rows), gives_up.words
        changed = source != self.source
        if changed and source in (Source.HESSIAN, Source.EXACT):
            self.metric = Metric()
        slow = int(state.slow_rounds) + 1 if contraction > SLOW and not changed else 0
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
            metric=self.metric.packed,
            metric_rows=self.metric.rows.reshape(-1, self.w.size),  # also of none
            metric_weight=np.float64(self.metric.weight),
            metric_noise=np.float64(self.metric.noise),
            source=np.int32(source),
            rows=np.int32(rows),
            curvatures=np.int32(0 if changed else state.curvatures + int(self.asks)),
            age=np.int32(0 if self.asks else state.age + 1),
            decrement=np.float64(-slope),
            contraction=np.float64(contraction),
            slow_rounds=np.int32(slow),
            rounds=np.int32(state.rounds + 1),
            left=np.float64(self.left),
            spent=np.float64(seen.spent),
            gave_up=np.uint8(state.gave_up or gives_up.taken),
            missed=np.uint8(self.missed or self.source == Source.EXACT),
        )
        diagnostics = self._diagnostics(-slope if self.searched == 1.0 else promised, self.step_size)
        return Outcome(following, diagnostics, note=self._note(words))

    def _diagnostics(self, promised: float, step_size: float) -> dict[str, float]:
        """promised: by the slope of the whole direction, whatever part of it is taken."""
        return {
            "newton_decrement": float(np.sqrt(max(0.0, promised))),
            "step_size": step_size,
            "curvature": float(self.asks),
            "source": float(self.source),
        }

    def _note(self, change: str) -> str:
        """What was chosen in this round, and why."""
        asked = {
            Source.EXACT: "asked for the Hessians in full",
            Source.HESSIAN: f"asked for Hessians in {self._hessian_bits()} bits",
            Source.ROOT: f"asked for the roots of Hessians in {ROOT_BITS} bits",
            Source.SOME: f"asked some clients for the roots of their Hessians in {ROOT_BITS} bits",
            Source.SKETCH: f"sketched {int(self.state.rows)} rows at a client of mean weight",
            Source.LOCAL: "asked clients to solve",
        }[self.source]
        again = " again" if self.asks and self.state.curvatures else ""
        parts = [f"{asked}{again}, because {self.why}" if self.asks else f"asked for gradients alone: {self.why}"]
        if self.looks:
            parts.append("asked for the Hessian times the direction" + (", twice" if self.looks > 1 else ""))
        if self.shortened < 1:
            what = "the whole objective" if self.problem.loss.nonnegative else f"{SURPRISE:.0f} times the last one"
            parts.append(f"shortened the step, which promised more than {what}")
        if self.searched < 1:
            parts.append(f"asked for losses along the step, and took {self.searched:.2g} of it")
        if self.step_size < 1:
            parts.append(f"went back to {self.step_size:.2g} of the last step, which had gone too far")
        return "; ".join([*parts, *([change] if change else [])])

    def _direction(self, gradient: FloatArray) -> FloatArray:
        start = self._start()
        step: FloatArray = -inverse_times(self.moves, self.changes, gradient, start)
        for _ in range(self.rules.looks(self.state)):
            seen, product = self.product(step)
            if not self._keep_pair(seen, product):
                break
            self.looks += 1
            step = -inverse_times(self.moves, self.changes, gradient, start)
            if self.source == Source.LOCAL:  # where clients solve, what is left would cost an exchange to know
                break
            rest = gradient + product
            left, promised = rest @ inverse_times(self.moves, self.changes, rest, start), -(gradient @ step)
            self.left = max(self.left, float(left / promised) if promised > 0 else 1.0)
            if left < ENOUGH * promised:
                break
        if gradient @ step >= 0:  # rounding noise in the pairs: begin anew
            self.moves, self.changes = self.moves[:0], self.changes[:0]
            step = -self._start()(gradient)
        return step if gradient @ step < 0 else np.asarray(-gradient / self.scales**2)

    def _within_reason(self, step: FloatArray) -> FloatArray:
        """The step, shortened where it promises more than there is to gain.

        Losses that are never negative cannot fall by more than the objective F. The best step along a direction of slope -a
        gains a half of what its slope promises where F is quadratic, so that it is no longer than 2 F / a. Of other losses
        no bound is known: there a promise far above the last round's is taken for rounding noise.
        """
        promised, before = -float(self.full_gradient @ step), float(self.state.decrement)
        most = 2.0 * self.value if self.problem.loss.nonnegative else SURPRISE * before
        if 0.0 < most < promised:
            self.shortened = most / promised
        return np.asarray(step * self.shortened)

    def _rounded(self, step: FloatArray) -> tuple[Any, Any, FloatArray]:
        """The step in integers and their unit, and as it is taken; one that a whole point follows is taken as it is."""
        rounded, unit = round_to_nearest(step * self.scales, max(STEP_BITS, self.gradient_bits))
        if self.source == Source.EXACT:
            return np.zeros_like(rounded), np.float32(0.0), step
        gradient = self.full_gradient
        if gradient @ (rounded / self.scales) * float(unit) > 0.5 * (gradient @ step):
            rounded, unit = round_to_nearest(step * self.scales, FINE_BITS)
        return rounded, unit, rounded * float(unit) / self.scales

    def _start(self) -> Solver:
        """The metric's inverse, applied by the server or by the clients."""
        if self.source == Source.LOCAL or not self.metric.known:
            return self._solved_by_clients
        return self.metric.solver(self.scales, self.diagonal, sketched=self.source == Source.SKETCH)

    def _solved_by_clients(self, vector: FloatArray) -> FloatArray:
        request = self._vector(vector / self.scales, self.rules.direction_bits)
        solvers = self.cohort.part(self.rules.solvers(self.cohort.weights, len(self.moves)))
        (total,) = solvers.ask(self.client.solve, request).fold(mean_of_coded("solution", "unit"))
        return np.asarray(total / self.scales)

    def product(self, step: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The step as the clients hear it, and the Hessian where they are times it, penalty included."""
        request = self._vector(step * self.scales, PRODUCT_BITS)
        (total,) = self.cohort.ask(self.client.multiply, request).fold(mean_of_coded("product", "unit"))
        heard = np.asarray(request.vector * float(request.unit) / self.scales)
        return heard, np.asarray(total * self.scales + self.diagonal * heard)

    def _vector(self, vector: FloatArray, bits: int) -> Vector:
        rounded, unit = round_to_nearest(vector, STEP_BITS)
        self.vectors += 1
        return Vector(rounded, np.float32(unit), np.uint8(bits), np.uint8(self.vectors))
