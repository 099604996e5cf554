"""The CUDA sources, compiled for a loss, a layout of rows and a sketch when they are first needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from fedns.numerics.backend import SJLT
from fedns.numerics.gpu.formulas import derivatives_source, value_source

_FOLDER = Path(__file__).parent
NO_SKETCH, GAUSSIAN, RADEMACHER = -1, 4, 5
_MOST_FEATURES = 128  # a thread for each
_MOST_SUMS = 84  # doubles in the registers of a thread
# Groups, rows of a tile and tiles on their way of a block, best first; a block gets at most so much shared memory.
_SHAPES = ((2, 32, 1), (1, 32, 1), (1, 16, 1))
_WIDE_SHAPES = ((2, 24, 1), *_SHAPES)  # where a thread has the sums of two features in its registers
_MOST_SHARED = 110 * 1024
_TYPES = {"float64": "double", "float32": "float", "int16": "short", "int8": "signed char", "uint8": "unsigned char"}


class Layout(NamedTuple):
    """What the fused kernel is compiled for besides the loss."""

    dtype: str
    columns: int
    features: int
    kind: int
    size: int
    weighted: bool
    value: bool


class Fused(NamedTuple):
    """A compiled kernel and how it is launched."""

    kernel: Any
    threads: int
    shared: int


@cache
def kernel(name: str) -> Any:
    """One of the kernels that do not depend on the loss."""
    return _module().get_function(name)


@cache
def _module() -> Any:
    return cp.RawModule(code=(_FOLDER / "random.cu").read_text(), options=("--std=c++17",))


@cache
def fused_kernel(loss: Any, layout: Layout) -> Fused | None:
    """The kernel that reads narrow rows once; None where a row or a sketch is too wide for it."""
    in_registers = 1 if layout.kind in (NO_SKETCH, SJLT) else layout.size + 1
    if layout.features > _MOST_FEATURES or in_registers * _per_thread(layout) > _MOST_SUMS:
        return None
    for groups, tile, stages in _WIDE_SHAPES if _per_thread(layout) > 1 else _SHAPES:
        shared = groups * _group_bytes(layout, tile, stages)
        if shared <= _MOST_SHARED:
            return _compiled(loss, layout, groups, tile, stages, shared)
    return None


def _per_thread(layout: Layout) -> int:
    """PER_THREAD of the source."""
    return 2 if layout.kind not in (NO_SKETCH, SJLT) and layout.features > 32 else 1


def _group_bytes(layout: Layout, tile: int, stages: int) -> int:
    """GROUP_BYTES of the source."""
    tile_bytes = -(-tile * layout.columns * np.dtype(layout.dtype).itemsize // 16) * 16 + 16
    cells = -(-(layout.size + 1) * layout.features // 2) * 2
    pairs = -(-layout.size // 2)
    coefficients = 0 if layout.kind in (NO_SKETCH, SJLT) else tile * (2 * pairs + (0 if pairs % 2 else 2))
    return stages * tile_bytes + 8 * (cells + coefficients + 2 * tile) + 4 * tile


def _compiled(loss: Any, layout: Layout, groups: int, tile: int, stages: int, shared: int) -> Fused:
    settings = {
        "REAL": _TYPES[layout.dtype], "DOUBLES": int(layout.dtype == "float64"), "COLUMNS": layout.columns,
        "FEATURES": layout.features, "KIND": layout.kind, "SIZE": layout.size, "GROUPS": groups, "TILE": tile,
        "STAGES": stages, "WEIGHTED": int(layout.weighted), "VALUE": int(layout.value),
    }  # fmt: skip
    source = "\n".join(
        [
            *(f"#define {name} {value}" for name, value in settings.items()),
            (_FOLDER / "random.cu").read_text(),
            f"__device__ double loss_value(double y, double z) {{ double value; {value_source(loss)} return value; }}",
            "__device__ void loss_derivatives(double y, double z, double &slope, double &curvature) {",
            f"{derivatives_source(loss)} }}",
            (_FOLDER / "fused.cu").read_text(),
        ]
    )
    kernel = cp.RawModule(code=source, options=("--std=c++17",)).get_function("fused_pass")
    kernel.max_dynamic_shared_size_bytes = shared
    return Fused(kernel, groups * -(-layout.features // (32 * _per_thread(layout))) * 32, shared)


@cache
def pointwise(loss: Any) -> tuple[Any, Any]:
    """The loss and its derivatives of arrays: value(y, z), and derivatives(y, z) giving slope and curvature."""
    value = cp.ElementwiseKernel("float64 y, float64 z", "float64 value", value_source(loss), "loss_values")
    derivatives = cp.ElementwiseKernel(
        "float64 y, float64 z", "float64 slope, float64 curvature", derivatives_source(loss), "loss_derivatives"
    )
    return value, derivatives


@cache
def local_steps(loss: Any) -> Any:
    """The mini-batch steps of a client by one block."""
    source = "\n".join(
        [
            (_FOLDER / "random.cu").read_text(),
            "__device__ double loss_slope(double y, double z) { double slope, curvature;",
            f"{derivatives_source(loss)} return slope; }}",
            (_FOLDER / "local_steps.cu").read_text(),
        ]
    )
    return cp.RawModule(code=source, options=("--std=c++17",)).get_function("local_steps")
