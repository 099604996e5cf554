"""Targets as the loops over sketches read them: a byte each where all are small integers, as classes and most counts are."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from fedns.numerics.cpu import simd


class Targets(NamedTuple):
    """The targets of some rows, and the same again in a byte each, which is an eighth of the memory to read."""

    numbers: NDArray[np.float64]
    small: NDArray[np.int8] = np.empty(0, np.int8)  # none at all where one of them is no small integer


TARGETS: Any = types.NamedTuple([types.float64[::1], types.int8[::1]], Targets)


# Not in Python's words: those would count a reference to an array, atomically, for every eight rows.
@intrinsic
def eight_targets(typing_context, targets, index):
    """Those of rows index : index + 8, as doubles in one register."""

    def generate(context, builder, signature, arguments):
        numbers, small = cgutils.unpack_tuple(builder, arguments[0])
        count = cgutils.create_struct_proxy(TARGETS[1])(context, builder, small).nitems
        found = cgutils.alloca_once(builder, simd.DOUBLES)
        with builder.if_else(builder.icmp_signed(">", count, count.type(0))) as (in_bytes, in_doubles):
            for kind, array, case in ((TARGETS[1], small, in_bytes), (TARGETS[0], numbers, in_doubles)):
                with case:
                    builder.store(simd.eight_from(context, builder, kind, array, arguments[1]), found)
        return builder.load(found)

    return simd.vector(targets, types.intp), generate


@njit(inline="always")
def targets_from(targets, first):
    """Those of rows from `first` on."""
    return Targets(targets.numbers[first:], targets.small[first:])
