"""R1 to R4: who is answered, and how many rows an answer has to be about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fedns.core.messages import WIRE_PRECISIONS
from fedns.federation.rules.refusal import Refusal, limit, small_group
from fedns.runs.over_sites import SiteRun, StudyRun

RARE_LEVELS = {
    "blank": "those rows are taken to have the usual value",
    "refuse": "this site will refuse",
    "show": "an answer can show who has it",
}


@dataclass(frozen=True)
class AskingLimits:
    """R1: who may ask for what."""

    heading: ClassVar[str] = "R1, who may ask for what"
    digests: tuple[str, ...] = limit(
        (),
        "if any, only these runs are opened; the log tells a run's digest, and a study's with its method",
    )
    handlers: tuple[str, ...] | None = limit(None, "if given, only these of what the method may ask for are answered")
    wire: tuple[str, ...] = limit(tuple(WIRE_PRECISIONS), "the precisions in which numbers may leave")

    def check_description(self, spec: SiteRun) -> None:
        if self.digests and not spec.is_pinned(self.digests):
            if isinstance(spec, StudyRun) and spec.study_digest in self.digests:
                line = f'digests = ["{spec.pins[1]}"]'
                raise Refusal(
                    "R1", f"its owner has agreed to this study and to no method: to agree to this one, write {line}"
                )
            raise Refusal("R1", "its owner has agreed to certain runs only, and this is none of them")
        if spec.wire not in self.wire:
            raise Refusal("R1", f"it sends numbers as {' or '.join(self.wire)}, not as {spec.wire}")

    def check_handler(self, name: str) -> None:
        """The name is that of a handler of the method."""
        if self.handlers is not None and name not in self.handlers:
            raise Refusal("R1", f"its owner does not permit '{name}', only {', '.join(self.handlers)}")


def no_handler(name: str) -> Refusal:
    return Refusal("R1", f"'{name}' is not among what the method may ask for")


@dataclass(frozen=True)
class RowLimits:
    """R2: how many rows an answer is about, and any group of them."""

    heading: ClassVar[str] = "R2, rows"
    smallest_rows: int = limit(20, "with fewer rows this site takes no part: sums over a handful of people are people")
    rows_per_coefficient: float = limit(
        3.0, "a Hessian or a sketch needs this many rows per coefficient: with as few rows as coefficients it is the rows"
    )
    rows_beyond_coefficients: int = limit(
        10, "a gradient needs this many rows more than coefficients: with fewer it tells who is in the data"
    )
    smallest_level: int = limit(
        5, "so many rows must have each outcome and each level of a column: a level that one person has shows that person"
    )
    rare_levels: str = limit(
        "blank", 'what to do with rarer levels of columns: "blank" takes the usual level instead, or "refuse", or "show"'
    )
    categories: tuple[str, ...] = limit(
        (), "columns of codes, by name, or by number where there are no names: each code is a level; a study names its own"
    )
    smallest_cell: int = limit(
        5, "rows of each outcome, if any, in a group of a table of scores; smaller groups are merged with their neighbours"
    )

    def gradient_needs(self, width: int) -> int:
        return width + self.rows_beyond_coefficients

    def hessian_needs(self, width: int) -> float:
        return max(self.smallest_rows, self.rows_per_coefficient * width)

    def check_taking_part(self, rows: int) -> None:
        _check_rows(rows, self.smallest_rows, "taking part")

    def check_gradient(self, rows: int, width: int) -> None:
        _check_rows(rows, self.gradient_needs(width), f"a gradient of {width} coefficients")

    def check_hessian(self, rows: int, width: int) -> None:
        _check_rows(rows, self.hessian_needs(width), f"a Hessian of {width} coefficients")

    def check_batches(self, fewest: int, width: int, rows: int) -> None:
        """Refuse steps of a method that takes some of the rows at a time: an answer may be about one of them alone."""
        needed = max(self.smallest_rows, self.gradient_needs(width))
        if fewest < min(needed, rows):  # whether all rows are enough is told by another rule
            raise Refusal(
                "R2",
                f"a mini-batch for {width} coefficients needs at least {needed} rows, the last one of an epoch too: "
                "take a larger batch_size, or local_steps that end before it",
            )

    def check_groups(self, *, rare_outcome: bool, rare_column: bool) -> None:
        if rare_outcome:
            raise small_group(f"fewer than {self.smallest_level} rows have one of the outcomes")
        if rare_column and self.rare_levels == "refuse":
            raise small_group(f"fewer than {self.smallest_level} rows have one of the levels of a column")

    def meaning_for_answers(self, rows: int, width: int) -> list[str]:
        def verdict(what: str, needed: float) -> str:
            if rows >= needed:
                return f"{what} of {width} coefficients is permitted"
            return f"{what} of {width} coefficients needs {needed:g} rows: this site will refuse it"

        return [verdict("a gradient", self.gradient_needs(width)), verdict("a full Hessian", self.hessian_needs(width))]

    def meaning_for_studies(self, rows: int) -> list[str]:
        """The same where a study says how many coefficients there are."""
        gradient, hessian = rows - self.rows_beyond_coefficients, rows / max(self.rows_per_coefficient, 1e-9)
        return [
            f"gradients of up to {gradient} coefficients are permitted, full Hessians of up to {min(hessian, rows):.0f}",
            f"an outcome needs {self.smallest_level} rows here, and so does a level of a column: "
            f"rare_levels = {self.rare_levels!r}",
        ]

    def meaning_for_levels(self, *, rare_outcome: bool, rare_columns: Sequence[str]) -> list[str]:
        few = self.smallest_level
        found = [f"an outcome has fewer rows than your limit of {few}: this site will refuse"] if rare_outcome else []
        said = RARE_LEVELS[self.rare_levels]
        return [*found, *(f"column '{name}' has a level in fewer than {few} rows: {said}" for name in rare_columns)]


def _check_rows(rows: int, needed: float, what: str) -> None:
    if not rows >= needed:
        raise Refusal("R2", f"{what} needs at least {needed:g} rows, and it has fewer")


@dataclass(frozen=True)
class SketchLimits:
    """R3: sketches, which must mix many rows."""

    heading: ClassVar[str] = "R3, sketches"
    largest_sketch_fraction: float = limit(0.25, "rows of a sketch, relative to the rows here")
    rows_per_bucket: float = limit(12.0, "an sjlt sketch of k rows needs this many times k rows: it sums few rows in each")
    row_sampling: bool = limit(False, "a sketch of sampled rows is rows of the data")
    job_seed: bool = limit(
        False, "true lets the coordinator choose the random numbers of sketches, and so solve for rows; only to compare bits"
    )

    def check_rows_leave(self) -> None:
        if not self.row_sampling:
            raise Refusal("R3", "rows of the data do not leave it")

    def check_sketch(self, size: int, rows: int, *, of_sampled_rows: bool, of_buckets: bool) -> None:
        if of_sampled_rows and not self.row_sampling:
            raise Refusal("R3", "a sketch of sampled rows is rows of the data, which do not leave it")
        if size > self.largest_sketch_fraction * rows:
            raise Refusal("R3", f"a sketch of {size} rows is more than {self.largest_sketch_fraction:g} of its rows")
        if of_buckets and not rows >= self.rows_per_bucket * size:
            raise Refusal("R3", f"an sjlt sketch of {size} rows needs {self.rows_per_bucket:g} times as many rows")

    def largest_sketch(self, rows: float, *, of_buckets: bool = False) -> int:
        """Return the rows of the largest sketch of so many rows; of_buckets: of an sjlt sketch."""
        largest = min(self.largest_sketch_fraction * rows, rows)
        return int(min(largest, rows / self.rows_per_bucket) if of_buckets and self.rows_per_bucket else largest)

    def meaning_for_sketches(self, rows: int) -> str:
        seed = "the coordinator's" if self.job_seed else "secret"
        largest, buckets = self.largest_sketch(rows), self.largest_sketch(rows, of_buckets=True)
        return f"sketches of up to {largest} rows, sjlt up to {buckets}, with {seed} random numbers"


def sketch_of_rows() -> Refusal:
    return Refusal("R3", "no method needs a sketch of the rows as they are: ask for one of the root of the Hessian")


@dataclass(frozen=True)
class ConcentrationLimits:
    """R4: how many rows an answer is really about at chosen coefficients."""

    heading: ClassVar[str] = "R4, concentration"
    smallest_effective_rows: float = limit(
        10.0, "at coefficients where fewer rows than this have a say, (sum d)^2 / sum d^2, an answer is about those few"
    )
    effective_rows_per_coefficient: float = limit(0.5, "the same, per coefficient")
    largest_record_share: float = limit(0.35, "no row may be more than this share of the trace of the Hessian")
    smallest_mean_curvature: float = limit(
        1e-3, "coefficients so large that the curvature vanishes turn a gradient into a sum over chosen rows"
    )

    @cached_property
    def needs_no_measure(self) -> bool:
        """Whether the rule is switched off altogether."""
        return (
            self.smallest_effective_rows <= 0
            and self.effective_rows_per_coefficient <= 0
            and self.largest_record_share >= 1
            and self.smallest_mean_curvature <= 0
        )

    def effective_rows(self, width: int) -> float:
        """Return how many rows an answer about so many coefficients has to be about."""
        return max(self.smallest_effective_rows, self.effective_rows_per_coefficient * width)

    def few_rows(self, measured: object) -> Refusal:
        return Refusal("R4", "at these coefficients the answer would be about a few of its rows", str(measured))
