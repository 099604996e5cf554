"""Eight doubles at a time, for compiled code: the only way to say in Python what a kernel keeps in registers.

The automatic vectoriser handles the last `columns mod 8` entries of each short row one by one and guards every row against
overlapping arrays, which at 18 or 54 columns costs more than the arithmetic. Processors with narrower registers get the
same results from two or four instructions each. No function here checks bounds.
"""

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from fedns.numerics import rng

LANES = 8
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
_WORDS = ir.VectorType(ir.IntType(64), LANES)
_FLAGS = ("contract",)


class Vector(types.Type):
    """Eight doubles in one register."""

    def __init__(self) -> None:
        super().__init__("fedns.Vector")


vector = Vector()


class Vectors(types.Type):
    """Several vectors, each in a register of its own: a row of a narrow matrix, or a strip of several rows."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"fedns.Vectors({count})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, DOUBLES)


@register_model(Vectors)
class _VectorsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, ir.ArrayType(DOUBLES, numba_type.count))


def address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def lane_mask(builder: Any, count: Any, lanes: int = LANES) -> Any:
    """Lanes 0, 1, ... below count."""
    numbers = ir.Constant(ir.VectorType(ir.IntType(64), lanes), list(range(lanes)))
    return builder.icmp_signed("<", numbers, repeated(builder, count, lanes))


def masked_load(builder: Any, element: Any, pointer: Any, mask: Any) -> Any:
    """llvm.masked.load of as many elements as the mask has, zeros where it is not set."""
    lanes = ir.VectorType(element, mask.type.count)
    pointer = builder.bitcast(pointer, lanes.as_pointer())
    kind = "i" if isinstance(element, ir.IntType) else "f"
    name = f"llvm.masked.load.v{lanes.count}{kind}{8 * size_of(element)}.p0"
    signature = ir.FunctionType(lanes, [pointer.type, ir.IntType(32), mask.type, lanes])
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    align = ir.Constant(ir.IntType(32), size_of(element))
    return builder.call(function, [pointer, align, mask, ir.Constant(lanes, None)])


def size_of(element: Any) -> int:
    """Bytes of a stored number."""
    if isinstance(element, ir.IntType):
        return int(element.width) // 8
    return 8 if isinstance(element, ir.DoubleType) else 4


def repeated(builder: Any, x: Any, lanes: int = LANES) -> Any:
    """A number in every lane, for other intrinsics."""
    empty = ir.Constant(ir.VectorType(x.type, lanes), ir.Undefined)
    one = builder.insert_element(empty, x, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, empty, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=_FLAGS), c, flags=_FLAGS)


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c as one operation wherever the processor has it, in the order given: reordering would undo the chains."""
    name = f"llvm.fmuladd.{f'v{a.type.count}f64' if isinstance(a.type, ir.VectorType) else 'f64'}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(a.type, [a.type] * 3), name)
    return builder.call(function, [a, b, c])


def widened(builder: Any, array_type: Any, loaded: Any) -> Any:
    """Elements of an array of this type as doubles: exact, since every type that is stored fits into them."""
    doubles, name = ir.VectorType(ir.DoubleType(), loaded.type.count), str(array_type.dtype)
    if loaded.type == doubles:
        return loaded
    if "int" in name:
        return (builder.uitofp if name.startswith("u") else builder.sitofp)(loaded, doubles)
    return builder.fpext(loaded, doubles)


def eight_from(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Elements index : index + 8 as doubles."""
    element = context.get_value_type(array_type.dtype)
    pointer = address(context, builder, array_type, array, index)
    pointer = builder.bitcast(pointer, ir.VectorType(element, LANES).as_pointer())
    return widened(builder, array_type, builder.load(pointer, align=size_of(element)))


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
def splat(typing_context, x):
    """The same double in every lane."""

    return vector(types.float64), lambda context, builder, signature, arguments: repeated(builder, arguments[0])


@intrinsic
def fma(typing_context, a, b, c):
    """a b + c."""

    def generate(context, builder, signature, arguments):
        return _fma(builder, *arguments)

    return vector(vector, vector, vector), generate


@intrinsic
def exact_fma(typing_context, a, b, c):
    """a b + c that stays one operation, whatever is done with it."""

    def generate(context, builder, signature, arguments):
        return fused(builder, *arguments)

    return vector(vector, vector, vector), generate


@intrinsic
def add(typing_context, a, b):
    """a + b."""
    return vector(vector, vector), lambda context, builder, signature, arguments: builder.fadd(*arguments)


@intrinsic
def subtract(typing_context, a, b):
    """a - b."""
    return vector(vector, vector), lambda context, builder, signature, arguments: builder.fsub(*arguments)


@intrinsic
def total(typing_context, a):
    """The sum of the lanes, by halving: always in the same order."""

    def generate(context, builder, signature, arguments):
        value, lanes = arguments[0], LANES
        while lanes > 1:
            lanes //= 2
            index = ir.VectorType(ir.IntType(32), lanes)
            low = builder.shuffle_vector(value, value, ir.Constant(index, list(range(lanes))))
            high = builder.shuffle_vector(value, value, ir.Constant(index, list(range(lanes, 2 * lanes))))
            value = builder.fadd(low, high)
        return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return types.float64(vector), generate


def first_lanes(builder: Any, count: int, *vectors: Any) -> list[Any]:
    """So many lanes of each vector."""
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(count)))
    return [builder.shuffle_vector(one, one, lanes) if count < LANES else one for one in vectors]


def parts_of(builder: Any, vectors: Any) -> list[Any]:
    return [builder.extract_value(vectors, i) for i in range(vectors.type.count)]


def joined(builder: Any, parts: list[Any]) -> Any:
    vectors = ir.Constant(ir.ArrayType(DOUBLES, len(parts)), ir.Undefined)
    for i, part in enumerate(parts):
        vectors = builder.insert_value(vectors, part, i)
    return vectors


def moved(builder: Any, index: Any, steps: int, stride: Any = LANES) -> Any:
    """index + steps stride."""
    stride = ir.Constant(index.type, stride) if isinstance(stride, int) else stride
    return builder.add(index, builder.mul(stride, ir.Constant(index.type, steps)))


def row_part(context: Any, builder: Any, array_type: Any, array: Any, index: Any, i: int, last: Any) -> Any:
    """Vector i of a row that starts at index; `last` is None, or the last vector's mask and what is added to it,
    if anything."""
    element = context.get_value_type(array_type.dtype)
    pointer = address(context, builder, array_type, array, moved(builder, index, i))
    if last is not None:
        part = widened(builder, array_type, masked_load(builder, element, pointer, last[0]))
        return part if last[1] is None else builder.fadd(part, last[1])
    pointer = builder.bitcast(pointer, ir.VectorType(element, LANES).as_pointer())
    return widened(builder, array_type, builder.load(pointer, align=size_of(element)))


def fetch(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> None:
    """Ask memory for the line of an element, into the second-level cache; it need not exist."""
    place = builder.bitcast(address(context, builder, array_type, array, index), ir.IntType(8).as_pointer())
    flag = ir.IntType(32)
    signature = ir.FunctionType(ir.VoidType(), [place.type, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    builder.call(function, [place, *(ir.Constant(flag, setting) for setting in (0, 2, 1))])  # to read, second level, data


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


def numbers_at(context: Any, builder: Any, array_type: Any, array: Any, index: Any, count: int) -> list[Any]:
    """Elements index, index + 1, ... of an array."""
    places = (address(context, builder, array_type, array, moved(builder, index, i, 1)) for i in range(count))
    return [builder.load(place) for place in places]


def combined(builder: Any, parts: list[Any], coefficients: list[Any], total: Any) -> Any:
    """total + the sum of the parts times their coefficients, in two chains."""
    chains = [total, ir.Constant(total.type, None)]
    for i, (part, coefficient) in enumerate(zip(parts, coefficients, strict=True)):
        chains[i % 2] = fused(builder, part, repeated(builder, coefficient, part.type.count), chains[i % 2])
    return builder.fadd(*chains)


def hadamard_of(builder: Any, parts: list[Any], coefficients: list[Any]) -> list[Any]:
    """The Hadamard transform of the parts times their coefficients; their number is a power of two. The first stage is two
    fused operations on one product."""
    parts = parts.copy()
    for i in range(0, len(parts), 2):
        first, second = (repeated(builder, coefficients[i + j], parts[i].type.count) for j in range(2))
        product = builder.fmul(parts[i + 1], second)
        parts[i], parts[i + 1] = (
            fused(builder, parts[i], first, product),
            fused(builder, parts[i], first, builder.fneg(product)),
        )
    half = 2
    while half < len(parts):
        for i in (i for i in range(len(parts)) if not i & half):
            a, b = parts[i], parts[i + half]
            parts[i], parts[i + half] = builder.fadd(a, b), builder.fsub(a, b)
        half *= 2
    return parts


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


@intrinsic
def unit(typing_context, lane):
    """1 in one lane, zeros in the others."""

    def generate(context, builder, signature, arguments):
        zeros = ir.Constant(DOUBLES, [0.0] * LANES)
        return builder.insert_element(zeros, ir.Constant(ir.DoubleType(), 1.0), builder.trunc(arguments[0], ir.IntType(32)))

    return vector(types.intp), generate


@intrinsic
def lane(typing_context, a, index):
    """One of the eight."""

    def generate(context, builder, signature, arguments):
        return builder.extract_element(arguments[0], builder.trunc(arguments[1], ir.IntType(32)))

    return types.float64(vector, types.intp), generate


@intrinsic
def with_lane(typing_context, a, index, x):
    """a with another number in one of the lanes."""

    def generate(context, builder, signature, arguments):
        return builder.insert_element(arguments[0], arguments[2], builder.trunc(arguments[1], ir.IntType(32)))

    return vector(vector, types.intp, types.float64), generate


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


def lane_sums(builder: Any, parts: list[Any]) -> Any:
    """The sums of the lanes of eight vectors, one in each lane, each in the order of `total`."""
    half, index = LANES // 2, ir.VectorType(ir.IntType(32), LANES)
    while half > 0:
        # Lanes whose number has the bit `half` come from the second vector, the others from the first.
        low = [i if not i & half else LANES + i - half for i in range(LANES)]
        high = [i + half for i in low]
        parts = [
            builder.fadd(
                builder.shuffle_vector(a, b, ir.Constant(index, low)),
                builder.shuffle_vector(a, b, ir.Constant(index, high)),
            )
            for a, b in zip(parts[:half], parts[half:], strict=True)
        ]
        half //= 2
    return parts[0]


@intrinsic
def totals(typing_context, vectors):
    """The sums of the lanes of eight vectors, one in each lane, each in the order of `total`."""

    def generate(context, builder, signature, arguments):
        return lane_sums(builder, parts_of(builder, arguments[0]))

    return vector(vectors), generate


@intrinsic
def negated_where(typing_context, a, word):
    """a with another sign in the lanes for which a bit is set: the lowest bit for the first lane, and so on."""

    def generate(context, builder, signature, arguments):
        byte = builder.trunc(arguments[1], ir.IntType(LANES))
        mask = builder.bitcast(byte, ir.VectorType(ir.IntType(1), LANES))
        return builder.select(mask, builder.fneg(arguments[0]), arguments[0])

    return vector(vector, types.uint64), generate


def _every(word: Any) -> Any:
    return ir.Constant(_WORDS, [int(word)] * LANES)


def _mixed(builder: Any, x: Any) -> Any:
    """`rng.mix` of eight words."""
    for shift, factor in ((rng.SHIFTS[0], rng.FACTORS[0]), (rng.SHIFTS[1], rng.FACTORS[1])):
        x = builder.mul(builder.xor(x, builder.lshr(x, _every(shift))), _every(factor))
    return builder.xor(x, builder.lshr(x, _every(rng.SHIFTS[2])))


@intrinsic
def draw_buckets(typing_context, key0, key1, index, size, width, root, places, at):
    """For eight rows, index, index + 1, ...: places[at + i] = width * bucket, of `size` buckets, and the roots with
    their signs, from `rng.random_bits` of each row: the upper half of the bits gives the bucket, the lowest one the sign."""

    def generate(context, builder, signature, arguments):
        key0, key1, index, size, width, root, places, at = arguments
        counter = builder.add(repeated(builder, index), ir.Constant(_WORDS, list(range(LANES))))
        first = _mixed(builder, builder.add(repeated(builder, key0), builder.mul(counter, _every(rng.GOLDEN))))
        bits = _mixed(builder, builder.xor(first, repeated(builder, key1)))
        bucket = builder.lshr(builder.mul(builder.lshr(bits, _every(32)), repeated(builder, size)), _every(32))
        pointer = address(context, builder, signature.args[6], places, at)
        cell = builder.mul(bucket, repeated(builder, width))
        builder.store(cell, builder.bitcast(pointer, _WORDS.as_pointer()), align=8)
        sign = builder.shl(bits, _every(63))
        return builder.bitcast(builder.xor(builder.bitcast(root, _WORDS), sign), DOUBLES)

    word, number = types.uint64, types.int64
    return vector(word, word, number, number, number, vector, places, number), generate


@intrinsic
def one_bits(typing_context, x):
    """How many bits of a 64-bit word are set."""

    def generate(context, builder, signature, arguments):
        word = arguments[0].type
        count = cgutils.get_or_insert_function(builder.module, ir.FunctionType(word, [word]), "llvm.ctpop.i64")
        return builder.call(count, arguments)

    return types.int64(types.int64), generate


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
