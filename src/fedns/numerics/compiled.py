"""How small functions outside the kernels are compiled; without numba, where a GPU does the work, they stay Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

import numpy as np

COMPILED = find_spec("numba") is not None

if COMPILED:
    from numba import njit, prange

    from fedns.numerics.cpu.jit import jit, on_threads, parallel_jit

    plain_jit = njit(cache=True, nogil=True)
else:
    prange = range

    def jit(function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as it is; 64-bit words wrap around as they do in compiled code."""

        @wraps(function)
        def quiet(*arguments: Any) -> Any:
            with np.errstate(over="ignore"):
                return function(*arguments)

        return quiet

    plain_jit = parallel_jit = jit

    def on_threads(kernel: Any, *arguments: Any) -> None:
        """Call the kernel."""
        kernel(*arguments)


__all__ = ["COMPILED", "jit", "on_threads", "parallel_jit", "plain_jit", "prange"]
