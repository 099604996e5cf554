"""The table of coefficients as values, and as text for a console."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedns.studies.design.columns import Design
from fedns.studies.inference.estimates import Inference
from fedns.studies.inference.goodness import Goodness
from fedns.studies.inference.terms import TermTest


@dataclass(frozen=True)
class Row:
    """A coefficient; NaN where it was left out, or where there is nothing to say."""

    name: str
    coefficient: float
    std_error: float = math.nan
    statistic: float = math.nan
    p_value: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @property
    def left_out(self) -> bool:
        return math.isnan(self.coefficient)

    @property
    def ratios(self) -> tuple[float, float, float]:
        """exp of the coefficient and of the ends of its interval."""
        return ratio_of(self.coefficient), ratio_of(self.low), ratio_of(self.high)


def ratio_of(coefficient: float) -> float:
    """exp, which is infinite where it is too large to be written."""
    with np.errstate(over="ignore"):
        return float(np.exp(coefficient))


def rows_of(inference: Inference, kind: str = "model", level: float = 0.95) -> tuple[Row, ...]:
    """One for each coefficient."""
    found = zip(
        inference.names,
        inference.coefficients,
        inference.standard_errors(kind),
        inference.statistics(kind),
        inference.p_values(kind),
        inference.intervals(level, kind),
        strict=True,
    )
    return tuple(Row(name, *map(float, (*numbers, *ends))) for name, *numbers, ends in found)


def by_class(design: Design, rows: Sequence[Row]) -> list[tuple[str, tuple[Row, ...]]]:
    """The rows of every class of the outcome, under their names within it; all of them under "" where there are none."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        one, name = design.parts_of(row.name)
        found.setdefault(one, []).append(replace(row, name=name))
    return [(one, tuple(part)) for one, part in found.items()]


def class_title(design: Design, one: str) -> str:
    return f"{design.study.parsed.outcome} = {one}, compared with {design.classes[0]}"


def reference_pairs(design: Design) -> list[tuple[str, str]]:
    """Every category with the level that its coefficients are compared with."""
    return [(column, f"reference: {level}") for column, level in design.references.items()]


def coefficient_text(rows: Sequence[Row], statistic: str, level: float, ratio: str) -> list[str]:
    """Lines of the table that a statistician knows."""
    tail = f"{(1 - level) / 2:.3f}".rstrip("0"), f"{(1 + level) / 2:.3f}".rstrip("0")
    ends = f"[{tail[0]}", f"{tail[1]}]", *([ratio] if ratio else [])
    headings = ["", "coef", "std err", statistic, f"P>|{statistic}|", *ends]
    cells = [headings]
    for row in rows:
        if row.left_out:
            cells.append([row.name, "left out", *[""] * (len(headings) - 2)])
            continue
        numbers = [f"{value:.4g}" for value in (row.coefficient, row.std_error)]
        numbers += [statistic_text(row.statistic), p_text(row.p_value), f"{row.low:.4g}", f"{row.high:.4g}"]
        cells.append([row.name, *numbers, *([f"{row.ratios[0]:.4g}"] if ratio else [])])
    return aligned_lines(cells)


def term_lines(tests: Iterable[TermTest]) -> list[str]:
    """Lines about whole terms; nothing where every term has one column, which the table above has tested."""
    tests = tuple(tests)
    if all(test.df == 1 for test in tests):
        return []
    cells = [["term", "test", "df", "p", "VIF"]]
    for test in tests:
        inflation = "" if math.isnan(test.inflation) else f"{test.inflation:.2f}"
        cells.append(
            [test.term, f"{test.test} {statistic_text(test.statistic)}", str(test.df), p_text(test.p_value), inflation]
        )
    return aligned_lines(cells)


def goodness_pairs(found: Goodness) -> list[tuple[str, str]]:
    """Names of the figures at the foot, and the figures."""
    explained = "R²" if found.test == "F" else "pseudo R² (McFadden)"
    pairs = [
        ("observations", f"{found.observations:.10g}"),
        ("residual degrees of freedom", f"{found.residual_df:.10g}"),
        ("log-likelihood", f"{found.log_likelihood:.6g}"),
        ("AIC", f"{found.aic:.6g}"),
        ("BIC", f"{found.bic:.6g}"),
        ("deviance", f"{found.deviance:.6g}"),
        ("null deviance", f"{found.null_deviance:.6g}"),
        ("Pearson chi²", f"{found.pearson:.6g}"),
        ("dispersion", f"{found.dispersion:.5g}"),
        (explained, f"{found.r_squared:.4f}"),
    ]
    if found.test == "F":
        pairs.append(("adjusted R²", f"{found.adjusted_r_squared:.4f}"))
    name = f"likelihood-ratio test on {found.model_df:.4g} df"
    if found.test == "F":
        name = f"F test on {found.model_df:.4g} and {found.residual_df:.10g} df"
    if not math.isnan(found.test_statistic):
        pairs.append((name, f"{found.test_statistic:.4g}, p {p_text(found.test_p_value)}"))
    return [pair for pair in pairs if pair[1] != "nan"]


def statistic_text(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def p_text(value: float) -> str:
    """As statisticians write it."""
    return "" if math.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def aligned_pairs(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Names and values under each other with an empty line below; nothing for none."""
    width = max((len(name) for name, _ in pairs), default=0)
    return [*(f"{name:<{width}}  {value}" for name, value in pairs), ""] if pairs else []


def aligned_lines(cells: Sequence[Sequence[str]]) -> list[str]:
    """Columns under each other: the first to the left, numbers to the right."""
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    lines = []
    for row in cells:
        first, *rest = row
        numbers = (f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join([f"{first:<{widths[0]}}", *numbers]).rstrip())
    return lines
