"""One answer in the making: the owner's rules while its rows are read, and the budget before it leaves."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import smallest_batch
from fedns.core.clients import Clients, Handler
from fedns.core.messages import Message
from fedns.federation.rules.answers import sketch_of_rows
from fedns.federation.rules.refusal import Refusal
from fedns.federation.site.budget import Line
from fedns.federation.site.explain import level_of, spending_sentence
from fedns.federation.site.guard import Asked, Guard, disclosure_of, hash_of
from fedns.federation.site.local_path import steps_of
from fedns.models.problem import Problem
from fedns.numerics.backend import POINTS, Batch, Directions, Keys, LocalSteps, Points, SketchPlan, Vectors, triangle_size
from fedns.numerics.backends.around import Pass
from fedns.numerics.backends.guarded import GuardedBackend
from fedns.numerics.formulas import Formulas

FloatArray = NDArray[np.float64]
log = logging.getLogger("fedns.site")
_TOO_FAR = 100.0  # times the loss where a search began


@dataclass
class Answering:
    """One answer in the making."""

    guard: Guard
    asked: Asked
    passes: int = 0
    problem: Problem = field(default_factory=Problem)  # of the run; a handler may put in a loss with other curvatures
    started: float = field(default_factory=time.monotonic)

    def watch(self, problem: Problem) -> Problem:
        """Return the problem as a handler gets it: its passes are watched, and there is no other way to the rows."""
        self.problem = problem
        return _copied(problem, backend=WatchedPasses(problem.backend, self))

    def before_pass(self, loss: Formulas, points: FloatArray, memory: int) -> None:
        """R4, R5 and R6, before the rows are read."""
        self.count_pass(memory)
        for w in np.atleast_2d(points):
            self.at_point(w)
            self.guard.concentration.check_point(self.with_loss(loss), w)
            self.check_observed(loss, w)

    def count_pass(self, memory: int) -> None:
        """R6."""
        own = self.guard.permissions
        self.passes += 1
        own.check_passes(self.passes, time.monotonic() - self.started)
        own.check_bytes(memory)

    def check_observed(self, loss: Formulas, w: FloatArray) -> None:
        """R4 where a handler has another loss: an expected curvature may be even where gradients are about a few rows."""
        for other in self.as_observed(loss)[1:]:
            self.guard.concentration.check_point(other, w)

    def as_observed(self, loss: Formulas) -> list[Problem]:
        """Return the problem with the loss of a pass, and where that is not the run's, the same with the run's."""
        asked = self.with_loss(loss)
        return [asked] if asked is self.problem else [asked, self.problem]

    def with_loss(self, loss: Formulas) -> Problem:
        """Return the problem, not watched, with the loss of a pass."""
        same = loss is self.problem.loss or loss == self.problem.loss
        return self.problem if same else _copied(self.problem, loss=loss)

    def at_point(self, w: FloatArray) -> None:
        """R5, where only the site knows which coefficients a request is about."""
        if self.asked.relative:
            points = self.asked.points
            points += [one for one in map(hash_of, np.atleast_2d(w)) if one not in points]
            self.guard.permissions.check_points(self.guard.budget.spent().points_with(points))

    def before_tables(self, counts: NDArray[np.int64]) -> None:
        """R5, with the rows in every cell of each table."""
        self.asked.tables += [table.ravel().tolist() for table in counts if table.any()]
        self.guard.check_tables(self.guard.budget.spent(), self.asked.tables)

    def reply(self, handler: Handler, problem: Problem, clients: Clients, request: Any) -> Message:
        """The handler's reply. Of several candidates those at which R4 refuses are left as they came, or called too bad."""
        watched, spec = self.watch(problem), request.specs().get("coefficients")
        axis = spec.dimensions[0] if spec and len(spec.dimensions) > 1 else ""
        if not axis or len(request.coefficients) < 2 or self.guard.permissions.needs_no_measure:
            return handler(watched, clients, request)
        answers: list[Message | Refusal] = []
        for row in range(len(request.coefficients)):
            try:
                answers.append(handler(watched, clients, _only(request, axis, row)))
            except Refusal as refusal:
                if refusal.rule != "R4":
                    raise
                answers.append(refusal)
        given = [answer for answer in answers if isinstance(answer, Message)]
        if not given:
            raise answers[0]  # type: ignore[misc]
        return _put_together(request, answers, given)

    def spend(self, reply: Message | None, answer: bytes) -> None:
        """R5, checked once more, as another process may have answered meanwhile; on the disk once the budget is settled."""
        budget, asked = self.guard.budget, self.asked
        numbers, sketched = self._disclosed(reply)
        digest = hashlib.sha256(answer).hexdigest()[:32] if numbers or sketched else ""
        with budget.held() as spent:
            if reply is not None and digest not in spent.answers:
                self.guard.check_budget(spent, asked, numbers, sketched)
            left = [table for table in asked.tables if reply is not None and table not in spent.tables]
            line = Line(asked.points, digest, numbers, sketched, asked.run.hex(), asked.round, time.time(), left)
            before = level_of(self.guard.spending(spent))
            budget.spend(line, self.guard.reserved_ahead)
            after = self.guard.spending(spent)
        if level_of(after) > before:
            log.warning(
                "R5: %.0f %% of what may leave about these rows has left: %s",
                100 * level_of(after),
                spending_sentence(after),
            )

    def settle(self) -> None:
        """Wait for the disk, where the answer may not leave before."""
        self.guard.budget.settle()

    def _disclosed(self, reply: Message | None) -> tuple[int, int]:
        """How many numbers of a reply tell of rows, and how many more are of a sketch that only the site can take apart."""
        if reply is None:
            return 0, 0
        disclosure = disclosure_of(type(reply))
        numbers = sum(int(np.size(getattr(reply, name))) for name in disclosure.names)
        secret = () if self.guard.permissions.job_seed else disclosure.sketches
        sketched = sum(np.size(getattr(reply, name)) for name in secret)
        return numbers - sketched, sketched


@dataclass(frozen=True)
class WatchedPasses(GuardedBackend):
    """The passes as a site's handlers reach them. One that has no rule of its own here is looked at as all are."""

    answering: Answering

    def around(self, one: Pass) -> Any:
        """R4, R5 and R6 at the coefficients of a pass."""
        points = one.arguments_of(POINTS)
        if not points:
            self.answering.count_pass(0)
        for w in points.values():
            self.answering.before_pass(one.arguments["loss"], w, 8 * triangle_size(w.shape[-1]))
        return one.made_by(self.inside)

    def losses_along(self, loss: Formulas, batch: Batch, w: Points, direction: Directions, steps: FloatArray) -> FloatArray:
        """Where a search has gone too far, and a few rows would decide, the site says so by a loss too large to be chosen.

        A search tries longer steps than it will take; to refuse them all would refuse most honest runs.
        """
        guard = self.answering.guard
        self.answering.before_pass(loss, w, 8 * steps.size)
        losses = self.inside.losses_along(loss, batch, w, direction, steps)
        if guard.permissions.needs_no_measure or not np.any(direction):
            return losses
        permitted = guard.concentration.permitted_along(self.answering.with_loss(loss), w, direction, steps)
        return np.where(permitted, losses, _TOO_FAR * (1.0 + np.abs(losses[:, :1])))

    def gradient(self, loss: Formulas, batch: Batch, w: Points) -> Vectors:
        if self._is_known(loss, w):
            return self.inside.gradient(loss, batch, w)
        return self._looked_at(loss, batch, w)[1]

    def value_and_gradient(self, loss: Formulas, batch: Batch, w: Points) -> tuple[FloatArray, Vectors]:
        if self._is_known(loss, w):
            return self.inside.value_and_gradient(loss, batch, w)
        return self._looked_at(loss, batch, w)

    def _is_known(self, loss: Formulas, w: FloatArray) -> bool:
        """R5 and R6 before a pass, and whether it is known that R4 permits it."""
        self.answering.count_pass(8 * w.shape[-1])
        self.answering.at_point(w)
        self.answering.check_observed(loss, w)
        return bool(self.answering.guard.concentration.passes_at_a_glance(self.answering.with_loss(loss), w))

    def _looked_at(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The pass that watches a run sees every new point first, and finds the sums for R4 on its way."""
        rule = self.answering.guard.concentration
        value, gradient, sums = self.inside.value_gradient_and_curvatures(loss, batch, w, rule.table.norms)
        rule.judge(self.answering.with_loss(loss), w, sums[0])
        return value, gradient

    def hessian_times(self, loss: Formulas, batch: Batch, w: Points, vectors: Directions) -> Vectors:
        self.answering.before_pass(loss, w, 8 * vectors[0].size)
        return self.inside.hessian_times(loss, batch, w, vectors)

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: Points, plan: SketchPlan, keys: Keys
    ) -> tuple[Vectors, Vectors]:
        self.answering.guard.check_sketch(plan, w.shape[-1])
        self.answering.before_pass(loss, w, 8 * w.shape[-1] * int(plan.sizes.max()))
        return self.inside.gradient_and_sketch(loss, batch, w, plan, keys)

    def sketched_rows(self, batch: Batch, plan: SketchPlan, keys: Keys) -> Vectors:
        raise sketch_of_rows()

    def local_steps(self, loss: Formulas, batch: Batch, w: Points, local: LocalSteps, keys: Keys) -> Vectors:
        """R2 and R4 at every step: each is a gradient of its own, over the rows of a mini-batch."""
        answering, rule = self.answering, self.answering.guard.concentration
        for rows, steps in zip((batch.stops - batch.starts).tolist(), local.steps.tolist(), strict=True):
            answering.guard.check_batches(smallest_batch(rows, local.batch_size, steps), w.shape[-1])
        answering.before_pass(loss, w, 8 * w.shape[-1])
        if not rule.permissions.needs_no_measure:
            for problem in answering.as_observed(loss):
                for point, sums in steps_of(problem, w, batch, local, keys, rule.table.norms, answering.count_pass):
                    rule.judge_some(point, sums)
        return self.inside.local_steps(loss, batch, w, local, keys)

    def before_rows_are_read(self) -> None:
        self.answering.count_pass(0)

    def before_counts_leave(self, counts: NDArray[np.int64]) -> None:
        self.answering.before_tables(counts)


def _copied(problem: Problem, **changes: Any) -> Problem:
    """A copy with changes; the problem was checked when it was made, and requests are many."""
    copy = object.__new__(Problem)
    own = {name: value for name, value in vars(problem).items() if name != "passes"}  # of another loss or backend
    copy.__dict__.update(own, **changes)
    return copy


def _only(request: Message, axis: str, row: int) -> Message:
    """The request about one of its candidates."""
    specs = request.specs()
    values = {name: getattr(request, name) for name in specs}
    own = [name for name in specs if specs[name].dimensions[:1] == (axis,)]
    return type(request)(**values | {name: values[name][row : row + 1] for name in own})


def _put_together(request: Any, answers: Sequence[Message | Refusal], given: Sequence[Message]) -> Message:
    """Answers about single candidates as one; for a refused one what the coordinator sent itself, or a loss too large."""
    columns = {}
    for name, spec in given[0].specs().items():
        largest = _TOO_FAR * (1.0 + max(float(np.abs(getattr(answer, name)).max()) for answer in given))
        parts = []
        for row, answer in enumerate(answers):
            echo = spec.dimensions[-1] == "features"
            instead = request.coefficients[None, row : row + 1] if echo else np.full((1, 1), largest)
            parts.append(getattr(answer, name) if isinstance(answer, Message) else instead)
        columns[name] = np.concatenate(parts, axis=1)
    return type(given[0])(**columns)
