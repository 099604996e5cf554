"""The meaning of a site's limits for its table, and what is left of its budget: in sentences, before anything leaves it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from fedns.core.algorithm import Algorithm
from fedns.core.shards import Shards
from fedns.federation.permissions import Permissions, changed
from fedns.federation.protocol.opening import BUDGET_LEVELS
from fedns.federation.rules.amounts import Spending
from fedns.federation.site.budget import Budget, Spent
from fedns.federation.site.levels import has_small_group, named_columns, rare_levels
from fedns.methods.fedndes import FedNDES
from fedns.numerics import memory
from fedns.numerics.streaming import streamed
from fedns.sketches import SJLT, Sketch


def spending(permissions: Permissions, spent: Spent, size: int) -> tuple[Spending, ...]:
    """Return what a table of this size has spent of its limits: points, numbers, numbers in sketches, tables of scores."""
    return permissions.spending(spent.amounts.points, spent.numbers, spent.sketched, len(spent.tables), size)


def level_of(found: tuple[Spending, ...]) -> float:
    """The highest of `BUDGET_LEVELS` that the most used kind has reached; 0 below all."""
    return max((level for level in BUDGET_LEVELS if max(one.share for one in found) >= level), default=0.0)


def spending_sentence(found: tuple[Spending, ...]) -> str:
    """Say what has left, in words for the owner."""
    points, numbers, sketched, tables = found
    return (
        f"asked about at {points.spent} of {points.most} permitted points; sent {numbers.spent} of {numbers.most:.0f} "
        f"permitted numbers, {sketched.spent} of {sketched.most:.0f} in sketches and {tables.spent} of {tables.most} tables "
        "of scores"
    )


class Need(NamedTuple):
    """Count how many numbers a run takes at least: with a single round, and with each that comes after it."""

    once: int
    each_round: int

    @classmethod
    def of(cls, asked: Mapping[str, int], method: Algorithm, evaluation: int, looks: int) -> Need:
        """asked: the numbers in an answer, by what may be asked for. evaluation: those of a look at the objective, which is
        made before the first round and after each. looks: those of the looks that a fit is told its precision by."""
        of_method = [asked[handler.__name__] for handler in method.handlers() if handler.__name__ in asked]
        each = sum(of_method) if method.asks_for_all else min(filter(None, of_method), default=0)
        return cls(each + 2 * evaluation + looks, each + evaluation)

    def rounds_within(self, found: tuple[Spending, ...]) -> float:
        """For how many rounds what is left is enough; none where it is not enough for the first."""
        points, numbers = found[0].left, found[1].left
        if points < 1 or numbers < self.once:
            return 0.0
        further = (numbers - self.once) // self.each_round if self.each_round else math.inf
        return min(points, 1.0 + further)


def meaning(
    permissions: Permissions, shards: Shards, budget: Budget | None = None, *, intercept: bool = True, outputs: int = 1
) -> list[str]:
    """One sentence per limit that matters here, and what has left; outputs: margins of a row."""
    rows, width = shards.num_samples, (shards.num_columns + int(intercept)) * outputs
    found = [f"{rows} rows, {width} coefficients{' with the intercept' if intercept else ''}"]
    if rows < permissions.smallest_rows:
        return [*found, f"fewer rows than your limit of {permissions.smallest_rows}: this site will refuse"]
    found += permissions.meaning_for_answers(rows, width)
    if rows >= permissions.hessian_needs(width):
        found.append(permissions.meaning_for_sketches(rows))
    found += _levels(permissions, shards, outputs)
    if budget is not None:
        found.append(spending_sentence(spending(permissions, budget.spent(), rows * shards.num_columns)))
    return [*found, *(f"changed by you: {text}" for text in changed(permissions))]


def meaning_for_studies(permissions: Permissions, rows: int, columns: int, budget: Budget) -> list[str]:
    """The same of a table whose columns a study will name: what is permitted of it depends on how many that are."""
    found = [f"{rows} rows of {columns} columns, which a study chooses from"]
    if rows < permissions.smallest_rows:
        return [*found, f"fewer rows than your limit of {permissions.smallest_rows}: this site will refuse"]
    found += permissions.meaning_for_studies(rows)
    spent = budget.spent()
    found.append(
        f"asked about at {spent.amounts.points} of {permissions.points} permitted points; sent {spent.numbers} numbers and "
        f"{spent.sketched} in sketches, of {permissions.largest_released_fraction:g} and "
        f"{permissions.largest_sketched_fraction:g} times as many as a study codes, and {len(spent.tables)} of "
        f"{permissions.score_tables} tables of scores"
    )
    return [*found, *(f"changed by you: {text}" for text in changed(permissions))]


def read_from_disk(shards: Shards | None) -> str:
    """Say what to know of rows that are larger than memory; nothing of others."""
    if shards is None or not streamed(shards.rows):
        return ""
    taken, room = shards.rows.nbytes / 1e9, memory.room() / 1e9
    return f"the rows take {taken:.3g} GB and memory has room for {room:.3g} GB of them: every pass reads them from disk"


def _levels(permissions: Permissions, shards: Shards, outputs: int) -> list[str]:
    few = permissions.smallest_level
    rare = rare_levels(shards, few, named_columns(shards, permissions.categories))
    names = [shards.columns[column] if shards.columns else str(column) for column in rare.columns.tolist()]
    rare_outcome = rare.outcome or (outputs > 1 and has_small_group(shards.targets, few))
    return permissions.meaning_for_levels(rare_outcome=rare_outcome, rare_columns=names)


def caution_of_size(algorithm: Algorithm, rows: float) -> str:
    """Say what to know where a site with so many rows, the fewest, will refuse sketches by its default limits."""
    for sketch in (part for part in vars(algorithm).values() if isinstance(part, Sketch)):
        times = 2 if isinstance(algorithm, FedNDES) and not algorithm.second_size else 1
        largest = max(times * sketch.size, algorithm.second_size if isinstance(algorithm, FedNDES) else 0)
        most = Permissions().largest_sketch(rows, of_buckets=isinstance(sketch, SJLT))
        if largest > most:
            return (
                f"a site with {rows:g} rows refuses sketches of more than {most} by its default limits (R3), and "
                f"{algorithm.name} asks for {largest}: take sketch_size <= {most // times}, or another method"
            )
    return ""
