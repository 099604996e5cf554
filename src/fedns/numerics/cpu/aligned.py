"""Memory for loops that starts on a cache line.

A vector that straddles two lines costs twice to load and more to store, and what reads it number by number soon after waits
until it is in the cache. Where nobody asks for a place, whether it straddles is chance, in every process anew: SJLT's loop
took 26 or 32 cycles for a row of 18 columns by where eight numbers of scratch were.
"""

import numpy as np

from fedns.numerics.jit import jit


@jit
def aligned(rows, columns):
    """A table of zeros."""
    raw = np.zeros(rows * columns + 8)
    skip = (-raw.ctypes.data % 64) // 8
    return raw[skip : skip + rows * columns].reshape((rows, columns))


@jit
def aligned_row(columns):
    """A row of zeros."""
    return aligned(1, columns).reshape(columns)
