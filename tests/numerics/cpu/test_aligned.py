"""Scratch memory of compiled loops."""

import numpy as np

from fedns.numerics.cpu.aligned import aligned, aligned_row


def test_tables_and_rows_of_zeros_start_on_a_cache_line():
    held = []  # what is held makes memory come from another place
    for columns in range(1, 60):
        table, row = aligned(3, columns), aligned_row(columns)
        assert table.shape == (3, columns) and row.shape == (columns,)
        assert table.ctypes.data % 64 == 0 and row.ctypes.data % 64 == 0
        assert not table.any() and not row.any()
        table[:], row[:] = np.nan, np.nan  # memory that comes back is cleared
        held += [row] if columns % 2 else [np.empty(columns)]
