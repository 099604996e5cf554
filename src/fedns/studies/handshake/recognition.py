"""Columns that are not what they seem: codes for missing values, numbers of rows, names of people, dates, free text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    """What a column of the formula is instead of a measurement or a category, as a key of SENTENCES; "" if neither."""
    if column.kind in ("date", "empty"):
        return column.kind
    if column.kind == "text" or as_category:
        counts = column.counts()
        if len(counts) == counts.total() >= _FEWEST:
            return "id"
        return "text" if len(counts) > MOST_LEVELS else ""
    values = np.asarray(column.values, dtype=np.float64)
    values = values[~np.isnan(values)]
    if values.size < _FEWEST or (values != np.floor(values)).any():
        return ""
    return "index" if (np.diff(values) == 1).all() else ""


def sentinel_in(column: Column) -> tuple[float, int] | None:
    """A number that stands far outside all others and is known as a code for "missing", with how often it occurs."""
    if column.kind != "number":
        return None
    values = np.asarray(column.values, dtype=np.float64)
    values = values[~np.isnan(values)]
    for code in SENTINELS:
        rest = values[values != code]
        count = values.size - rest.size
        if not count or rest.size < 3:
            continue
        spread = max(float(rest.max() - rest.min()), 1e-12)
        outside = max(float(rest.min()) - code, code - float(rest.max()))
        # Twice, since one far value may be an outlier; or once, and so far out that no measurement lies there.
        if (count > 1 and outside > spread) or outside > _FAR * spread:
            return code, int(count)
    return _zeros_apart(values)


def _zeros_apart(values: NDArray[np.float64]) -> tuple[float, int] | None:
    """Zeros well below a measurement that has none near zero, such as a blood value of 0."""
    rest = values[values != 0.0]
    count = values.size - rest.size
    if count < 2 or np.unique(rest).size < _FEWEST // 2 or rest.min() <= _APART * rest.std():
        return None
    return 0.0, int(count)
