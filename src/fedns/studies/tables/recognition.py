"""Columns that are not what they seem: codes for missing values, numbers of rows, names of people, dates, free text."""

from __future__ import annotations

import numpy as np

from fedns.core.types import FloatArray
from fedns.studies.tables.files.frames import Column

SENTINELS = (-9.0, -99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0)
_FAR = 5.0  # a code lies this many spreads of the other values outside them
_APART = 1.25  # zeros lie this many standard deviations of the other values below them
_FEWEST = 20  # values from which a column can be told to be an index
MOST_LEVELS = 100

SENTENCES = {
    "index": "counts the rows: it is an index, not a measurement",
    "id": "has another value in every row: it is an identifier, not a measurement",
    "date": "holds dates: turn them into a number first, such as an age or a time in days",
    "text": f"holds free text or names, with more than {MOST_LEVELS} different values",
    "empty": "holds no value at all",
}


def looks_like(column: Column, as_category: bool) -> str:
    """Tell by a key of SENTENCES what a column is in place of a measurement or a category; "" if it is one of these."""
    if column.kind in ("date", "empty"):
        return column.kind
    if column.kind == "text" or as_category:
        counts = column.counts()
        if len(counts) == counts.total() >= _FEWEST:
            return "id"
        return "text" if len(counts) > MOST_LEVELS else ""
    values = column.present
    if values.size < _FEWEST or (values != np.floor(values)).any():
        return ""
    return "index" if (np.diff(values) == 1).all() else ""


def level_order(level: str) -> tuple[bool, float, str]:
    """Numbers by size, before texts by their letters: so levels are ordered unless a study does it, and the first is the
    reference. Not the most common one: how many rows have a level does not leave a site."""
    try:
        return False, float(level), level
    except ValueError:
        return True, 0.0, level


def are_counts(values: FloatArray) -> bool:
    """Whether these are whole numbers from 0 on."""
    return bool((values >= 0).all() and (values == np.floor(values)).all())


def sentinel_in(column: Column) -> float | None:
    """A number that stands far outside all others and is known as a code for "missing"."""
    if column.kind != "number":
        return None
    values = column.present
    for code in SENTINELS:
        rest = values[values != code]
        count = values.size - rest.size
        if not count or rest.size < 3:
            continue
        spread = max(float(rest.max() - rest.min()), 1e-12)
        outside = max(float(rest.min()) - code, code - float(rest.max()))
        # Twice, since one far value may be an outlier; or once, and so far out that no measurement lies there.
        if (count > 1 and outside > spread) or outside > _FAR * spread:
            return code
    return _zeros_apart(values)


def _zeros_apart(values: FloatArray) -> float | None:
    """Zeros well below a measurement that has none near zero, such as a blood value of 0."""
    rest = values[values != 0.0]
    count = values.size - rest.size
    if count < 2 or np.unique(rest).size < _FEWEST // 2 or rest.min() <= _APART * rest.std():
        return None
    return 0.0
