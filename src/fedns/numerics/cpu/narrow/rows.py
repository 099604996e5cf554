"""The code that reads rows which fit the registers, for the loops over them."""

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fedns.numerics.cpu.emit import (
    DOUBLES,
    LANES,
    Vectors,
    fetch,
    fused,
    joined,
    lane_mask,
    moved,
    parts_of,
    row_part,
    vector,
)

MOST_VECTORS = 8  # a row, the coefficients and the gradient take 24 registers of 32
# Doubles after which memory is asked to have a line in the second-level cache: without it the processor waits a third of the
# time where memory is fast. Into the first-level cache, or for narrower numbers, it only costs.
_AHEAD = 2048


class RowCode(NamedTuple):
    """What the code for a row is made from: the array with its type, columns in a row, vectors in a row, and how many
    numbers the last of them has."""

    context: Any
    builder: Any
    kind: Any
    array: Any
    columns: Any
    vectors: int
    rest: Any

    def part(self, row: Any, i: int, more: Any = None) -> Any:
        """Vector i of a row; `more`, if it is given, is added to the last one."""
        index = self.builder.mul(row, self.columns)
        last = (lane_mask(self.builder, self.rest), more) if i + 1 == self.vectors else None
        return row_part(self.context, self.builder, self.kind, self.array, index, i, last)

    def products(self, row: Any, weights: list[Any], more: Any = None) -> Any:
        """Those of a row and the weights, summed lane by lane."""
        total = ir.Constant(DOUBLES, [0.0] * LANES)
        for i, weight in enumerate(weights):
            total = fused(self.builder, self.part(row, i, more), weight, total)
        return total

    def ask_ahead(self, row: Any, i: int) -> None:
        """Ask memory for what lies as far after vector i of a row as takes some time to come."""
        if self.kind.dtype == types.float64:
            far = moved(self.builder, self.builder.mul(row, self.columns), LANES * i + _AHEAD, 1)
            fetch(self.context, self.builder, self.kind, self.array, far)


@intrinsic
def products_of_eight(typing_context, array, first, columns, rest, more, weights):
    """The products of eight rows from `first` on with the weights, summed lane by lane: eight vectors. `more` is added to
    the last vector of every row."""

    def generate(context, builder, signature, arguments):
        array, first, columns, rest, more, weights = arguments
        weights = parts_of(builder, weights)
        rows = RowCode(context, builder, signature.args[0], array, columns, len(weights), rest)
        return joined(builder, [rows.products(moved(builder, first, j, 1), weights, more) for j in range(LANES)])

    return Vectors(LANES)(array, types.intp, types.intp, types.intp, vector, weights), generate
