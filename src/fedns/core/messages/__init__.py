"""Messages: their fields are what travels, and their encoding (`encoding.py`) is what is counted.

A message class is a frozen dataclass whose fields are declared with `wire`.

Handlers answer for a batch of clients at once. A batch is the same class with a leading client axis on every field; a field
with a different number of rows at each client is a `Ragged`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import ConfigError, MessageError, NonFiniteError
from fedns.core.types import Array, DType

# What a field holds: an array or a scalar; in a batch, an array with a leading client axis or a Ragged.
Payload = Any

CODED = np.dtype("<i2")  # small integers, which travel in as few bits as they need
NUMBER_CODES: dict[DType, int] = {
    np.dtype("<f4"): 1,
    np.dtype("<f8"): 2,
    np.dtype("<i8"): 3,
    np.dtype("<i4"): 4,
    np.dtype("u1"): 5,
    CODED: 6,
}
_FEW = 4096  # numbers that are looked at one by one: to say that a sum may overflow takes longer
WIRE_PRECISIONS: dict[str, DType] = {"float64": np.dtype("<f8"), "float32": np.dtype("<f4")}


class Discloses(StrEnum):
    """What a field of a reply tells about a client's rows. Permissions and budgets of a site go by this."""

    NOTHING = "nothing"  # settings, and what the server sent itself
    SCHEMA = "schema"  # which columns there are
    COUNT = "count"  # numbers of rows, and their weights
    LOSS = "loss"  # mean losses
    MOMENTS = "moments"  # means, variances, histograms and eigenvalues of features over many rows
    HISTOGRAM = "histogram"  # counts and sums of rows in groups with neighbouring predictions or residuals
    GRADIENT = "gradient"  # gradients of the mean loss, and sums with one in them
    DIRECTION = "direction"  # a direction or a model that the client found from its gradients and Hessians
    STEP = "step"  # the length of a step
    SKETCH = "sketch"  # random combinations of rows
    HESSIAN = "hessian"  # the Hessian of the mean loss, parts of it, or changes of it
    SCORES = "scores"  # sums over rows of products of their scores: a Gram matrix of rows, each scaled by its residual
    HAZARD = "hazard"  # how events are spread over time
    ROWS = "rows"  # rows as they are, scaled at most


@dataclass(frozen=True)
class FieldSpec:
    """What a field holds: `real` numbers travel at the run's wire precision, other kinds at their own."""

    dimensions: tuple[str, ...]  # a name per axis; equal names must have equal lengths within a message
    kind: str  # "real", "small_ints" in few bits, or the name of a dtype
    ragged: bool = False  # the first axis differs from client to client: a batch holds a Ragged
    discloses: Discloses | None = None  # every field of a reply has one


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of several clients back to back: client j's are values[offsets[j] : offsets[j + 1]]."""

    values: Array  # (rows of all clients, ...)
    offsets: NDArray[np.int64]  # (clients + 1,)

    def part(self, client: int) -> Array:
        return self.values[self.offsets[client] : self.offsets[client + 1]]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        return self.offsets[1:] - self.offsets[:-1]


def wire(*dimensions: str, dtype: str = "real", ragged: bool = False, discloses: str | None = None) -> Any:
    """Declare a field of a message.

    - dimensions: its axes by name; none for a single number.
    - dtype: "real" is rounded to the run's wire precision, "small_ints" is for small integers in few bits; or a
      numpy dtype, which stays.
    - ragged: clients have different lengths along the first axis.
    - discloses: what it tells about the rows, which every field of a reply must say: one of fedns.Discloses.
    """
    if dtype == "coded":
        warnings.warn(
            'dtype="coded" is "small_ints" now; the former name goes with fedns 0.3', DeprecationWarning, stacklevel=2
        )
        dtype = "small_ints"
    if dtype not in ("real", "small_ints") and np.dtype(dtype).newbyteorder("<") not in NUMBER_CODES:
        raise ConfigError(f"messages cannot carry {dtype}: use real, small_ints, float64, float32, int64, int32 or uint8")
    if discloses is not None and discloses not in set(Discloses):
        raise ConfigError(f"discloses must be one of {', '.join(Discloses)}, got {discloses!r}")
    told = None if discloses is None else Discloses(discloses)
    return dataclasses.field(metadata={"wire": FieldSpec(dimensions, dtype, ragged, told)})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(wire,))
class Message:
    """Base of all messages; subclasses become frozen dataclasses by themselves."""

    kind: ClassVar[str]
    # What is taken for the reply of a client that is away: "nothing", its own "last" one, those of the "others", or zeros
    # where a reply says how something has changed: "unchanged".
    fallback: ClassVar[str] = "nothing"
    compact: ClassVar[bool] = False  # a checksum of kind and fields travels in place of their names
    _specs: ClassVar[dict[str, FieldSpec]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.kind = cls.__name__
        dataclass(frozen=True, eq=False)(cls)

    def check(self) -> None:
        """Raise a MessageError where the values cannot be true of any client, though each is a finite number."""

    @classmethod
    def specs(cls) -> dict[str, FieldSpec]:
        if "_specs" not in cls.__dict__:
            cls._specs = {f.name: f.metadata["wire"] for f in fields(cls)}  # type: ignore[arg-type]
        return cls._specs


M = TypeVar("M", bound=Message)


def split_batch(batch: M, client: int) -> M:
    """One client's message out of a batch."""
    values = {name: getattr(batch, name) for name in batch.specs()}
    return type(batch)(**{n: v.part(client) if isinstance(v, Ragged) else v[client] for n, v in values.items()})


def nothing_changed(like: M) -> M:
    """The reply of a client that is away, where replies are changes: zeros in the shapes of another's, and no rows."""
    values = {name: (np.asarray(getattr(like, name)), spec.ragged) for name, spec in like.specs().items()}
    return type(like)(**{name: np.zeros_like(value[:0] if ragged else value) for name, (value, ragged) in values.items()})


def as_batch(messages: Sequence[M]) -> M:
    """Messages of several clients as one batch; what `split_batch` takes apart."""
    columns: dict[str, Any] = {}
    for name, spec in messages[0].specs().items():
        values = [np.asarray(getattr(message, name)) for message in messages]
        if spec.ragged:
            rows = np.concatenate(values) if len(values) > 1 else values[0]
            columns[name] = Ragged(rows, np.cumsum([0, *map(len, values)]))
        else:
            columns[name] = np.stack(values) if len(values) > 1 else values[0][np.newaxis]
    return type(messages[0])(**columns)


def joined_batches(batches: Sequence[M]) -> M:
    """Batches of replies as one, in order."""
    if len(batches) == 1:
        return batches[0]
    columns = {name: [getattr(batch, name) for batch in batches] for name in batches[0].specs()}
    return type(batches[0])(**{name: _stacked(parts) for name, parts in columns.items()})


def _stacked(parts: list[Any]) -> Any:
    if not isinstance(parts[0], Ragged):
        return np.concatenate(parts)
    counts = np.concatenate([part.counts for part in parts])
    return Ragged(np.concatenate([part.values for part in parts]), np.concatenate([[0], np.cumsum(counts)]))


def as_received(values: Array, number_bytes: int) -> Array:
    """The values after they travelled as real numbers of this size."""
    return values if number_bytes == 8 else values.astype(np.float32).astype(np.float64)


def batch_size(batch: Message) -> int:
    """The number of clients in a batch."""
    first = getattr(batch, next(iter(batch.specs())))
    return len(first.offsets) - 1 if isinstance(first, Ragged) else len(first)


def refuse_shape(kind: str, name: str, dimensions: Sequence[str], shape: tuple[int, ...], lengths: dict[str, int]) -> None:
    """Raise unless a field has these axes. `lengths`: of the axes that are known, to which the others' are added."""
    if len(shape) != len(dimensions):
        raise MessageError(f"field '{name}' of {kind} has {len(shape)} axes, expected {len(dimensions)}")
    expected = tuple(lengths.setdefault(d, length) for d, length in zip(dimensions, shape, strict=True))
    if shape != expected:
        raise MessageError(f"field '{name}' of {kind} has shape {shape}, expected {expected}")


def refuse_batch_shape(batch: Message, clients: int, lengths: dict[str, int]) -> None:
    """Raise unless every field is there for so many clients, with axes as in `refuse_shape`: compiled sums do not look."""
    for name, spec in batch.specs().items():
        value = getattr(batch, name)
        ragged = isinstance(value, Ragged)
        shape = np.shape(value.values if ragged else value)
        held = len(value.offsets) - 1 if ragged else shape[0] if shape else 0
        if held != clients:
            raise MessageError(f"field '{name}' of {batch.kind} holds {held} replies for {clients} clients")
        refuse_shape(batch.kind, name, spec.dimensions[int(ragged) :], shape[1:], lengths)


def batch_on_wire(batch: M, precision: DType, unchecked: Collection[str] = ()) -> M:
    """The batch as it arrives: rounded to the wire precision, and checked to be finite but for the fields `unchecked`."""
    arrived: dict[str, Any] = {}
    for name, spec in batch.specs().items():
        value = getattr(batch, name)
        array = sent = value.values if isinstance(value, Ragged) else np.asarray(value)
        dtype = wire_dtype(spec, precision)
        if array.dtype != dtype:
            array = array.astype(dtype)
        if name not in unchecked:
            refuse_non_finite(batch.kind, name, array)
        if dtype.kind == "f" and dtype.itemsize < 8:
            array = array.astype(np.float64)
        if isinstance(value, Ragged):
            arrived[name] = value if array is sent else dataclasses.replace(value, values=array)
        else:
            arrived[name] = array
    return type(batch)(**arrived)


def refuse_non_finite(kind: str, name: str, array: Array, sums: Array | None = None) -> None:
    """Raise unless every number is finite. `sums`, where they are known, have each of them as a term."""
    if array.dtype.kind != "f":
        return
    terms = array if sums is None else sums
    if terms.size <= _FEW:
        finite = np.isfinite(terms).all()
    else:  # a sum is finite only if all its terms are, and takes less time to find
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(terms.sum())
    # The slower look is for sums that overflow.
    if not finite and not np.isfinite(array).all():
        raise NonFiniteError(f"field '{name}' of {kind} holds NaN or infinite values")


def wire_dtype(spec: FieldSpec, precision: DType) -> DType:
    if spec.kind == "small_ints":
        return CODED
    return precision if spec.kind == "real" else np.dtype(spec.kind).newbyteorder("<")
