"""The table of coefficients as a file: one form, whatever was fitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedns.core.files import csv_text

COLUMNS = (
    "converged", "class", "name", "term", "level", "reference", "coefficient", "std_error", "statistic", "p_value",
    "low", "high", "ratio", "ratio_low", "ratio_high",
)  # fmt: skip


def coefficients_csv(lines: Iterable[Mapping[str, str | float]], *, converged: bool) -> str:
    """A line for each coefficient, which says first whether the fit has converged; what is not known is an empty cell."""
    first = {"converged": "yes" if converged else "no"}
    return csv_text([COLUMNS, *([(first | dict(line)).get(column, "") for column in COLUMNS] for line in lines)])
