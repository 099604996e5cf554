"""R5 to R7: how much may leave a site over all runs, how much work it does, and what its refusals say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedns.core.errors import FednsError
from fedns.federation.rules.refusal import Refusal, limit
from fedns.runs.over_sites import LARGEST_BYTES

_VECTORS_IN_A_REQUEST = 64


class Spending(NamedTuple):
    """One kind of what may leave: how much has, and how much may over all runs."""

    what: str
    spent: int
    most: float

    @property
    def left(self) -> float:
        return self.most - self.spent

    @property
    def share(self) -> float:
        return self.spent / self.most if self.most > 0 else float(self.spent > 0)


@dataclass(frozen=True)
class BudgetLimits:
    """R5: what may leave about these rows, over all runs."""

    heading: ClassVar[str] = "R5, budget of these rows over all runs; `fedns site site.toml --reset-budget` starts it anew"
    points: int = limit(1000, "distinct coefficients that may be asked about")
    largest_released_fraction: float = limit(1.0, "numbers that may leave, relative to the numbers in the table")
    largest_sketched_fraction: float = limit(5.0, "the same for sketches with a secret seed, which are no equations")
    score_tables: int = limit(
        20, "tables of scores, for calibration and ROC, that may leave; two that differ by less than smallest_rows may not"
    )
    smallest_difference: int = limit(
        5, "rows by which the rows of two studies must differ, unless they are the same: their sums tell of the difference"
    )
    baseline_hazards: bool = limit(
        False, "true lets a Cox study have the hazard here at the times it names: how many events there were between them"
    )
    rounds: int = limit(200, "of one run")

    def check_rounds(self, rounds: int) -> None:
        if rounds > self.rounds:
            raise Refusal("R5", f"it permits {self.rounds} rounds, the run asks for {rounds}")

    def check_round(self, round: int, rounds: int) -> None:
        most = min(rounds, self.rounds)
        if round > most:
            raise Refusal("R5", f"round {round} is beyond the {most} rounds of the run")

    def no_round_left(self, title: str) -> Refusal:
        return Refusal("R5", f"what is left of its budget is not enough for a single round of {title}")

    def check_points(self, points: int) -> None:
        if points > self.points:
            raise Refusal("R5", f"its owner permits answers about {self.points} distinct coefficients, over all runs")

    def check_numbers(self, numbers: int, size: int, *, sketched: bool = False) -> None:
        """size: the numbers in the table. sketched: numbers of sketches whose matrix only the site knows."""
        most = self.largest_sketched_fraction if sketched else self.largest_released_fraction
        if numbers > most * size:
            raise Refusal("R5", f"its owner permits {most:g} times the numbers of its table to leave, over all runs")

    def check_kinds(self, *, score_table: bool, hazard: bool) -> None:
        if score_table and not self.score_tables:
            raise Refusal("R5", "its owner permits no table of scores to leave")
        if hazard and not self.baseline_hazards:
            raise Refusal("R5", "its owner permits no baseline hazard to leave")

    def check_score_table(self, table: list[int], earlier: Sequence[list[int]], smallest_rows: int) -> None:
        """Refuse one too many, or one that differs from an earlier one by a few rows, which would show those."""
        if len(earlier) >= self.score_tables:
            raise Refusal("R5", f"its owner permits {self.score_tables} tables of scores to leave, over all runs")
        if any(_moved(table, other) < smallest_rows for other in earlier if len(other) == len(table)):
            raise Refusal("R5", f"fewer than {smallest_rows} of its rows tell this table of scores from an earlier one")

    def spending(self, points: int, numbers: int, sketched: int, tables: int, size: int) -> tuple[Spending, ...]:
        """Return what a table of this size has spent of its limits."""
        return (
            Spending("points", points, self.points),
            Spending("numbers", numbers, self.largest_released_fraction * size),
            Spending("numbers in sketches", sketched, self.largest_sketched_fraction * size),
            Spending("tables of scores", tables, self.score_tables),
        )


def _moved(table: list[int], other: list[int]) -> int:
    """At least so many rows are in another cell of one table than of the other."""
    change = np.subtract(table, other)
    return int(max(change[change > 0].sum(), -change[change < 0].sum()))


@dataclass(frozen=True)
class WorkLimits:
    """R6: how much work a run and an answer are."""

    heading: ClassVar[str] = "R6, work"
    largest_bytes: int = limit(LARGEST_BYTES, "of one packet or one answer, and of what is held in memory for it")
    largest_job_bytes: int = limit(65536, "of the description of a run, which is kept on disk")
    largest_table_bytes: int = limit(4 * 2**30, "of the rows as a study codes them")
    runs_per_hour: int = limit(
        200, "that are opened or refused: what is asked in each is kept on disk, and may have to be compiled"
    )
    largest_count: int = limit(1000, "iterations, steps, sizes: any whole number in a request or among a method's settings")
    passes: int = limit(1000, "times that the rows are read for one answer")
    answer_seconds: float = limit(60.0, "for one answer")
    requests_per_round: int = limit(40, "of one run, repetitions of a round included")
    requests_per_minute: int = limit(1200, "of all runs together")

    def check_job_bytes(self, length: int) -> None:
        if length > self.largest_job_bytes:
            raise Refusal("R6", f"the description of a run may have {self.largest_job_bytes} bytes, not {length}")

    def check_table_bytes(self, needed: int) -> None:
        if needed > self.largest_table_bytes:
            raise Refusal("R6", f"its rows, coded, would take more than {self.largest_table_bytes} bytes")

    def check_runs(self, in_the_last_hour: int) -> None:
        if in_the_last_hour >= self.runs_per_hour:
            raise Refusal("R6", f"it takes part in {self.runs_per_hour} runs an hour, those that it refused included")

    def check_counts(self, numbers: Iterable[Any], what: str) -> None:
        for value in numbers:
            whole = isinstance(value, int | np.integer) or (isinstance(value, np.ndarray) and value.dtype.kind in "iu")
            if whole and np.any(np.abs(np.asarray(value, dtype=object)) > self.largest_count):
                raise Refusal("R6", f"{what} is larger than {self.largest_count}")

    def check_length(self, length: int, width: int) -> None:
        """A request holds a few vectors of coefficients."""
        most = self.largest_job_bytes + _VECTORS_IN_A_REQUEST * 8 * width
        if length > most:
            raise Refusal("R6", f"a request may have {most} bytes, not {length}")

    def check_bytes(self, needed: int) -> None:
        """needed: before they are taken."""
        if needed > self.largest_bytes:
            raise Refusal("R6", f"the answer takes more than {self.largest_bytes} bytes")

    def check_passes(self, passes: int, seconds: float) -> None:
        if passes > self.passes or seconds > self.answer_seconds:
            raise Refusal("R6", f"the answer takes more than {self.passes} passes or {self.answer_seconds:g} seconds")

    def check_requests(self, in_the_round: int, in_the_last_minute: int) -> None:
        if in_the_round >= self.requests_per_round:
            raise Refusal("R6", f"it answers {self.requests_per_round} requests in a round")
        if in_the_last_minute >= self.requests_per_minute:
            raise Refusal("R6", f"it answers {self.requests_per_minute} requests a minute")


@dataclass(frozen=True)
class RefusalLimits:
    """R7: what a refusal may say of what went wrong with the rows at hand."""

    heading: ClassVar[str] = "R7, refusals"
    explain: bool = limit(False, "true lets refusals carry details of the rows; only where the rows are made up")

    def withheld(self, error: Exception) -> Refusal:
        if self.explain:
            return Refusal("R7", str(error) if isinstance(error, FednsError) else f"{type(error).__name__}: {error}")
        return Refusal("R7", "it cannot answer; why stands in its own log")
