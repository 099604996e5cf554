"""Sketches applied to a block of rows while it is in cache, each scaled so that E[S'S] = I."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types
from numba.extending import overload

from fedns.numerics.backend import SRHT, SketchPlan
from fedns.numerics.cpu import simd
from fedns.numerics.cpu.dense import dense_add_srht
from fedns.numerics.cpu.formulas import FormulasType, address_of, address_of_parameters, call, type_of
from fedns.numerics.cpu.rows import add_to_buckets, add_transformed, scaled_block
from fedns.numerics.jit import FUSED, jit
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.rng import random_bits
from fedns.numerics.rows import Rows, SparseRows

_ONE = np.uint64(1)
_SHIFT_6, _SHIFT_32, _LOW_6 = np.uint64(6), np.uint64(32), np.uint64(63)


class SketchCode(NamedTuple):
    """A sketch as kernels get it: what a plan says, and addresses of its parameters, of its column formula, and of the code
    that transforms dense rows."""

    kind: int
    nonzeros: int
    block_length: int
    parameters: int = 0
    column: int = 0
    transform: int = 0


def sketch_code(plan: SketchPlan, rows: Rows, in_a_loop: bool = False) -> SketchCode:
    """Compile what this sketch of such rows alone needs, the formula of its columns or their transform, or read it from
    disk. Rows that a loop of their loss transforms need neither."""
    code = SketchCode(int(plan.kind), plan.nonzeros, plan.block_length)
    if in_a_loop:
        return code
    if plan.kind == SRHT and not isinstance(rows, SparseRows | OneHotRows):
        return code._replace(transform=_transform_code(rows[0].dtype, _pays_to_ask_ahead(rows)))
    if plan.columns is None:
        return code
    parameters, column = _column_code(plan.columns)
    return code._replace(parameters=parameters, column=column)


def _pays_to_ask_ahead(rows: Any) -> bool:
    """Whether memory is asked for the next block of rows while this one is transformed. It takes 2 to 24 % off the time;
    where rows are narrow or, up to 64 columns, whole cache lines, it adds to it."""
    columns = rows.shape[1]
    return bool(rows[0].dtype == np.float64) and columns > (64 if columns % 8 == 0 else 48)


@cache
def _transform_code(dtype: Any, ahead: bool) -> int:
    run, number = types.float64[::1], types.int64
    return address_of(
        _transform_ahead if ahead else _transform, from_dtype(dtype)[::1], number, number, number, number, run, run,
        types.boolean, run, types.int64[::1], number, types.float64[:, ::1],
    )  # fmt: skip


@jit
def _transform(flat, columns, position, first, last, slopes, signed, intercept, total, chosen, inner, sketch):
    dense_add_srht(
        flat, columns, None, position, first, last, slopes, signed, intercept, total, chosen, inner, sketch,
    )  # fmt: skip


@jit
def _transform_ahead(flat, columns, position, first, last, slopes, signed, intercept, total, chosen, inner, sketch):
    dense_add_srht(
        flat, columns, True, position, first, last, slopes, signed, intercept, total, chosen, inner, sketch,
    )  # fmt: skip


@cache
def _column_code(columns: Any) -> tuple[int, int]:
    arguments = (type_of(columns), types.uint64, types.uint64, types.int64, types.float64[::1])
    return address_of_parameters(columns), address_of(_column, *arguments)


@jit
def _column(sketch, key0, key1, position, entries):
    _column_of(sketch, key0, key1, position, entries)


def _column_of(sketch, key0, key1, position, entries):
    raise NotImplementedError("compiled code only")


@overload(_column_of, strict=False, inline="always", jit_options={"fastmath": set(FUSED), "error_model": "numpy"})
def _formula_of_column(sketch, key0, key1, position, entries):
    return sketch.method("column") if isinstance(sketch, FormulasType) else None


@jit
def _signs(key0, key1, position, count, scale, root, signed):
    """signed[i] = +-scale root[i], the sign of row position + i of a stream: 64 signs from each word."""
    start = np.uint64(position)
    whole = count // 8 * 8 if position % 8 == 0 else 0
    done = 0
    while done < whole:
        at = start + np.uint64(done)
        bits = random_bits(key0, key1, at >> _SHIFT_6) >> (at & _LOW_6)
        for i in range(done, min(done + 64 - np.int64(at & _LOW_6), whole), 8):
            simd.store(signed, i, simd.negated_where(simd.load(root, i) * scale, bits))
            bits >>= np.uint64(8)
            done += 8
    for i in range(whole, count):
        at = start + np.uint64(i)
        bit = (random_bits(key0, key1, at >> _SHIFT_6) >> (at & _LOW_6)) & _ONE
        signed[i] = (1.0 - 2.0 * np.float64(np.int64(bit))) * (scale * root[i])


@jit
def add_srht(rows, code, position, first, last, slope, root, intercept, chosen, key0, key1, signed, block, total, sketch):
    """S = sqrt(1/k) R H diag(signs). With H_P = H_(P/B) (x) H_B: transform blocks of B rows in cache, then add row
    (r mod B), with the sign of the outer Hadamard entry (r div B, block number), to each sampled output r. The gradient
    goes along, total += sum_i slope[i] x_i."""
    _signs(key0, key1, position, last - first, np.sqrt(1.0 / chosen.size), root, signed)
    add_transformed(rows, code, position, first, last, slope, signed, intercept, total, chosen, block, sketch)


@jit
def add_sjlt(rows, position, first, last, slope, root, intercept, nonzeros, key0, key1, signed, buckets, total, sketch):
    """Each row goes to `nonzeros` distinct outputs with random signs, scaled by sqrt(1 / nonzeros)."""
    count = last - first
    for q in range(nonzeros):
        _draw_buckets(key0, key1, position, count, q, nonzeros, sketch.shape[0], root, signed, buckets)
        add_to_buckets(rows, first, last, slope, total, buckets, signed, intercept, sketch)
        for i in range(count):
            slope[i] = 0.0  # the first draw carried the gradient along


@jit
def _draw_buckets(key0, key1, position, count, q, nonzeros, size, root, signed, buckets):
    """The q-th of each row's distinct outputs, by Floyd's algorithm, and its signed coefficient.

    The q-th draw is below size - nonzeros + q + 1, and a repeat of an earlier one becomes that bound less 1.
    """
    stride = np.uint64(nonzeros)
    start = np.uint64(position) * stride + np.uint64(q)
    bound = np.uint64(size - nonzeros + q + 1)
    scale = np.sqrt(1.0 / nonzeros)
    for i in range(count):
        bits = random_bits(key0, key1, start + np.uint64(i) * stride)
        buckets[i] = np.int64(((bits >> _SHIFT_32) * bound) >> _SHIFT_32)
        signed[i] = (1.0 - 2.0 * np.float64(np.int64(bits & _ONE))) * (scale * root[i])
    if q > 0:
        drawn = np.empty(q, np.int64)
        for i in range(count):
            for earlier in range(q + 1):  # an earlier draw is cheap to make again, and needs no table of its own
                bits = random_bits(key0, key1, start + np.uint64(i) * stride - np.uint64(q - earlier))
                bucket = np.int64(((bits >> _SHIFT_32) * np.uint64(size - nonzeros + earlier + 1)) >> _SHIFT_32)
                for other in range(earlier):
                    if drawn[other] == bucket:
                        bucket = size - nonzeros + earlier
                        break
                if earlier < q:
                    drawn[earlier] = bucket
                else:
                    buckets[i] = bucket


@jit
def add_sampled(rows, position, first, last, root, intercept, chosen, population, sketch):
    """The chosen rows themselves, scaled by sqrt(population / k)."""
    scale = np.sqrt(population / chosen.size)
    low = np.searchsorted(chosen, position)
    high = np.searchsorted(chosen, position + last - first)
    coefficient = np.empty(1)
    for r in range(low, high):
        row = first + chosen[r] - position
        coefficient[0] = scale * root[row - first]
        scaled_block(rows, row, row + 1, coefficient, intercept, sketch[r : r + 1])


@jit
def add_columns(position, count, features, plan, key0, key1, block, sketch):
    """A sketch that is given by its columns, of which row i of the client has number i."""
    entries = np.empty(sketch.shape[0])
    for i in range(count):
        call(plan.column, (plan.parameters, key0, key1, position + i, entries))
        row = block[i]
        for r in range(entries.size):
            output, entry = sketch[r], entries[r]
            for c in range(features):
                output[c] += entry * row[c]
