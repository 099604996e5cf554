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


def _as_written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself; 64-bit words wrap around as they do in compiled code."""

    @wraps(function)
    def quiet(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*arguments)

    return quiet


if COMPILED:
    from fedns.numerics import jit as compilers

    # Sums may be reordered here, so that they fill vector registers: each of these functions is compiled by itself.
    jit = compilers.compiler(error_model="numpy", fastmath=set(compilers.FUSED | {"reassoc", "nsz"}))
    plain_jit = compilers.compiler()
else:
    jit = plain_jit = _as_written
