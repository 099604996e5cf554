"""How small functions outside the kernels are compiled; without numba, where a GPU does the work, they stay Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

import numpy as np

COMPILED = find_spec("numba") is not None

jit: Any
plain_jit: Any
parallel_jit: Any
prange: Any
on_threads: Any


def _as_written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself; 64-bit words wrap around as they do in compiled code."""

    @wraps(function)
    def quiet(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*arguments)

    return quiet


def _called(kernel: Any, *arguments: Any) -> None:
    kernel(*arguments)


if COMPILED:
    import numba

    from fedns.numerics.cpu import jit as compilers

    jit, parallel_jit, on_threads = compilers.jit, compilers.parallel_jit, compilers.on_threads
    plain_jit, prange = compilers.compiler(), numba.prange
else:
    jit = plain_jit = parallel_jit = _as_written
    prange, on_threads = range, _called
