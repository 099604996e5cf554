"""The owner's rules, applied at the site: before a handler runs, while it reads rows, and before its answer leaves.

The rules are `Permissions`; here stands when each is asked, and of what. A refusal names the rule and never a value of the
data; what the owner has to know stands in the site's own log.
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
from fedns.federation.permissions import Permissions
from fedns.federation.rules.amounts import Spending
from fedns.federation.site.budget import HOUR, MINUTE, Amounts, Budget, Spent, fingerprint
from fedns.federation.site.concentration import ConcentrationRule
from fedns.federation.site.explain import Need, spending
from fedns.federation.site.levels import blanked, has_small_group, named_columns, rare_levels
from fedns.models.evaluation import evaluate_locally
from fedns.models.problem import Problem
from fedns.numerics.backend import ROW_SAMPLING, SJLT, SketchPlan, triangle_size
from fedns.runs.builder import algorithm_of
from fedns.runs.over_sites import Handshake, SiteRun, StudyRun
from fedns.sketches import Sketch

FloatArray = NDArray[np.float64]
CURVATURE = {Discloses.HESSIAN, Discloses.SCORES, Discloses.SKETCH, Discloses.ROWS}
HARMLESS = {Discloses.NOTHING, Discloses.SCHEMA, Discloses.COUNT}
_RESERVED_POINTS, _RESERVED_PARTS = 16, 32
log = logging.getLogger("fedns.site")
F = TypeVar("F", bound=Callable[..., Any])


def _once(about_a_class: F) -> F:
    """Asked of a class for the first time, it is found; afterwards it is known. Its type stays, other than with `cache`."""
    return cast("F", cache(about_a_class))


@dataclass
class Asked:
    """A request as the budget sees it."""

    run: bytes
    round: int
    points: list[str]  # hashes of the coefficients that it is about
    relative: bool = False  # it moves from where the site is: its points are known when the rows are read
    tables: list[list[int]] = field(default_factory=list)  # of scores that would leave, with every cell


def admit_description(own: Permissions, spec: SiteRun) -> None:
    """R1 and R5 on a new run, before its rows are looked at."""
    own.check_description(spec)
    own.check_rounds(spec.rounds)


def admit_opening(own: Permissions, spent: Spent, opening: str, runs: Iterable[Path]) -> None:
    """R5 and R6 on a new run. opening: its hash, a point if it is refused. runs: what is kept of those that were opened."""
    since = time.time() - HOUR
    own.check_runs(sum(path.stat().st_mtime > since for path in runs) + spent.refused_since(since))
    own.check_points(spent.points_with([opening]))


def admit_coding(own: Permissions, rows: int, columns: int) -> None:
    """R2 and R6 on rows that a study wants coded into so many columns, before they are."""
    own.check_gradient(rows, columns)
    own.check_table_bytes(8 * rows * columns)


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
        self._size = self._num_rows * self._num_columns
        self.concentration = ConcentrationRule(own, self.shards)

    @property
    def blanked_columns(self) -> int:
        """In how many columns rare levels were replaced; the run is told, since its answer is then not the pooled one."""
        return int(self._rare.columns.size) if self.permissions.rare_levels == "blank" else 0

    @cached_property
    def reserved_ahead(self) -> Amounts | None:
        """How much of the budget to reserve on the disk at a time: at most so much is lost where the power fails."""
        own, part = self.permissions, self._size / _RESERVED_PARTS
        if not math.isfinite(own.largest_released_fraction):
            return None
        sketched = min(own.largest_sketched_fraction, _RESERVED_PARTS)
        return Amounts(_RESERVED_POINTS, int(part * own.largest_released_fraction), int(part * sketched))

    def admit_run(self, handlers: Mapping[str, Handler], problem: Problem) -> None:
        """R2 and R6 on a new run over these rows."""
        own, groups = self.permissions, problem.loss.groups(self.shards.targets)
        own.check_taking_part(self._num_rows)
        few = self._rare.outcome or (groups is not None and has_small_group(groups, own.smallest_level))
        own.check_groups(rare_outcome=few, rare_column=bool(self._rare.columns.size))
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
        disclosures = {name: disclosure_of(messages_of(handler)[1]) for name, handler in handlers.items()}
        asked = {name: one.least(width) for name, one in disclosures.items()}
        method = {handler.__name__ for handler in algorithm_of(spec).handlers()}
        looks = [asked[name] for name, one in disclosures.items() if one.curvature and name not in method]
        evaluation = asked.get(evaluate_locally.__name__, 0)
        need = Need.of(asked, algorithm_of(spec), evaluation, min(looks, default=0) if isinstance(spec, StudyRun) else 0)
        return need.rounds_within(left)

    def spending(self, spent: Spent) -> tuple[Spending, ...]:
        """Return the share that has left of what may."""
        return spending(self.permissions, spent, self._size)

    def admit_settings(self, owner: object) -> None:
        """R6 on every whole number that the coordinator has set, however deep it lies."""
        self._check_counts(owner, "a setting of the method")
        for part in (getattr(owner, one.name) for one in fields(owner)) if is_dataclass(owner) else ():
            self.admit_settings(part)

    def admit_request(
        self, handler: Handler, request: Message, *, run: bytes, round: int, spec: SiteRun, problem: Problem
    ) -> Asked:
        """R1, R2, R5 and R6 before anything is computed."""
        own = self.permissions
        own.check_handler(handler.__name__)
        own.check_round(round, spec.rounds)
        width = problem.num_features(self._num_columns)
        disclosure = disclosure_of(messages_of(handler)[1])
        if disclosure.names:
            self._check_counts(request, "a number in the request")
            self._check_disclosure(disclosure, width)
        relative = is_relative(type(request))
        asked = Asked(run, round, points_of(request) if disclosure.names and not relative else [], relative)
        self.check_budget(self.budget.spent(), asked, disclosure.least(width))
        return asked

    def _check_disclosure(self, disclosure: Disclosure, width: int) -> None:
        own = self.permissions
        (own.check_hessian if disclosure.curvature else own.check_gradient)(self._num_rows, width)
        if disclosure.rows:
            own.check_rows_leave()
        if disclosure.histogram or disclosure.hazard:
            own.check_kinds(score_table=disclosure.histogram, hazard=disclosure.hazard)

    def _check_counts(self, owner: object, what: str) -> None:
        if names := counts_of(type(owner)):
            self.permissions.check_counts([getattr(owner, name) for name in names], what)

    def check_batches(self, fewest: int, width: int) -> None:
        """R2 on the steps of a method that takes some of the rows at a time."""
        self.permissions.check_batches(fewest, width, self._num_rows)

    def check_budget(self, spent: Spent, asked: Asked, numbers: int, sketched: int = 0) -> None:
        """R5 and R6, by what has left and what would leave."""
        own = self.permissions
        if asked.points:
            own.check_points(spent.points_with(asked.points))
        if asked.tables:
            self.check_tables(spent, asked.tables)
        own.check_numbers(spent.numbers + numbers, self._size)
        own.check_numbers(spent.sketched + sketched, self._size, sketched=True)
        in_the_round = spent.asked.get((asked.run.hex(), asked.round), 0)
        own.check_requests(in_the_round, spent.asked_since(time.time() - MINUTE))

    def check_tables(self, spent: Spent, tables: list[list[int]]) -> None:
        """R5: how many tables of scores leave, and that no two of them differ by a few rows, which would show those."""
        for table in tables:
            if table not in spent.tables:
                self.permissions.check_score_table(table, spent.tables, self.permissions.smallest_rows)

    def check_sketch(self, plan: SketchPlan, width: int) -> None:
        """R3 and R5, before the sketch is taken."""
        own, size, spent = self.permissions, int(plan.sizes.max()), self.budget.spent()
        own.check_sketch(size, self._num_rows, of_sampled_rows=plan.kind == ROW_SAMPLING, of_buckets=plan.kind == SJLT)
        before = spent.numbers if own.job_seed else spent.sketched
        own.check_numbers(before + size * width, self._size, sketched=not own.job_seed)


class Disclosure(NamedTuple):
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
def disclosure_of(reply: type[Message]) -> Disclosure:
    specs = {name: spec for name, spec in reply.specs().items() if spec.discloses not in HARMLESS}
    kinds = {spec.discloses for spec in specs.values()}
    sketches = tuple(name for name, spec in specs.items() if spec.discloses == Discloses.SKETCH)
    single = (one in kinds for one in (Discloses.ROWS, Discloses.HISTOGRAM, Discloses.HAZARD))
    axes = tuple(spec.dimensions for spec in specs.values())
    return Disclosure(tuple(specs), sketches, axes, bool(kinds & CURVATURE), *single)


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
    return any(spec.kind == "small_ints" and spec.dimensions == ("features",) for spec in request.specs().values())


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
