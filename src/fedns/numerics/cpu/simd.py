"""Eight doubles at a time, for compiled code: the only way to say in Python what a kernel keeps in registers.

The automatic vectoriser handles the last `columns mod 8` entries of each short row one by one and guards every row against
overlapping arrays, which at 18 or 54 columns costs more than the arithmetic. Processors with narrower registers get the
same results from two or four instructions each. No function here checks bounds.
"""

import inspect
import operator
from functools import update_wrapper
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from fedns.numerics.cpu.emit import (
    DOUBLES,
    LANES,
    Vector,
    Vectors,
    address,
    combined,
    eight_from,
    fetch,
    fused,
    hadamard_of,
    joined,
    lane_mask,
    lane_sums,
    masked_load,
    moved,
    numbers_at,
    parts_of,
    repeated,
    row_part,
    vector,
    widened,
)

_FLAGS = ("contract",)


def _instruction(result: Any, *operands: Any) -> Any:
    """An intrinsic with a result and operands of these types, from a function of the builder and the operands' values."""

    def decorate(emitted: Any) -> Any:
        def typed(typing_context, *_):
            return result(*operands), lambda context, builder, signature, values: emitted(builder, *values)

        update_wrapper(typed, emitted)
        typed.__signature__ = inspect.signature(emitted)  # type: ignore[attr-defined]
        return intrinsic(typed)

    return decorate


@_instruction(vector, types.float64)
def splat(builder, x):
    """The same double in every lane."""
    return repeated(builder, x)


@_instruction(vector, vector, vector, vector)
def fma(builder, a, b, c):
    """a b + c."""
    return builder.fadd(builder.fmul(a, b, flags=_FLAGS), c, flags=_FLAGS)


@_instruction(vector, vector, vector, vector)
def exact_fma(builder, a, b, c):
    """a b + c that stays one operation, whatever is done with it."""
    return fused(builder, a, b, c)


@_instruction(types.float64, vector)
def total(builder, a):
    """The sum of the lanes, by halving: always in the same order."""
    lanes = LANES
    while lanes > 1:
        lanes //= 2
        index = ir.VectorType(ir.IntType(32), lanes)
        low = builder.shuffle_vector(a, a, ir.Constant(index, list(range(lanes))))
        high = builder.shuffle_vector(a, a, ir.Constant(index, list(range(lanes, 2 * lanes))))
        a = builder.fadd(low, high)
    return builder.extract_element(a, ir.Constant(ir.IntType(32), 0))


@_instruction(vector, types.intp)
def unit(builder, lane):
    """1 in one lane, zeros in the others."""
    zeros = ir.Constant(DOUBLES, [0.0] * LANES)
    return builder.insert_element(zeros, ir.Constant(ir.DoubleType(), 1.0), builder.trunc(lane, ir.IntType(32)))


@_instruction(types.float64, vector, types.intp)
def lane(builder, a, index):
    """One of the eight."""
    return builder.extract_element(a, builder.trunc(index, ir.IntType(32)))


@_instruction(vector, vector, types.intp, types.float64)
def with_lane(builder, a, index, x):
    """a with another number in one of the lanes."""
    return builder.insert_element(a, x, builder.trunc(index, ir.IntType(32)))


@_instruction(vector, vector, types.uint64)
def negated_where(builder, a, word):
    """a with another sign in the lanes for which a bit is set: the lowest bit for the first lane, and so on."""
    mask = builder.bitcast(builder.trunc(word, ir.IntType(LANES)), ir.VectorType(ir.IntType(1), LANES))
    return builder.select(mask, builder.fneg(a), a)


@_instruction(types.int64, types.int64)
def one_bits(builder, x):
    """How many bits of a 64-bit word are set."""
    return builder.call(
        cgutils.get_or_insert_function(builder.module, ir.FunctionType(x.type, [x.type]), "llvm.ctpop.i64"), [x]
    )


@_instruction(vector, Vectors(LANES))
def totals(builder, vectors):
    """The sums of the lanes of eight vectors, one in each lane, each in the order of `total`."""
    return lane_sums(builder, parts_of(builder, vectors))


@intrinsic
def load(typing_context, array, index):
    """Elements index : index + 8 of a contiguous array of float64 or of a narrower type."""

    def generate(context, builder, signature, arguments):
        return eight_from(context, builder, signature.args[0], *arguments)

    return vector(array, types.intp), generate


@intrinsic
def load_first(typing_context, array, index, count):
    """The first `count` elements from index on, zeros in the other lanes; nothing beyond is touched."""

    def generate(context, builder, signature, arguments):
        element = context.get_value_type(signature.args[0].dtype)
        pointer = address(context, builder, signature.args[0], *arguments[:2])
        loaded = masked_load(builder, element, pointer, lane_mask(builder, arguments[2]))
        return widened(builder, signature.args[0], loaded)

    return vector(array, types.intp, types.intp), generate


@intrinsic
def store(typing_context, array, index, value):
    """Write eight doubles to a contiguous float64 array."""

    def generate(context, builder, signature, arguments):
        pointer = address(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(pointer, DOUBLES.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@intrinsic
def load_row(typing_context, array, index, rest, more, shape):
    """A row from index on, in as many vectors as `shape`, a tuple, has items: `rest` elements in the last of them, to
    which `more` is added."""

    def generate(context, builder, signature, arguments):
        array, index, rest, more, _ = arguments
        tail = [None] * (shape.count - 1) + [(lane_mask(builder, rest), more)]
        parts = [row_part(context, builder, signature.args[0], array, index, i, last) for i, last in enumerate(tail)]
        return joined(builder, parts)

    return Vectors(shape.count)(array, types.intp, types.intp, vector, shape), generate


@intrinsic
def load_strip(typing_context, array, index, stride, count, shape):
    """The first `count` elements, at most eight, at index, index + stride, ...: a vector for each item of `shape`."""

    def generate(context, builder, signature, arguments):
        element = context.get_value_type(signature.args[0].dtype)
        mask = lane_mask(builder, arguments[3])
        parts = []
        for i in range(shape.count):
            index = moved(builder, arguments[1], i, arguments[2])
            pointer = address(context, builder, signature.args[0], arguments[0], index)
            parts.append(widened(builder, signature.args[0], masked_load(builder, element, pointer, mask)))
        return joined(builder, parts)

    return Vectors(shape.count)(array, types.intp, types.intp, types.intp, shape), generate


@intrinsic
def fetch_strip(typing_context, array, index, stride, shape):
    """Ask memory for the lines of the elements at index, index + stride, ..., one for each item of `shape`."""

    def generate(context, builder, signature, arguments):
        for i in range(shape.count):
            fetch(context, builder, signature.args[0], arguments[0], moved(builder, arguments[1], i, arguments[2]))
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, shape), generate


@intrinsic
def no_strip(typing_context, shape):
    """A vector of zeros for each item of `shape`."""

    def generate(context, builder, signature, arguments):
        return joined(builder, [ir.Constant(DOUBLES, [0.0] * LANES)] * shape.count)

    return Vectors(shape.count)(shape), generate


@intrinsic
def with_ones(typing_context, strip, bits, index):
    """A strip with 1 in each lane whose bit is set in bits[index], bits[index + 1], ..., a byte for each vector."""

    def generate(context, builder, signature, arguments):
        strip, bits, index = arguments
        one, parts = ir.Constant(DOUBLES, [1.0] * LANES), []
        for i, part in enumerate(parts_of(builder, strip)):
            byte = builder.load(address(context, builder, signature.args[1], bits, moved(builder, index, i, 1)))
            parts.append(builder.select(builder.bitcast(byte, ir.VectorType(ir.IntType(1), LANES)), one, part))
        return joined(builder, parts)

    return strip(strip, bits, types.intp), generate


@intrinsic
def store_row(typing_context, array, index, row):
    """Write whole vectors, one after the other, to a contiguous float64 array."""

    def generate(context, builder, signature, arguments):
        for i, part in enumerate(parts_of(builder, arguments[2])):
            pointer = address(context, builder, signature.args[0], arguments[0], moved(builder, arguments[1], i))
            builder.store(part, builder.bitcast(pointer, DOUBLES.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, row), generate


@intrinsic
def combine(typing_context, vectors, coefficients, index, total):
    """total + the sum of the vectors times coefficients[index], coefficients[index + 1], ..., in two chains."""

    def generate(context, builder, signature, arguments):
        numbers = numbers_at(context, builder, signature.args[1], *arguments[1:3], vectors.count)
        return combined(builder, parts_of(builder, arguments[0]), numbers, arguments[3])

    return vector(vectors, coefficients, types.intp, vector), generate


@intrinsic
def scaled_hadamard(typing_context, vectors, coefficients, index):
    """The Hadamard transform of the vectors times coefficients[index], coefficients[index + 1], ...; their number is a
    power of two."""

    def generate(context, builder, signature, arguments):
        numbers = numbers_at(context, builder, signature.args[1], *arguments[1:], vectors.count)
        return joined(builder, hadamard_of(builder, parts_of(builder, arguments[0]), numbers))

    return vectors(vectors, coefficients, types.intp), generate


@intrinsic(prefer_literal=True)
def zeros(typing_context, count):
    """A tuple of as many zeros as the type of `count` says: a shape for `load_row`."""
    shape = types.UniTuple(types.int64, count.literal_value)
    return shape(count), lambda context, builder, signature, arguments: cgutils.get_null_value(context.get_value_type(shape))


@intrinsic
def add_to_each(typing_context, vectors, a):
    """a added to every vector."""

    def generate(context, builder, signature, arguments):
        return joined(builder, [builder.fadd(part, arguments[1]) for part in parts_of(builder, arguments[0])])

    return vectors(vectors, vector), generate


def _unary(name: str) -> Any:
    """A function of every lane for which LLVM has a name."""

    @intrinsic
    def apply(typing_context, a):
        def generate(context, builder, signature, arguments):
            function = ir.FunctionType(DOUBLES, [DOUBLES])
            return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)

        return vector(vector), generate

    return apply


square_root = _unary(f"llvm.sqrt.v{LANES}f64")
_absolute = _unary(f"llvm.fabs.v{LANES}f64")


def _operator(symbol: Any, emit: str) -> None:
    """Let compiled code write `symbol` between two vectors, or between a vector and a number."""

    @intrinsic
    def apply(typing_context, a, b):
        def generate(context, builder, signature, arguments):
            both = [x if x.type == DOUBLES else repeated(builder, x) for x in arguments]
            return getattr(builder, emit)(*both)

        return vector(*(x if isinstance(x, Vector) else types.float64 for x in (a, b))), generate

    @overload(symbol)
    def between(a, b):
        if isinstance(a, Vector) or isinstance(b, Vector):
            return lambda a, b: apply(a, b)
        return None


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


@overload(operator.neg)
def _negative(a):
    return (lambda a: a * -1.0) if isinstance(a, Vector) else None


@overload(abs)
def _magnitude(a):
    return (lambda a: _absolute(a)) if isinstance(a, Vector) else None
