"""Eight doubles at a time, for compiled code: the only way to say in Python what a kernel keeps in registers.

The automatic vectoriser handles the last `columns mod 8` entries of each short row one by one and guards every row against
overlapping arrays, which at 18 or 54 columns costs more than the arithmetic. Processors with narrower registers get the
same results from two or four instructions each. No function here checks bounds.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 8
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
_FLAGS = ("reassoc", "contract", "nsz")


class Vector(types.Type):
    """Eight doubles in one register."""

    def __init__(self) -> None:
        super().__init__("fedns.Vector")


vector = Vector()


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, _DOUBLES)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _lane_mask(builder: Any, count: Any) -> Any:
    """Lanes 0, 1, ... below count."""
    lanes = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(LANES)))
    empty = ir.Constant(ir.VectorType(ir.IntType(64), LANES), ir.Undefined)
    one = builder.insert_element(empty, count, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.icmp_signed("<", lanes, builder.shuffle_vector(one, empty, zeros))


def _masked_load(builder: Any, element: Any, pointer: Any, mask: Any) -> Any:
    """llvm.masked.load of eight elements, zeros where the mask is not set."""
    lanes = ir.VectorType(element, LANES)
    pointer = builder.bitcast(pointer, lanes.as_pointer())
    name = f"llvm.masked.load.v{LANES}{'f64' if isinstance(element, ir.DoubleType) else 'f32'}.p0"
    flags = ir.VectorType(ir.IntType(1), LANES)
    signature = ir.FunctionType(lanes, [pointer.type, ir.IntType(32), flags, lanes])
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    align = ir.Constant(ir.IntType(32), _size(element))
    return builder.call(function, [pointer, align, mask, ir.Constant(lanes, [0.0] * LANES)])


def _size(element: Any) -> int:
    return 8 if isinstance(element, ir.DoubleType) else 4


def _widen(builder: Any, loaded: Any) -> Any:
    return loaded if loaded.type == _DOUBLES else builder.fpext(loaded, _DOUBLES)


@intrinsic
def load(typing_context, array, index):
    """Elements index : index + 8 of a contiguous array of float64 or float32."""

    def generate(context, builder, signature, arguments):
        element = context.get_value_type(signature.args[0].dtype)
        pointer = _address(context, builder, signature.args[0], *arguments)
        pointer = builder.bitcast(pointer, ir.VectorType(element, LANES).as_pointer())
        return _widen(builder, builder.load(pointer, align=_size(element)))

    return vector(array, types.intp), generate


@intrinsic
def load_first(typing_context, array, index, count):
    """The first `count` elements from index on, zeros in the other lanes; nothing beyond is touched."""

    def generate(context, builder, signature, arguments):
        element = context.get_value_type(signature.args[0].dtype)
        pointer = _address(context, builder, signature.args[0], *arguments[:2])
        return _widen(builder, _masked_load(builder, element, pointer, _lane_mask(builder, arguments[2])))

    return vector(array, types.intp, types.intp), generate


@intrinsic
def store(typing_context, array, index, value):
    """Write eight doubles to a contiguous float64 array."""

    def generate(context, builder, signature, arguments):
        pointer = _address(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(pointer, _DOUBLES.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@intrinsic
def splat(typing_context, x):
    """The same double in every lane."""

    def generate(context, builder, signature, arguments):
        empty = ir.Constant(_DOUBLES, ir.Undefined)
        one = builder.insert_element(empty, arguments[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(one, empty, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

    return vector(types.float64), generate


@intrinsic
def fma(typing_context, a, b, c):
    """a b + c."""

    def generate(context, builder, signature, arguments):
        product = builder.fmul(arguments[0], arguments[1], flags=_FLAGS)
        return builder.fadd(product, arguments[2], flags=_FLAGS)

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
def multiply(typing_context, a, b):
    """a b."""
    return vector(vector, vector), lambda context, builder, signature, arguments: builder.fmul(*arguments)


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
