"""One round of the server of `auto`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedns.core.algorithm import Outcome
from fedns.core.cohort import Cohort
from fedns.core.messages.reducers import mean
from fedns.core.types import FloatArray
from fedns.methods.auto import thresholds
from fedns.methods.auto.exchanges import ClientHalf, column_scales
from fedns.methods.auto.folding import answers, mean_of_small_ints, mean_of_squares
from fedns.methods.auto.messages import Move, RootRequest, ScalesRequest, VectorRequest
from fedns.methods.auto.metric import Metric, Solver
from fedns.methods.auto.roots import mean_of_roots
from fedns.methods.auto.rounding import MOST_EXPONENT, exponents_of, round_to_nearest
from fedns.methods.auto.rules import Rules, Seen
from fedns.methods.auto.searching import fraction_back, searched
from fedns.methods.auto.sources import SOURCES, Following, gradients_alone, hessians_for
from fedns.methods.auto.state import AutoState
from fedns.methods.lbfgs import inverse_times
from fedns.models.problem import Problem


class Turn:
    """Where the server is within a round: the state, field by field as the round changes it, and what it has seen."""

    def __init__(self, client: ClientHalf, rules: Rules, problem: Problem, cohort: Cohort, state: AutoState) -> None:
        self.client, self.problem, self.cohort, self.before, self.state = client, problem, cohort, state, state
        self.rules = rules = replace(rules, prefer="rounds") if state.gave_up else rules
        self.source, self.spent_before = SOURCES[int(state.source)], cohort.session.meter.uplink_bytes
        self.gradient_bits = self.source.gradient_bits(rules, state.coefficients.size, int(state.clients))
        self.asks, self.why = self.source.asks(rules, state)
        self.step_size = self.shortened = self.searched = 1.0  # what is left of the last step, and of the next one
        self.looks, self.vectors, self.left = 0, 0, 0.0

    @property
    def w(self) -> FloatArray:
        return np.asarray(self.state.coefficients)

    @property
    def metric(self) -> Metric:
        return Metric.of(self.state)

    @property
    def scales(self) -> FloatArray:
        return np.asarray(np.ldexp(1.0, self.state.exponents))

    @property
    def value(self) -> float:
        return float(self.state.loss) + self.problem.penalty_value(self.w)

    @property
    def diagonal(self) -> FloatArray:
        return self.problem.penalty_curvature(self.w)

    @property
    def full_gradient(self) -> FloatArray:
        return np.asarray(self.state.gradient + self.problem.penalty_gradient(self.w))

    def learn_scales(self) -> None:
        if self.state.exponents.size:
            return
        (squares,) = self.cohort.ask(column_scales, ScalesRequest(np.uint8(1))).fold(mean_of_squares("exponents"))
        exponents = exponents_of(squares)
        self.state = self.state.after(exponents=np.where(exponents == -MOST_EXPONENT, 0, exponents))

    def take_the_last_step(self) -> None:
        self._move(self.state.step, self.state.unit, self.asks, 0)

    def _move(self, step: Any, unit: Any, asks: bool, attempt: int, whole: bool = False) -> None:
        """Tell the clients where the run is now, and take in how their gradients and losses have changed."""
        state, source = self.state, self.source
        first = not (state.rounds or attempt)
        # Clients begin at zero; a run that begins elsewhere, and whoever has missed a move, is told the whole point.
        whole = whole or bool(state.missed) or (first and bool(self.w.any()))
        request = Move(
            step=step.astype(np.int16),
            unit=np.float32(unit),
            bits=np.uint8(thresholds.FINE_BITS if attempt else self.gradient_bits),
            attempt=np.uint8(attempt),
            detail=np.int32(source.detail(state, self._hessian_bits())),
            weight=np.float32(state.total_weight / state.clients),
            exponents=state.exponents.astype(np.int16) if first or whole else np.zeros(0, np.int16),
            point=self.w if whole else np.zeros(0),
        )
        handler, reducers = source.with_a_move(self.client, self.scales) if asks else gradients_alone(self.client)
        (count, present), loss, change, *found = self.cohort.ask(handler, request).fold(answers(), mean("loss"), *reducers)
        share = state.share(self.cohort)
        self.state = state.after(
            gradient=state.gradient + share * change * self.scales,
            loss=float(state.loss) + share * float(loss),
            missed=count < state.clients,
        )
        if asks:
            metric = source.learned(self.metric, found, share, present, self.scales)
            self.state = metric.kept_in(self.state)

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

    def learn_roots(self) -> None:
        """The roots of all clients' Hessians, or those of some, averaged with what others have sent before."""
        cohort = self.source.senders(self.cohort, self.rules, self.state) if self.asks else None
        if cohort is None:
            return
        (gram,) = cohort.ask(self.client.root, RootRequest(np.uint8(thresholds.ROOT_BITS))).fold(mean_of_roots(self.scales))
        fresh = Metric.of_roots(gram, self.diagonal, self.scales)
        if not self.source.replaces_pairs:
            fresh = self.metric.averaged_with(fresh.triangle)._replace(noise=fresh.noise)
        self.state = fresh.kept_in(self.state)

    def step_back_if_needed(self) -> None:
        """Where the last step went uphill, back along it to a point that has enough decrease."""
        state = self.state
        if not len(state.last_point):
            return
        for attempt in range(1, thresholds.TRIES_BACK + 1):
            last, slope = float(state.last_value), float(state.slope)
            slack = thresholds.ROUNDING * max(1.0, abs(last))
            enough = self.value <= last + thresholds.ARMIJO * self.step_size * slope + slack
            if enough or self.step_size == 0.0 or -slope < thresholds.UNRESOLVED * slack:
                return
            step = self.w - state.last_point[0]
            slope_here = self.step_size * slope
            loss = float(self.state.loss)
            fraction = fraction_back(self.problem, self.cohort, self.w, step, loss, last + slack, slope_here)
            self.step_size *= fraction
            rounded, unit = round_to_nearest((fraction - 1.0) * step * self.scales, thresholds.FINE_BITS)
            far = fraction < thresholds.BACK[-1]  # what rounding would leave is then no fraction of the step any more
            w = state.last_point[0] + fraction * step if far else self.w + rounded * float(unit) / self.scales
            self.state = self.state.after(coefficients=w)
            # Hessians from where a step went too far have hardly any curvature: with them the next one would go as far.
            self._move(rounded, unit, self.asks and self.source.again_further_back, attempt, whole=far)

    def remember_pair(self) -> None:
        state = self.state
        for last, last_gradient in zip(state.last_point, state.last_gradient, strict=True):
            self._keep_pair(self.w - last, self.full_gradient - last_gradient)

    def _keep_pair(self, s: FloatArray, y: FloatArray) -> bool:
        """Whether the pair has positive curvature, and so was kept."""
        kept = float(s @ y) > thresholds.SMALLEST_COSINE * float(np.linalg.norm(s) * np.linalg.norm(y))
        if kept:
            pairs = ((self.state.moves, s), (self.state.changes, y))
            moves, changes = (np.concatenate([before, new[None]])[-thresholds.PAIRS :] for before, new in pairs)
            self.state = self.state.after(moves=moves, changes=changes)
        return kept

    def _forget_pairs(self) -> None:
        self.state = self.state.after(moves=self.state.moves[:0], changes=self.state.changes[:0])

    def next_step(self) -> Outcome:
        gradient = self.full_gradient
        if self.asks and self.source.replaces_pairs:
            self._forget_pairs()
        step = self._within_reason(self._direction(gradient))
        promised = -float(gradient @ step)
        far = not self.problem.loss.nonnegative and float(np.linalg.norm(step * self.scales)) > thresholds.FAR
        if far or self.step_size == 0.0:  # the last step was taken back, all of it: from here this one may be no better
            step, self.searched, stuck = searched(self.problem, self.cohort, self.w, gradient, step, self.scales)
            if stuck:
                return Outcome(self.before.after(coefficients=self.w), self._diagnostics(promised, 0.0), stuck=stuck)
        rounded, unit, taken = self._rounded(step)
        state, slope = self.state, float(gradient @ taken)
        contraction = -slope / float(state.decrement) if state.decrement > 0 else 1.0
        astray = min(self.step_size, self.shortened, self.searched) < thresholds.ASTRAY
        to_go = float(np.log1p(max(-slope, 0.0) / max(thresholds.PRECISION * abs(self.value), 1e-300)))
        seen = Seen(self.asks, contraction, astray, self.left, to_go, self._spent(), self._cost_of_hessians())
        next_ = self.source.following(self.rules, state, seen)
        gives_up = self.rules.gives_up(state, seen)
        if gives_up.taken:
            next_ = Following(hessians_for(self.problem.loss.curvature_is_constant), int(state.rows), gives_up.words)
        changed = next_.source != self.source
        metric = Metric() if changed and next_.source.sums_changes else self.metric
        self.state = metric.kept_in(state).after(
            coefficients=self.w + taken,
            step=rounded,
            unit=unit,
            last_point=self.w[None],
            last_gradient=gradient[None],
            last_value=self.value,
            slope=slope,
            source=next_.source.number,
            rows=next_.rows,
            curvatures=0 if changed else state.curvatures + int(self.asks),
            age=0 if self.asks else state.age + 1,
            decrement=-slope,
            contraction=contraction,
            slow_rounds=state.slow_rounds + 1 if contraction > thresholds.SLOW and not changed else 0,
            rounds=state.rounds + 1,
            left=self.left,
            spent=seen.spent,
            gave_up=state.gave_up or gives_up.taken,
            missed=state.missed or self.source.never_changes,  # the step was no one that could be sent in integers
        )
        diagnostics = self._diagnostics(-slope if self.searched == 1.0 else promised, self.step_size)
        return Outcome(self.state, diagnostics, note=self._note(next_.words))

    def _diagnostics(self, promised: float, step_size: float) -> dict[str, float]:
        """promised: by the slope of the whole direction, whatever part of it is taken."""
        return {
            "newton_decrement": float(np.sqrt(max(0.0, promised))),
            "step_size": step_size,
            "curvature": float(self.asks),
            "source": float(self.source.number),
        }

    def _note(self, change: str) -> str:
        """What was chosen in this round, and why."""
        asked = self.source.asked.format(bits=self._hessian_bits(), rows=int(self.before.rows))
        asked += " again" if self.before.curvatures else ""
        parts = [f"{asked}, because {self.why}" if self.asks else f"asked for gradients alone: {self.why}"]
        if self.looks:
            parts.append("asked for the Hessian times the direction" + (", twice" if self.looks > 1 else ""))
        if self.shortened < 1:
            what = (
                "the whole objective" if self.problem.loss.nonnegative else f"{thresholds.SURPRISE:.0f} times the last one"
            )
            parts.append(f"shortened the step, which promised more than {what}")
        if self.searched < 1:
            parts.append(f"asked for losses along the step, and took {self.searched:.2g} of it")
        if self.step_size < 1:
            parts.append(f"went back to {self.step_size:.2g} of the last step, which had gone too far")
        return "; ".join([*parts, *([change] if change else [])])

    def _direction(self, gradient: FloatArray) -> FloatArray:
        start = self._start()
        step = -self._inverse_times(gradient, start)
        for _ in range(self.source.looks(self.rules, self.state)):
            seen, product = self.product(step)
            if not self._keep_pair(seen, product):
                break
            self.looks += 1
            step = -self._inverse_times(gradient, start)
            if self.source.applied_by_clients:  # what is left would cost an exchange to know
                break
            rest = gradient + product
            left, promised = rest @ self._inverse_times(rest, start), -(gradient @ step)
            self.left = max(self.left, float(left / promised) if promised > 0 else 1.0)
            if left < thresholds.ENOUGH * promised:
                break
        if gradient @ step >= 0:  # rounding noise in the pairs: begin anew
            self._forget_pairs()
            step = -self._start()(gradient)
        return step if gradient @ step < 0 else np.asarray(-gradient / self.scales**2)

    def _within_reason(self, step: FloatArray) -> FloatArray:
        """The step, shortened where it promises more than there is to gain.

        Losses that are never negative cannot fall by more than the objective F. The best step along a direction of slope -a
        gains a half of what its slope promises where F is quadratic, so that it is no longer than 2 F / a. Of other losses
        no bound is known: there a promise far above the last round's is taken for rounding noise.
        """
        promised, before = -float(self.full_gradient @ step), float(self.state.decrement)
        most = 2.0 * self.value if self.problem.loss.nonnegative else thresholds.SURPRISE * before
        if 0.0 < most < promised:
            self.shortened = most / promised
        return np.asarray(step * self.shortened)

    def _rounded(self, step: FloatArray) -> tuple[Any, Any, FloatArray]:
        """The step in integers and their unit, and as it is taken; one that a whole point follows is taken as it is."""
        rounded, unit = round_to_nearest(step * self.scales, max(thresholds.STEP_BITS, self.gradient_bits))
        if self.source.never_changes:
            return np.zeros_like(rounded), np.float32(0.0), step
        gradient = self.full_gradient
        if gradient @ (rounded / self.scales) * float(unit) > 0.5 * (gradient @ step):
            rounded, unit = round_to_nearest(step * self.scales, thresholds.FINE_BITS)
        return rounded, unit, rounded * float(unit) / self.scales

    def _start(self) -> Solver:
        """The metric's inverse, applied by the server or by the clients."""
        metric = self.metric
        if self.source.applied_by_clients or not metric.known:
            return self._solved_by_clients
        return metric.solver(self.scales, self.diagonal, self.source.definite)

    def _inverse_times(self, vector: FloatArray, start: Solver) -> FloatArray:
        """The metric's inverse with the pairs, times a vector."""
        return inverse_times(self.state.moves, self.state.changes, vector, start)

    def _solved_by_clients(self, vector: FloatArray) -> FloatArray:
        request = self._vector(vector / self.scales, self.rules.bits_of_directions)
        solvers = self.cohort.part(self.rules.solvers(self.cohort.weights, len(self.state.moves)))
        (total,) = solvers.ask(self.client.solve, request).fold(mean_of_small_ints("solution"))
        return np.asarray(total / self.scales)

    def product(self, step: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The step as the clients hear it, and the Hessian where they are times it, penalty included."""
        request = self._vector(step * self.scales, thresholds.PRODUCT_BITS)
        (total,) = self.cohort.ask(self.client.multiply, request).fold(mean_of_small_ints("product"))
        heard = np.asarray(request.vector * float(request.unit) / self.scales)
        return heard, np.asarray(total * self.scales + self.diagonal * heard)

    def _vector(self, vector: FloatArray, bits: int) -> VectorRequest:
        rounded, unit = round_to_nearest(vector, thresholds.STEP_BITS)
        self.vectors += 1
        return VectorRequest(rounded, np.float32(unit), np.uint8(bits), np.uint8(self.vectors))
