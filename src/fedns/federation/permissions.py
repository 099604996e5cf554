"""What the owner of a site's rows permits: one number per rule, each with the reason that stands beside it in site.toml."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any

from fedns.core.errors import ConfigError, MessageError
from fedns.core.files import as_toml
from fedns.core.messages import WIRE_PRECISIONS
from fedns.runs.over_sites import LARGEST_BYTES

RARE_LEVELS = ("blank", "refuse", "show")


class Refusal(MessageError):
    """A rule of the owner's that a request breaks; `detail` is for the site's own log alone."""

    def __init__(self, rule: str, sentence: str, detail: str = "") -> None:
        super().__init__(f"{rule}: {sentence}")
        self.rule, self.detail = rule, detail


def small_group(detail: str) -> Refusal:
    """The refusal wherever a group of rows is too small: which rule it was would tell of the group, and is for the log."""
    return Refusal(
        "R2", "a group of its rows is too small for sums over it, by outcome, level or study; its log has which", detail
    )


def _limit(default: Any, reason: str) -> Any:
    return field(default=default, metadata={"reason": reason})


@dataclass(frozen=True)
class Permissions:
    """The limits of a site. The defaults are the safe ones; an owner who relaxes one does it in writing, in site.toml."""

    # R1: who may ask for what
    digests: tuple[str, ...] = _limit(
        (),
        "if any, only these runs are opened; the log tells a run's digest, and a study's with its method",
    )
    handlers: tuple[str, ...] | None = _limit(None, "if given, only these of what the method may ask for are answered")
    wire: tuple[str, ...] = _limit(tuple(WIRE_PRECISIONS), "the precisions in which numbers may leave")
    # R2: rows
    smallest_rows: int = _limit(20, "with fewer rows this site takes no part: sums over a handful of people are people")
    rows_per_coefficient: float = _limit(
        3.0, "a Hessian or a sketch needs this many rows per coefficient: with as few rows as coefficients it is the rows"
    )
    rows_beyond_coefficients: int = _limit(
        10, "a gradient needs this many rows more than coefficients: with fewer it tells who is in the data"
    )
    smallest_level: int = _limit(
        5, "so many rows must have each outcome and each level of a column: a level that one person has shows that person"
    )
    rare_levels: str = _limit(
        "blank", 'what to do with rarer levels of columns: "blank" takes the usual level instead, or "refuse", or "show"'
    )
    categories: tuple[str, ...] = _limit(
        (), "columns of codes, by name, or by number where there are no names: each code is a level; a study names its own"
    )
    smallest_cell: int = _limit(
        5, "rows of each outcome, if any, in a group of a table of scores; smaller groups are merged with their neighbours"
    )
    # R3: sketches
    largest_sketch_fraction: float = _limit(0.25, "rows of a sketch, relative to the rows here")
    rows_per_bucket: float = _limit(12.0, "an sjlt sketch of k rows needs this many times k rows: it sums few rows in each")
    row_sampling: bool = _limit(False, "a sketch of sampled rows is rows of the data")
    job_seed: bool = _limit(
        False, "true lets the coordinator choose the random numbers of sketches, and so solve for rows; only to compare bits"
    )
    # R4: concentration
    smallest_effective_rows: float = _limit(
        10.0, "at coefficients where fewer rows than this have a say, (sum d)^2 / sum d^2, an answer is about those few"
    )
    effective_rows_per_coefficient: float = _limit(0.5, "the same, per coefficient")
    largest_record_share: float = _limit(0.35, "no row may be more than this share of the trace of the Hessian")
    smallest_mean_curvature: float = _limit(
        1e-3, "coefficients so large that the curvature vanishes turn a gradient into a sum over chosen rows"
    )
    # R5: budget, for these rows, over all runs; `fedns site site.toml --reset-budget` starts it anew
    points: int = _limit(1000, "distinct coefficients that may be asked about")
    largest_released_fraction: float = _limit(1.0, "numbers that may leave, relative to the numbers in the table")
    largest_sketched_fraction: float = _limit(5.0, "the same for sketches with a secret seed, which are no equations")
    score_tables: int = _limit(
        20, "tables of scores, for calibration and ROC, that may leave; two that differ by less than smallest_rows may not"
    )
    smallest_difference: int = _limit(
        5, "rows by which the rows of two studies must differ, unless they are the same: their sums tell of the difference"
    )
    baseline_hazards: bool = _limit(
        False, "true lets a Cox study have the hazard here at the times it names: how many events there were between them"
    )
    rounds: int = _limit(200, "of one run")
    # R6: work
    largest_bytes: int = _limit(LARGEST_BYTES, "of one packet or one answer, and of what is held in memory for it")
    largest_job_bytes: int = _limit(65536, "of the description of a run, which is kept on disk")
    largest_table_bytes: int = _limit(4 * 2**30, "of the rows as a study codes them")
    runs_per_hour: int = _limit(
        200, "that are opened or refused: what is asked in each is kept on disk, and may have to be compiled"
    )
    largest_count: int = _limit(1000, "iterations, steps, sizes: any whole number in a request or among a method's settings")
    passes: int = _limit(1000, "times that the rows are read for one answer")
    answer_seconds: float = _limit(60.0, "for one answer")
    requests_per_round: int = _limit(40, "of one run, repetitions of a round included")
    requests_per_minute: int = _limit(1200, "of all runs together")
    # R7: refusals
    explain: bool = _limit(False, "true lets refusals carry details of the rows; only where the rows are made up")

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            least = -math.inf if one.name == "rows_beyond_coefficients" else 0  # negative: fewer rows than coefficients
            if isinstance(value, int | float) and not value >= least:  # every comparison with nan is false
                raise ConfigError(f"{one.name} must be at least 0, got {value}")
        if self.rare_levels not in RARE_LEVELS:
            raise ConfigError(f"rare_levels must be one of {', '.join(RARE_LEVELS)}, got {self.rare_levels!r}")
        if not set(self.wire) <= set(WIRE_PRECISIONS):
            raise ConfigError(f"wire must name {' or '.join(WIRE_PRECISIONS)}, got {list(self.wire)}")

    @cached_property
    def needs_no_measure(self) -> bool:
        """Whether the rule about concentration is switched off altogether."""
        return (
            self.smallest_effective_rows <= 0
            and self.effective_rows_per_coefficient <= 0
            and self.largest_record_share >= 1
            and self.smallest_mean_curvature <= 0
        )


_HEADINGS = {
    "digests": "R1, who may ask for what",
    "smallest_rows": "R2, rows",
    "largest_sketch_fraction": "R3, sketches",
    "smallest_effective_rows": "R4, concentration",
    "points": "R5, budget of these rows over all runs; `fedns site site.toml --reset-budget` starts it anew",
    "largest_bytes": "R6, work",
    "explain": "R7, refusals",
}


def permit_table() -> str:
    """The table [permit] of a site's file: every limit that has a number, with its reason beside it."""
    own = Permissions()
    lines = ["[permit]"]
    for one in fields(own):
        if one.name in _HEADINGS:
            lines.append(f"# {_HEADINGS[one.name]}")
        value = getattr(own, one.name)
        absent = value is None or value == ()
        text = f"{one.name} = {as_toml(value)}"
        lines.append(f"{'# ' + one.name + ' = [...]' if absent else text:<40}# {one.metadata['reason']}")
    return "\n".join(lines) + "\n"


def changed(permissions: Permissions) -> list[str]:
    """What an owner has relaxed or tightened, as it stands in the file."""
    return [
        f"{one.name} = {as_toml(getattr(permissions, one.name))}"
        for one in fields(permissions)
        if one.default is not MISSING and getattr(permissions, one.name) != one.default
    ]
