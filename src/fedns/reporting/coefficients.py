"""The table of coefficients as a file: one form, whatever was fitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedns.core.files import csv_text

COLUMNS = (
    "class", "name", "term", "level", "reference", "coefficient", "std_error", "statistic", "p_value", "low", "high",
    "ratio", "ratio_low", "ratio_high",
)  # fmt: skip


def coefficients_csv(lines: Iterable[Mapping[str, str | float]]) -> str:
    """A line for each coefficient; what is not known of it, or not a number, is an empty cell."""
    return csv_text([COLUMNS, *([line.get(column, "") for column in COLUMNS] for line in lines)])
