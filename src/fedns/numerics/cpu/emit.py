"""Types of vectors, and functions that emit LLVM's instructions for eight doubles at a time: what intrinsics are made of.

`simd.py` has the intrinsics that kernels call; loops over narrow and one-hot rows have intrinsics of their own.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

LANES = 8
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)


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


def lane_mask(builder: Any, count: Any) -> Any:
    """Lanes 0, 1, ... below count."""
    numbers = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(LANES)))
    return builder.icmp_signed("<", numbers, repeated(builder, count))


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


def repeated(builder: Any, x: Any) -> Any:
    """A number in every lane, for other intrinsics."""
    empty = ir.Constant(ir.VectorType(x.type, LANES), ir.Undefined)
    one = builder.insert_element(empty, x, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, empty, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


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


def numbers_at(context: Any, builder: Any, array_type: Any, array: Any, index: Any, count: int) -> list[Any]:
    """Elements index, index + 1, ... of an array."""
    places = (address(context, builder, array_type, array, moved(builder, index, i, 1)) for i in range(count))
    return [builder.load(place) for place in places]


def combined(builder: Any, parts: list[Any], coefficients: list[Any], total: Any) -> Any:
    """total + the sum of the parts times their coefficients, in two chains."""
    chains = [total, ir.Constant(total.type, None)]
    for i, (part, coefficient) in enumerate(zip(parts, coefficients, strict=True)):
        chains[i % 2] = fused(builder, part, repeated(builder, coefficient), chains[i % 2])
    return builder.fadd(*chains)


def hadamard_of(builder: Any, parts: list[Any], coefficients: list[Any]) -> list[Any]:
    """The Hadamard transform of the parts times their coefficients; their number is a power of two. The first stage is two
    fused operations on one product."""
    parts = parts.copy()
    for i in range(0, len(parts), 2):
        first, second = (repeated(builder, coefficients[i + j]) for j in range(2))
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
