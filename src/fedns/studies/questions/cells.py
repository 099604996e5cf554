"""Cells that predictions and residuals are counted in: the same everywhere, and merged until none holds a few rows."""

from __future__ import annotations

import numpy as np

from fedns.core.types import FloatArray, IntArray

CELLS = 256
# Margins in units of their scale, from -8 to 8; the outermost cells are open.
SCORE_EDGES: FloatArray = np.linspace(-8.0, 8.0, CELLS + 1)[1:-1]  # (CELLS - 1,)
# Residuals of either sign, eight cells to a doubling: a cell is 9 % wide, from 2^-8 to 2^8.
_SIZES: FloatArray = 2.0 ** (np.arange(-63, 64) / 8.0)
RESIDUAL_EDGES: FloatArray = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])  # (CELLS - 1,)


def cells_of(values: FloatArray, edges: FloatArray) -> IntArray:
    """The cell of each value: cell c holds edges[c - 1] <= value < edges[c]."""
    return np.searchsorted(edges, values, side="right")


def counted(cells: IntArray) -> IntArray:
    """Rows in every cell: (CELLS,)."""
    return np.bincount(cells, minlength=CELLS)


def merged(counts: IntArray, smallest: int) -> IntArray:
    """Find where merged cells end, so that each holds no row of a kind or at least so many: (merged,).

    counts: rows in every cell, by kind, (CELLS, kinds). Nothing where even all cells together hold a few of some kind.
    """

    def may_leave(held: IntArray) -> bool:
        return bool(held.sum() >= max(1, smallest) and ((held == 0) | (held >= smallest)).all())

    closed: list[tuple[int, IntArray]] = []
    held = np.zeros_like(counts[0])
    for cell, here in enumerate(counts, start=1):
        held = held + here
        if may_leave(held):
            closed.append((cell, held))
            held = np.zeros_like(here)
    while held.any() and closed:
        held = held + closed.pop()[1]
        if may_leave(held):
            closed.append((CELLS, held))
            held = np.zeros_like(held)
    stops = np.array([stop for stop, _ in closed], dtype=np.int64)
    stops[-1:] = CELLS
    return stops


def summed(values: FloatArray, stops: IntArray) -> FloatArray:
    """Sums over merged cells of what every cell holds: (figures, merged) from (figures, CELLS)."""
    return np.add.reduceat(values, np.concatenate([[0], stops[:-1]]), axis=1) if stops.size else values[:, :0]
