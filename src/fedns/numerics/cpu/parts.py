"""A kernel over parts of its segments, on threads.

numba's own way to threads, `parallel=True`, optimises whatever it calls four times over. Here a single function is compiled
that way, once for all kernels: it calls the code at an address with each part. What a kernel needs of its own is a few
instructions that read its arguments from the caller's memory.
"""

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from fedns.numerics.cpu.formulas import address_of, call, call_at
from fedns.numerics.jit import on_threads, parallel_jit

_NUMBER = types.int64
_WORD = ir.IntType(64)


@intrinsic
def take(typing_context, taken, part):
    """True to one thread alone, the first that asks for this part; later ones need not wait for each other."""

    def generate(context, builder, signature, arguments):
        array = cgutils.create_struct_proxy(taken)(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        is_free = builder.icmp_signed("==", builder.load(place), _WORD(0))
        result = cgutils.alloca_once_value(builder, is_free)
        with builder.if_then(is_free):
            before = builder.atomic_rmw("xchg", place, _WORD(1), "monotonic")
            builder.store(builder.icmp_signed("==", before, _WORD(0)), result)
        return builder.load(result)

    return types.boolean(taken, _NUMBER), generate


@intrinsic
def told(typing_context, counts, place):
    """What `tell` has said last; all that was written before that is there."""

    def generate(context, builder, signature, arguments):
        array = cgutils.create_struct_proxy(counts)(context, builder, arguments[0])
        return builder.load_atomic(builder.gep(array.data, [arguments[1]]), ordering="acquire", align=8)

    return _NUMBER(counts, _NUMBER), generate


@intrinsic
def tell(typing_context, counts, place, count):
    """counts[place] = count, for threads that wait for it."""

    def generate(context, builder, signature, arguments):
        array = cgutils.create_struct_proxy(counts)(context, builder, arguments[0])
        builder.store_atomic(arguments[2], builder.gep(array.data, [arguments[1]]), ordering="release", align=8)
        return context.get_dummy_value()

    return types.void(counts, _NUMBER, _NUMBER), generate


# A thread begins where numba's loop does: its own half of the parts, of two threads, is the same in every pass, and what it
# writes stays in its cache. Then it takes what others have not come to: on a busy machine a thread may not run at all for
# milliseconds, and numba gives every thread as many iterations as any other, whatever its chunk size.
@parallel_jit
def _call_with_parts(code, arguments, parts):
    taken = np.empty(parts + 1, np.int64)  # the last one says that all are
    for part in range(parts + 1):
        taken[part] = 0
    for first in prange(parts):
        for further in range(parts if taken[parts] == 0 else 0):
            part = (first + further) % parts
            if take(taken, part):
                call(code, (arguments, part))
        taken[parts] = 1


def launch(kernel_in_parts: Any, cuts: Any, *arguments: Any) -> None:
    """Call a function that is written with `in_parts`, with as many threads as are allowed and find work."""
    on_threads(kernel_in_parts, _starter(), cuts, *arguments, parts=cuts.size - 1)


@cache
def _starter() -> int:
    return address_of(_call_with_parts, _NUMBER, _NUMBER, _NUMBER)


@intrinsic
def in_parts(typing_context, starter, kernel, cuts, before, after):
    """kernel(*before, cuts[part], cuts[part + 1], *after) for every part; `starter` comes from `launch`."""
    own = typing_context.resolve_function_type(kernel, (*before, _NUMBER, _NUMBER, *after), {})

    def generate(context, builder, signature, values):
        array = cgutils.create_struct_proxy(cuts)(context, builder, values[2])
        shared = [array.data, *cgutils.unpack_tuple(builder, values[3]), *cgutils.unpack_tuple(builder, values[4])]
        memory = cgutils.alloca_once_value(builder, cgutils.pack_struct(builder, shared))
        function = context.get_function(kernel, own)
        code = _code_for_a_part(context, builder.module, function, memory.type, (*before, *after), before.count)
        parts = builder.sub(array.nitems, _WORD(1))
        start = [builder.ptrtoint(code, _WORD), builder.ptrtoint(memory, _WORD), parts]
        call_at(context, builder, values[0], [_NUMBER] * 3, start)
        return context.get_dummy_value()

    return types.void(_NUMBER, kernel, cuts, before, after), generate


def _code_for_a_part(context: Any, module: Any, function: Any, memory_type: Any, kinds: Any, before: int) -> Any:
    """What is called with the address of cuts and arguments of these types, and the number of a part."""
    convention = context.call_conv
    kind = convention.get_function_type(types.none, [_NUMBER, _NUMBER])
    code = ir.Function(module, kind, module.get_unique_name("part"))
    code.linkage = "internal"
    builder = ir.IRBuilder(code.append_basic_block())
    address, part = convention.get_arguments(code)
    cuts, *arguments = cgutils.unpack_tuple(builder, builder.load(builder.inttoptr(address, memory_type)))
    arguments = [_borrowed(context, builder, kind, value) for kind, value in zip(kinds, arguments, strict=True)]
    low, high = (builder.load(builder.gep(cuts, [builder.add(part, _WORD(i))])) for i in range(2))
    function(builder, [*arguments[:before], low, high, *arguments[before:]])
    convention.return_value(builder, context.get_dummy_value())
    return code


# Threads that count references to the same array, atomically, wait for each other, and kernels count with every call.
def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """An argument whose arrays have no counter: the caller holds them for as long as the threads run."""
    if isinstance(kind, types.BaseTuple):
        kinds, items = iter(kind), cgutils.unpack_tuple(builder, value)  # type: ignore[call-overload]
        return context.make_tuple(builder, kind, [_borrowed(context, builder, next(kinds), item) for item in items])
    if isinstance(kind, types.Array):
        counter = context.data_model_manager[kind].get_field_position("meminfo")
        return builder.insert_value(value, ir.Constant(value.type.elements[counter], None), counter)
    return value
