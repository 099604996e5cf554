"""The owner's rules, applied at the site: before a handler runs, while it reads rows, and before its answer leaves.

R1 who may ask for what, R2 rows, R3 sketches, R4 concentration, R5 budget, R6 work, R7 refusals. A refusal names the rule
and never a value of the data; what the owner has to know stands in the site's own log.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Algorithm
from fedns.core.clients import Handler, messages_of
from fedns.core.messages import Discloses, Message
from fedns.core.shards import Shards
from fedns.federation.permissions import Permissions, Refusal, small_group
from fedns.federation.site.budget import HOUR, MINUTE, Amounts, Budget, Spent, fingerprint
from fedns.federation.site.concentration import ConcentrationRule
from fedns.federation.site.explain import Need, Spending, spending
from fedns.federation.site.levels import blanked, has_small_group, named_columns, rare_levels
from fedns.models.evaluation import evaluate_locally
from fedns.models.problem import Problem
from fedns.numerics.backend import ROW_SAMPLING, SJLT, SketchPlan
from fedns.numerics.linalg import triangle_size
from fedns.runs.builder import algorithm_of
from fedns.runs.over_sites import Handshake, SiteRun, StudyRun
from fedns.sketches import Sketch

FloatArray = NDArray[np.float64]
CURVATURE = {Discloses.HESSIAN, Discloses.SCORES, Discloses.SKETCH, Discloses.ROWS}
HARMLESS = {Discloses.NOTHING, Discloses.SCHEMA, Discloses.COUNT}
_VECTORS_IN_A_REQUEST = 64
_RESERVED_POINTS, _RESERVED_PARTS = 16, 32
log = logging.getLogger("fedns.site")
F = TypeVar("F", bound=Callable[..., Any])


def _once(about_a_class: F) -> F:
    """Asked of a class for the first time, it is found; afterwards it is known. Its type stays, other than with `cache`."""
    return cast("F", cache(about_a_class))


@dataclass
class Question:
    """A request as the budget sees it."""

    run: bytes
    round: int
    points: list[str]  # hashes of the coefficients that it is about
    relative: bool = False  # it moves from where the site is: its points are known when the rows are read
    tables: list[list[int]] = field(default_factory=list)  # of scores that would leave, with every cell


def check_description(permissions: Permissions, length: int) -> None:
    """R6, before the description of a run is looked at."""
    if length > permissions.largest_job_bytes:
        raise Refusal("R6", f"the description of a run may have {permissions.largest_job_bytes} bytes, not {length}")


def admit_description(own: Permissions, spec: SiteRun) -> None:
    """R1 and R5 on a new run, before its rows are looked at."""
    if own.digests and not spec.is_pinned(own.digests):
        if isinstance(spec, StudyRun) and spec.study_digest in own.digests:
            line = f'digests = ["{spec.pins[1]}"]'
            raise Refusal("R1", f"its owner has agreed to this study and to no method: to agree to this one, write {line}")
        raise Refusal("R1", "its owner has agreed to certain runs only, and this is none of them")
    if spec.wire not in own.wire:
        raise Refusal("R1", f"it sends numbers as {' or '.join(own.wire)}, not as {spec.wire}")
    if spec.rounds > own.rounds:
        raise Refusal("R5", f"it permits {own.rounds} rounds, the run asks for {spec.rounds}")


def admit_opening(own: Permissions, spent: Spent, opening: str, runs: Iterable[Path]) -> None:
    """R5 and R6 on a new run. opening: its hash, a point if it is refused. runs: what is kept of those that were opened."""
    since = time.time() - HOUR
    if sum(path.stat().st_mtime > since for path in runs) + spent.refused_since(since) >= own.runs_per_hour:
        raise Refusal("R6", f"it takes part in {own.runs_per_hour} runs an hour, those that it refused included")
    check_points(own, spent, [opening])


def check_points(own: Permissions, spent: Spent, points: list[str]) -> None:
    """R5: how many coefficients are asked about."""
    if spent.points_with(points) > own.points:
        raise Refusal("R5", f"its owner permits answers about {own.points} distinct coefficients, over all runs")


def admit_coding(own: Permissions, rows: int, columns: int) -> None:
    """R2 and R6 on rows that a study wants coded into so many columns, before they are."""
    needed = columns + own.rows_beyond_coefficients
    if not rows >= needed:
        raise Refusal("R2", f"a gradient of {columns} coefficients needs at least {needed} rows, and it has fewer")
    if 8 * rows * columns > own.largest_table_bytes:
        raise Refusal("R6", f"its rows, coded, would take more than {own.largest_table_bytes} bytes")


class Guard:
    """The rules over one table of rows. One object serves a process; what must outlive it is in the budget."""

    def __init__(self, permissions: Permissions, folder: Path, shards: Shards, mark: str = "") -> None:
        """mark: of the table that the rows were coded from, whose budget they share."""
        self.permissions = own = permissions
        self.fingerprint = mark or fingerprint(shards)
        self.budget = Budget(folder, self.fingerprint)
        categories = () if mark else named_columns(shards, own.categories)  # a study has counted the levels of its own
        self._rare = rare_levels(shards, own.smallest_level, categories)
        if self._rare.columns.size:
            names = [shards.columns[c] if shards.columns else str(c) for c in self._rare.columns.tolist()]
            log.warning("R2: rare levels in columns %s: %s", ", ".join(names), own.rare_levels)
        self.shards = blanked(shards, self._rare) if own.rare_levels == "blank" else shards
        self._num_rows, self._num_columns = shards.num_samples, shards.num_columns
        self.concentration = ConcentrationRule(own, self.shards)

    @property
    def blanked_columns(self) -> int:
        """In how many columns rare levels were replaced; the run is told, since its answer is then not the pooled one."""
        return int(self._rare.columns.size) if self.permissions.rare_levels == "blank" else 0

    @cached_property
    def reserved_ahead(self) -> Amounts | None:
        """How much of the budget to reserve on the disk at a time: at most so much is lost where the power fails."""
        own, part = self.permissions, self._num_rows * self._num_columns / _RESERVED_PARTS
        if not math.isfinite(own.largest_released_fraction):
            return None
        sketched = min(own.largest_sketched_fraction, _RESERVED_PARTS)
        return Amounts(_RESERVED_POINTS, int(part * own.largest_released_fraction), int(part * sketched))

    def admit_run(self, handlers: Mapping[str, Handler], problem: Problem) -> None:
        """R2 and R6 on a new run over these rows."""
        own, groups = self.permissions, problem.loss.groups(self.shards.targets)
        self._check_rows(own.smallest_rows, "taking part")
        if self._rare.outcome or (groups is not None and has_small_group(groups, own.smallest_level)):
            raise small_group(f"fewer than {own.smallest_level} rows have one of the outcomes")
        if self._rare.columns.size and own.rare_levels == "refuse":
            raise small_group(f"fewer than {own.smallest_level} rows have one of the levels of a column")
        for owner in (getattr(handler, "__self__", None) for handler in handlers.values()):
            self.admit_settings(owner)
            if isinstance(owner, Algorithm):
                self.check_batches(owner.fewest_rows(self._num_rows), problem.num_features(self._num_columns))

    def rounds_left(self, spec: SiteRun, handlers: Mapping[str, Handler], problem: Problem) -> float:
        """R5: for how many rounds of a run what is left of the budget is enough."""
        left = self.spending(self.budget.spent())
        if isinstance(spec, Handshake):  # it asks for no numbers that the budget counts
            return Need(0, 0).rounds_within(left)
        width = problem.num_features(self._num_columns)
        told = {name: told_by(messages_of(handler)[1]) for name, handler in handlers.items()}
        asked = {name: one.least(width) for name, one in told.items()}
        method = {handler.__name__ for handler in algorithm_of(spec).handlers()}
        looks = [asked[name] for name, one in told.items() if one.curvature and name not in method]
        evaluation = asked.get(evaluate_locally.__name__, 0)
        need = Need.of(asked, algorithm_of(spec), evaluation, min(looks, default=0) if isinstance(spec, StudyRun) else 0)
        return need.rounds_within(left)

    def spending(self, spent: Spent) -> tuple[Spending, ...]:
        """Return the share that has left of what may."""
        return spending(self.permissions, spent, self._num_rows * self._num_columns)

    def admit_settings(self, owner: object) -> None:
        """R6 on every whole number that the coordinator has set, however deep it lies."""
        self._check_counts(owner, "a setting of the method")
        for part in (getattr(owner, one.name) for one in fields(owner)) if is_dataclass(owner) else ():
            self.admit_settings(part)

    def admit_length(self, length: int, width: int) -> None:
        """R6: a request holds a few vectors of coefficients."""
        most = self.permissions.largest_job_bytes + _VECTORS_IN_A_REQUEST * 8 * width
        if length > most:
            raise Refusal("R6", f"a request may have {most} bytes, not {length}")

    def admit_request(
        self, handler: Handler, request: Message, *, run: bytes, round: int, spec: SiteRun, problem: Problem
    ) -> Question:
        """R1, R2, R5 and R6 before anything is computed."""
        own, name = self.permissions, handler.__name__
        if own.handlers is not None and name not in own.handlers:
            raise Refusal("R1", f"its owner does not permit '{name}', only {', '.join(own.handlers)}")
        if round > min(spec.rounds, own.rounds):
            raise Refusal("R5", f"round {round} is beyond the {min(spec.rounds, own.rounds)} rounds of the run")
        width = problem.num_features(self._num_columns)
        told = told_by(messages_of(handler)[1])
        if told.names:
            self._check_counts(request, "a number in the request")
            self._check_told(told, width)
        relative = is_relative(type(request))
        question = Question(run, round, points_of(request) if told.names and not relative else [], relative)
        self.check_budget(self.budget.spent(), question, told.least(width))
        return question

    def _check_told(self, told: Told, width: int) -> None:
        own = self.permissions
        if told.curvature:
            self._check_rows(max(own.smallest_rows, own.rows_per_coefficient * width), f"a Hessian of {width} coefficients")
        else:
            self._check_rows(width + own.rows_beyond_coefficients, f"a gradient of {width} coefficients")
        if told.rows and not own.row_sampling:
            raise Refusal("R3", "rows of the data do not leave it")
        if told.histogram and not own.score_tables:
            raise Refusal("R5", "its owner permits no table of scores to leave")
        if told.hazard and not own.baseline_hazards:
            raise Refusal("R5", "its owner permits no baseline hazard to leave")

    def _check_rows(self, needed: float, what: str) -> None:
        if not self._num_rows >= needed:
            raise Refusal("R2", f"{what} needs at least {needed:g} rows, and it has fewer")

    def _check_counts(self, owner: object, what: str) -> None:
        for value in (getattr(owner, name) for name in counts_of(type(owner))):
            whole = isinstance(value, int | np.integer) or (isinstance(value, np.ndarray) and value.dtype.kind in "iu")
            if whole and np.any(np.abs(np.asarray(value, dtype=object)) > self.permissions.largest_count):
                raise Refusal("R6", f"{what} is larger than {self.permissions.largest_count}")

    def check_batches(self, fewest: int, width: int) -> None:
        """R2 on the steps of a method that takes some of the rows at a time: an answer may be about one of them alone."""
        own = self.permissions
        needed = max(own.smallest_rows, width + own.rows_beyond_coefficients)
        if fewest < min(needed, self._num_rows):  # whether all rows are enough is told by another rule
            raise Refusal(
                "R2",
                f"a mini-batch for {width} coefficients needs at least {needed} rows, the last one of an epoch too: "
                "take a larger batch_size, or local_steps that end before it",
            )

    def check_memory(self, needed: int) -> None:
        """R6, in bytes, before they are taken."""
        most = self.permissions.largest_bytes
        if needed > most:
            raise Refusal("R6", f"the answer takes more than {most} bytes")

    def check_budget(self, spent: Spent, question: Question, numbers: int, sketched: int = 0) -> None:
        own = self.permissions
        if question.points:
            check_points(self.permissions, spent, question.points)
        if question.tables:
            self.check_tables(spent, question)
        self._check_numbers(spent.numbers + numbers, own.largest_released_fraction)
        self._check_numbers(spent.sketched + sketched, own.largest_sketched_fraction)
        if spent.asked.get((question.run.hex(), question.round), 0) >= own.requests_per_round:
            raise Refusal("R6", f"it answers {own.requests_per_round} requests in a round")
        if spent.asked_since(time.time() - MINUTE) >= own.requests_per_minute:
            raise Refusal("R6", f"it answers {own.requests_per_minute} requests a minute")

    def check_tables(self, spent: Spent, question: Question) -> None:
        """R5: how many tables of scores leave, and that no two of them differ by a few rows, which would show those."""
        own = self.permissions
        for table in question.tables:
            if table in spent.tables:
                continue
            if len(spent.tables) >= own.score_tables:
                raise Refusal("R5", f"its owner permits {own.score_tables} tables of scores to leave, over all runs")
            if any(_moved(table, other) < own.smallest_rows for other in spent.tables if len(other) == len(table)):
                raise Refusal(
                    "R5", f"fewer than {own.smallest_rows} of its rows tell this table of scores from an earlier one"
                )

    def check_sketch(self, plan: SketchPlan, width: int) -> None:
        """R3, before the sketch is taken."""
        own, rows, size = self.permissions, self._num_rows, int(plan.sizes.max())
        if plan.kind == ROW_SAMPLING and not own.row_sampling:
            raise Refusal("R3", "a sketch of sampled rows is rows of the data, which do not leave it")
        if size > own.largest_sketch_fraction * rows:
            raise Refusal("R3", f"a sketch of {size} rows is more than {own.largest_sketch_fraction:g} of its rows")
        if plan.kind == SJLT and not rows >= own.rows_per_bucket * size:
            raise Refusal("R3", f"an sjlt sketch of {size} rows needs {own.rows_per_bucket:g} times as many rows")
        if own.job_seed:
            self._check_numbers(self.budget.spent().numbers + size * width, own.largest_released_fraction)
        else:
            self._check_numbers(self.budget.spent().sketched + size * width, own.largest_sketched_fraction)

    def _check_numbers(self, numbers: int, most: float) -> None:
        if numbers > most * self._num_rows * self._num_columns:
            raise Refusal("R5", f"its owner permits {most:g} times the numbers of its table to leave, over all runs")


def _moved(table: list[int], other: list[int]) -> int:
    """At least so many rows are in another cell of one table than of the other."""
    change = np.subtract(table, other)
    return int(max(change[change > 0].sum(), -change[change < 0].sum()))


class Told(NamedTuple):
    """What a kind of reply tells of rows."""

    names: tuple[str, ...]  # of the fields that tell something
    sketches: tuple[str, ...]  # of those among them that are sketches
    axes: tuple[tuple[str, ...], ...]
    curvature: bool
    rows: bool
    histogram: bool
    hazard: bool

    def least(self, width: int) -> int:
        """How many such numbers it has at least."""
        known = {"features": width, "entries": triangle_size(width)}
        return sum(math.prod(known.get(axis, 0) for axis in axes) for axes in self.axes)


@_once
def told_by(reply: type[Message]) -> Told:
    specs = {name: spec for name, spec in reply.specs().items() if spec.discloses not in HARMLESS}
    kinds = {spec.discloses for spec in specs.values()}
    sketches = tuple(name for name, spec in specs.items() if spec.discloses == Discloses.SKETCH)
    single = (one in kinds for one in (Discloses.ROWS, Discloses.HISTOGRAM, Discloses.HAZARD))
    return Told(tuple(specs), sketches, tuple(spec.dimensions for spec in specs.values()), bool(kinds & CURVATURE), *single)


@_once
def counts_of(owner: type[object]) -> tuple[str, ...]:
    """Fields of settings or of a request that may hold whole numbers which say how much work there is."""
    if issubclass(owner, Message):  # coded numbers are a vector in small integers, no counts
        return tuple(name for name, spec in owner.specs().items() if spec.kind.startswith(("int", "uint")))
    names = tuple(one.name for one in fields(owner)) if is_dataclass(owner) else ()
    return tuple(name for name in names if not (issubclass(owner, Sketch) and name == "size"))  # R3's, by the rows


@_once
def is_relative(request: type[Message]) -> bool:
    """Whether a request says where to go from the point that the site remembers, and not where to be."""
    return any(spec.kind == "coded" and spec.dimensions == ("features",) for spec in request.specs().values())


def points_of(request: Message) -> list[str]:
    """A hash for each vector of coefficients in a request, with whatever else of their length goes with them."""
    arrays = [array for name in _wide_fields(type(request)) if (array := getattr(request, name)).size]
    if all(array.ndim == 1 for array in arrays):
        return [hash_of(*arrays)] if arrays else []
    arrays = [np.atleast_2d(array) for array in arrays]
    return [hash_of(*(array[min(row, len(array) - 1)] for array in arrays)) for row in range(max(map(len, arrays)))]


@_once
def _wide_fields(request: type[Message]) -> tuple[str, ...]:
    return tuple(name for name, spec in request.specs().items() if spec.dimensions[-1:] == ("features",))


def hash_of(*vectors: FloatArray) -> str:
    """Tells these vectors from others, as the budget has them."""
    found = hashlib.sha256()
    for vector in vectors:
        found.update(np.ascontiguousarray(vector, dtype=np.float64).data)
    return found.hexdigest()[:32]
