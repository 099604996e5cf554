"""What `auto` sends: changes of what was sent before, as integers of a few bits and their unit.

Columns are measured in units of their root mean squares s, rounded to powers of two: a gradient is sent as g / s, a step as
d s, a row of a sketch as y / s. Without that, one scale for all columns would round small ones to zero.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedns.core.errors import MessageError
from fedns.core.messages import Message, Payload, wire

LARGEST_POWER = 300  # of two, in a reply: squares of numbers in such units can still be added up


class Compact(Message):
    """A message that names neither itself nor its fields: whole rounds take a few hundred bytes."""

    compact: ClassVar[bool] = True


class ScalesRequest(Compact):
    """The server asks how large the columns are."""

    whole_powers: Payload = wire(dtype="uint8")


class ColumnScales(Compact):
    """The root mean square of every column, as the exponent of the nearest power of two."""

    fallback: ClassVar[str] = "others"

    exponents: Payload = wire("features", dtype="small_ints", discloses="moments")

    def check(self) -> None:
        _refuse_large(self.kind, "exponents", self.exponents)


class Move(Compact):
    """A step from the point where the clients are, and what to send from there."""

    step: Payload = wire("features", dtype="small_ints")
    unit: Payload = wire(dtype="float32")
    bits: Payload = wire(dtype="uint8")  # of a number of the gradient's change
    attempt: Payload = wire(dtype="uint8")  # counts the moves of a round: each draws random numbers of its own
    detail: Payload = wire(dtype="int32")  # rows of a sketch of a client of mean weight, or bits of a number of a Hessian
    weight: Payload = wire(dtype="float32")  # that mean
    exponents: Payload = wire("scales", dtype="small_ints")  # of the columns, in the first move and with a whole point
    point: Payload = wire("whole", dtype="float64")  # the whole point, where somebody has missed a move


class Change(Compact):
    """How a client's gradient and mean loss have changed since it was last asked."""

    fallback: ClassVar[str] = "unchanged"

    answered: Payload = wire(dtype="uint8", discloses="nothing")  # 1; 0 where a client was away and nothing changed
    loss: Payload = wire(dtype="float32", discloses="loss")
    unit: Payload = wire(dtype="float32", discloses="gradient")
    gradient: Payload = wire("features", dtype="small_ints", discloses="gradient")


class ChangeAndSketch(Change):
    """The same, and a sketch of the root of the Hessian at the new point."""

    row_units: Payload = wire("rows", dtype="small_ints", ragged=True, discloses="sketch")  # in eighths of powers of two
    sketched_root: Payload = wire("rows", "features", dtype="small_ints", ragged=True, discloses="sketch")

    def check(self) -> None:
        _refuse_large(self.kind, "row_units", self.row_units, 8)


class ChangeAndHessian(Change):
    """The same, and how the Hessian has changed."""

    hessian_unit: Payload = wire(dtype="float32", discloses="hessian")
    hessian_triangle: Payload = wire("entries", dtype="small_ints", discloses="hessian")


class RootRequest(Compact):
    """The server asks for the root of the Hessian where a client is."""

    bits: Payload = wire(dtype="uint8")  # of the diagonal, below its leading one


class HessianRoot(Compact):
    """The triangular root of a client's Hessian, penalty included."""

    order: Payload = wire("features", dtype="small_ints", discloses="hessian")
    exponents: Payload = wire("features", dtype="small_ints", discloses="hessian")
    entries: Payload = wire("entries", dtype="small_ints", discloses="hessian")

    def check(self) -> None:
        if not np.array_equal(np.sort(self.order), np.arange(len(self.order))):
            raise MessageError(f"field 'order' of {self.kind} must have every column once")
        _refuse_large(self.kind, "exponents", self.exponents)


class ExactChange(Compact):
    """How gradient, mean loss and Hessian have changed, unrounded: for Hessians that are asked for once."""

    fallback: ClassVar[str] = "unchanged"

    answered: Payload = wire(dtype="uint8", discloses="nothing")
    loss: Payload = wire(dtype="float32", discloses="loss")
    gradient: Payload = wire("features", dtype="float32", discloses="gradient")
    hessian_triangle: Payload = wire("entries", dtype="float32", discloses="hessian")


class VectorRequest(Compact):
    """A vector for the clients to multiply by their own Hessians or the inverses of these."""

    vector: Payload = wire("features", dtype="small_ints")
    unit: Payload = wire(dtype="float32")
    bits: Payload = wire(dtype="uint8")  # of a number of the answer
    attempt: Payload = wire(dtype="uint8")  # counts the vectors of a round: each draws random numbers of its own


class Solved(Compact):
    """That vector times the inverse of a client's Hessian, penalty included."""

    fallback: ClassVar[str] = "others"

    unit: Payload = wire(dtype="float32", discloses="direction")
    solution: Payload = wire("features", dtype="small_ints", discloses="direction")


class Product(Compact):
    """That vector times a client's Hessian, without the penalty."""

    fallback: ClassVar[str] = "others"

    unit: Payload = wire(dtype="float32", discloses="direction")
    product: Payload = wire("features", dtype="small_ints", discloses="direction")


class BackRequest(Compact):
    """The last move went too far: the clients are to look at points on the way back."""

    fractions: Payload = wire("fractions", dtype="float64")


class LossesBack(Compact):
    """How much lower a client's mean loss was on the way, point by point."""

    fallback: ClassVar[str] = "others"

    losses: Payload = wire("fractions", dtype="float32", discloses="loss")


def _refuse_large(kind: str, name: str, powers: Payload, parts: int = 1) -> None:
    """Raise where a power of two, in so many parts of one, is larger than that of any number that could be added up."""
    if np.max(powers, initial=0) > parts * LARGEST_POWER:
        raise MessageError(f"field '{name}' of {kind} has units beyond 2^{LARGEST_POWER}")
