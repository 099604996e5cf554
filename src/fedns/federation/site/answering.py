"""One answer in the making: the owner's rules while its rows are read, and the budget before it leaves."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import smallest_batch
from fedns.core.clients import Clients, Handler
from fedns.core.messages import Message
from fedns.core.shards import Shards
from fedns.federation.site.budget import Line
from fedns.federation.site.explain import level_of, what_left
from fedns.federation.site.guard import Guard, Question, check_points, hash_of, told_by
from fedns.federation.site.local_path import steps_of
from fedns.federation.site.permissions import Refusal
from fedns.models.problem import CodedBlock, Problem
from fedns.numerics.backend import Keys, LocalSteps, SketchPlan
from fedns.numerics.linalg import packed_size

FloatArray = NDArray[np.float64]
P = TypeVar("P", bound=Problem)
log = logging.getLogger("fedns.site")
_TOO_FAR = 100.0  # times the loss where a search began


@dataclass
class Answering:
    """One answer in the making."""

    guard: Guard
    question: Question
    passes: int = 0
    observed: Any = None  # the loss of the run, which a handler may replace by one with other curvatures
    started: float = field(default_factory=time.monotonic)

    def watch(self, problem: Problem) -> WatchedProblem:
        self.observed = problem.loss
        return _copied(WatchedProblem, problem, answering=self)

    def before_pass(self, problem: Problem, points: FloatArray, memory: int) -> None:
        """R4, R5 and R6, before the rows are read."""
        self.count_pass(memory)
        for w in np.atleast_2d(points):
            self.at_point(w)
            self.guard.concentration.check_point(problem, w)
            self.check_observed(problem, w)

    def count_pass(self, memory: int) -> None:
        """R6."""
        own = self.guard.permissions
        self.passes += 1
        if self.passes > own.passes or time.monotonic() - self.started > own.answer_seconds:
            raise Refusal("R6", f"the answer takes more than {own.passes} passes or {own.answer_seconds:g} seconds")
        self.guard.check_memory(memory)

    def check_observed(self, problem: Problem, w: FloatArray) -> None:
        """R4 where a handler has another loss: an expected curvature may be even where gradients are about a few rows."""
        for other in self.as_observed(problem)[1:]:
            self.guard.concentration.check_point(other, w)

    def as_observed(self, problem: Problem) -> list[Problem]:
        """The problem, and where a handler has another loss than the run, the same with the run's."""
        same = problem.loss is self.observed or problem.loss == self.observed
        return [problem] if same else [problem, _copied(Problem, problem, loss=self.observed)]

    def at_point(self, w: FloatArray) -> None:
        """R5, where only the site knows which coefficients a request is about."""
        if self.question.relative:
            asked = self.question.points
            asked += [one for one in map(hash_of, np.atleast_2d(w)) if one not in asked]
            check_points(self.guard.permissions, self.guard.budget.spent(), asked)

    def before_tables(self, counts: NDArray[np.int64]) -> None:
        """R5, with the rows in every cell of each table."""
        self.question.tables += [table.ravel().tolist() for table in counts if table.any()]
        self.guard.check_tables(self.guard.budget.spent(), self.question)

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
        budget, asked = self.guard.budget, self.question
        numbers, sketched = self._told(reply)
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
                "R5: %.0f %% of what may leave about these rows has left: %s", 100 * level_of(after), what_left(after)
            )

    def settle(self) -> None:
        """Wait for the disk, where the answer may not leave before."""
        self.guard.budget.settle()

    def _told(self, reply: Message | None) -> tuple[int, int]:
        """How many numbers of a reply tell of rows, and how many more are of a sketch that only the site can take apart."""
        if reply is None:
            return 0, 0
        told = told_by(type(reply))
        numbers = sum(int(np.size(getattr(reply, name))) for name in told.names)
        sketched = 0 if self.guard.permissions.job_seed else sum(np.size(getattr(reply, name)) for name in told.sketches)
        return numbers - sketched, sketched


@dataclass(frozen=True)
class WatchedProblem(Problem):
    """The problem as a site's handlers see it: no pass over the rows goes unseen."""

    answering: Any = None

    def losses_along(self, w: FloatArray, direction: FloatArray, steps: FloatArray, shards: Shards) -> FloatArray:
        """Where a search has gone too far, and a few rows would decide, the site says so by a loss too large to be chosen.

        A search tries longer steps than it will take; to refuse them all would refuse most honest runs.
        """
        guard = self.answering.guard
        self.answering.before_pass(self, w, 8 * steps.size)
        losses = super().losses_along(w, direction, steps, shards)
        if guard.permissions.needs_no_measure or not np.any(direction):
            return losses
        permitted = guard.concentration.permitted_along(self, w, direction, steps)
        return np.where(permitted, losses, _TOO_FAR * (1.0 + np.abs(losses[:, :1])))

    def gradient(self, w: FloatArray, shards: Shards) -> FloatArray:
        if self._is_known(w):
            return super().gradient(w, shards)
        return self._looked_at(w, shards)[1]

    def value_and_gradient(self, w: FloatArray, shards: Shards) -> tuple[FloatArray, FloatArray]:
        return super().value_and_gradient(w, shards) if self._is_known(w) else self._looked_at(w, shards)

    def _is_known(self, w: FloatArray) -> bool:
        """R5 and R6 before a pass, and whether it is known that R4 permits it."""
        self.answering.count_pass(8 * w.shape[-1])
        self.answering.at_point(w)
        self.answering.check_observed(self, w)
        return bool(self.answering.guard.concentration.passes_at_a_glance(self, w))

    def _looked_at(self, w: FloatArray, shards: Shards) -> tuple[FloatArray, FloatArray]:
        """The pass that watches a run sees every new point first, and finds the sums for R4 on its way."""
        rule = self.answering.guard.concentration
        value, gradient, sums = self.passes.value_gradient_and_curvatures(self.loss, shards, w, rule.table.norms)
        rule.judge(self, w, sums[0])
        return value, gradient

    def hessian_times(self, w: FloatArray, vectors: FloatArray, shards: Shards) -> FloatArray:
        self.answering.before_pass(self, w, 8 * vectors[0].size)
        return super().hessian_times(w, vectors, shards)

    def local_steps(self, w: FloatArray, shards: Shards, local: LocalSteps, keys: Keys) -> FloatArray:
        """R2 and R4 at every step: each is a gradient of its own, over the rows of a mini-batch."""
        answering, rule = self.answering, self.answering.guard.concentration
        for rows, steps in zip(shards.sizes.tolist(), local.steps.tolist(), strict=True):
            answering.guard.check_batches(smallest_batch(rows, local.batch_size, steps), w.shape[-1])
        answering.before_pass(self, w, 8 * w.shape[-1])
        if not rule.permissions.needs_no_measure:
            for problem in answering.as_observed(self):
                for point, sums in steps_of(problem, w, shards, local, keys, rule.table.norms, answering.count_pass):
                    rule.judge_some(point, sums)
        return super().local_steps(w, shards, local, keys)

    def gradient_and_hessian(self, w: FloatArray, shards: Shards) -> tuple[FloatArray, FloatArray]:
        self.answering.before_pass(self, w, 8 * packed_size(w.shape[-1]))
        return super().gradient_and_hessian(w, shards)

    def coded_blocks(self, w: FloatArray, shards: Shards) -> Iterator[CodedBlock]:
        self.answering.before_pass(self, w, 8 * packed_size(w.shape[-1]))
        yield from super().coded_blocks(w, shards)

    def before_rows_are_read(self) -> None:
        self.answering.count_pass(0)

    def before_counts_leave(self, counts: NDArray[np.int64]) -> None:
        self.answering.before_tables(counts)

    def gradient_and_sketch(
        self, w: FloatArray, shards: Shards, plan: SketchPlan, keys: Keys
    ) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
        self.answering.guard.check_sketch(plan, w.shape[-1])
        self.answering.before_pass(self, w, 8 * w.shape[-1] * int(plan.sizes.max()))
        return super().gradient_and_sketch(w, shards, plan, keys)


def _copied(kind: type[P], problem: Problem, **changes: Any) -> P:
    """A copy with changes; the problem was checked when it was made, and requests are many."""
    copy = object.__new__(kind)
    kept = {name: value for name, value in vars(problem).items() if name != "passes"}  # which may belong to another loss
    copy.__dict__.update(kept, **changes)
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
