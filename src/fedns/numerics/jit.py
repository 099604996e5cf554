"""How every kernel is compiled."""

from numba import njit

# Sums may be reordered so that they fill vector registers; nothing else about IEEE arithmetic is given up.
REORDER = frozenset({"reassoc", "contract", "nsz"})
jit = njit(cache=True, nogil=True, error_model="numpy", fastmath=set(REORDER))
inline = njit(inline="always", error_model="numpy", fastmath=set(REORDER))
