"""How every kernel is compiled, and when a compiled one is thrown away."""

import contextlib
from pathlib import Path

from numba import njit

# Sums may be reordered so that they fill vector registers; nothing else about IEEE arithmetic is given up.
REORDER = frozenset({"reassoc", "contract", "nsz"})
jit = njit(cache=True, nogil=True, error_model="numpy", fastmath=set(REORDER))

# The same over all cores: for loops over parts of the work, each of which is a kernel of the kind above.
parallel_jit = njit(cache=True, nogil=True, error_model="numpy", fastmath=set(REORDER), parallel=True)


def _discard_stale_kernels() -> None:
    """Delete cached kernels older than any kernel source: numba looks at a kernel's own file, not at what it calls."""
    folder = Path(__file__).parent
    newest = max(source.stat().st_mtime for source in folder.glob("*.py"))
    for compiled in folder.glob("__pycache__/*.nb?"):
        with contextlib.suppress(OSError):  # another process may have been faster, or the folder be read-only
            if compiled.stat().st_mtime < newest:
                compiled.unlink()


_discard_stale_kernels()
