"""Messages: their fields are what travels, and their encoding is what is counted.

A message class is a frozen dataclass whose fields are declared with `wire`. Encoded, a message is a short header (kind,
round, client, field names, types and shapes) followed by the raw arrays. There is no pickle: decoding can only make arrays.

Handlers answer for a batch of clients at once. A batch is the same class with a leading client axis on every field; a field
with a different number of rows at each client is a `Ragged`.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import ConfigError, MessageError, NonFiniteError
from fedns.numerics.coding import coded_bytes, decode_integers, encode_integers

Array = NDArray[Any]
# What a field holds: an array or a scalar; in a batch, an array with a leading client axis or a Ragged.
Payload = Any

MAGIC = 0xF5
VERSION, COMPACT_VERSION = 1, 2
CODED = np.dtype("<i2")  # small integers, which travel in as few bits as they need
EVERYONE = 0xFFFFFFFF  # the client number of a request to all
_PREFIX, _COMPACT_PREFIX = struct.Struct("<BBII"), struct.Struct("<BBHH")
_SHORT_EVERYONE = 0xFFFF
_MOST_ENTRIES = 2**48
_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i8"),
    4: np.dtype("<i4"),
    5: np.dtype("u1"),
    6: CODED,
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
WIRE_PRECISIONS: dict[str, np.dtype[Any]] = {"float64": np.dtype("<f8"), "float32": np.dtype("<f4")}


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
    ROWS = "rows"  # rows as they are, scaled at most


@dataclass(frozen=True)
class FieldSpec:
    """What a field holds: `real` numbers travel at the run's wire precision, other kinds at their own."""

    dimensions: tuple[str, ...]  # a name per axis; equal names must have equal lengths within a message
    kind: str  # "real", "coded" for small integers, or the name of a dtype
    ragged: bool = False  # the first axis differs from client to client: a batch holds a Ragged
    discloses: Discloses | None = None  # every field of a reply has one


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of several clients back to back: client j's are values[offsets[j] : offsets[j + 1]]."""

    values: Array  # (rows of all clients, ...)
    offsets: NDArray[np.int64]  # (clients + 1,)

    def part(self, client: int) -> Array:
        return self.values[self.offsets[client] : self.offsets[client + 1]]

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)


def wire(*dimensions: str, dtype: str = "real", ragged: bool = False, discloses: str | None = None) -> Any:
    """Declare a field of a message.

    - dimensions: its axes by name; none for a single number.
    - dtype: "real" is rounded to the run's wire precision, "coded" is for small integers; or a numpy dtype, which stays.
    - ragged: clients have different lengths along the first axis.
    - discloses: what it tells about the rows, which every field of a reply must say: one of fedns.Discloses.
    """
    if dtype not in ("real", "coded") and np.dtype(dtype).newbyteorder("<") not in _CODES:
        raise ConfigError(f"messages cannot carry {dtype}: use real, coded, float64, float32, int64, int32 or uint8")
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


@dataclass(frozen=True)
class Envelope:
    """Who a message is for: the round and client it belongs to and, in a request, the handler that answers it."""

    round: int
    client: int = EVERYONE
    handler: str = ""


def encode(message: Message, envelope: Envelope, precision: np.dtype[Any]) -> bytes:
    """Header and arrays of one message."""
    arrays = [
        np.asarray(getattr(message, name), dtype=wire_dtype(spec, precision)) for name, spec in message.specs().items()
    ]
    return header(type(message), envelope, arrays) + b"".join(_body(array) for array in arrays)


def _body(array: Array) -> bytes:
    return encode_integers(array) if array.dtype == CODED else array.tobytes()


def header(cls: type[Message], envelope: Envelope, arrays: list[Array]) -> bytes:
    """Everything that precedes the arrays. Only shapes and dtypes of the arrays matter."""
    if cls.compact:
        parts = [_compact_prefix(cls, envelope), layout_checksum(cls), _text(envelope.handler)]
    else:
        parts = [_PREFIX.pack(MAGIC, VERSION, envelope.round, envelope.client), _text(cls.kind), _text(envelope.handler)]
        parts.append(bytes([len(arrays)]))
    for name, array in zip(cls.specs(), arrays, strict=True):
        parts.append((b"" if cls.compact else _text(name)) + bytes([_CODES[array.dtype] << 4 | array.ndim]))
        parts.extend(_varint(length) for length in array.shape)
    return b"".join(parts)


def _compact_prefix(cls: type[Message], envelope: Envelope) -> bytes:
    client = _SHORT_EVERYONE if envelope.client == EVERYONE else envelope.client
    if envelope.round > 0xFFFF or (envelope.client != EVERYONE and client >= _SHORT_EVERYONE):
        raise ConfigError(f"{cls.kind} messages are for up to 65535 rounds and clients")
    return _COMPACT_PREFIX.pack(MAGIC, COMPACT_VERSION, envelope.round, client)


def layout_checksum(cls: type[Message]) -> bytes:
    """Four bytes that tell a kind of message with its fields from every other."""
    fields = ";".join(f"{name}:{spec.kind}:{','.join(spec.dimensions)}" for name, spec in cls.specs().items())
    return struct.pack("<I", zlib.crc32(f"{cls.kind};{fields}".encode()))


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


def joined(batches: Sequence[M]) -> M:
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


def batch_bytes(batch: Message, precision: np.dtype[Any]) -> NDArray[np.int64]:
    """The encoded length of each client's message, (clients,): the header as `encode` writes it plus the arrays' bytes."""
    specs = batch.specs()
    counts, shapes = [], []
    for name in specs:
        value = getattr(batch, name)
        ragged = isinstance(value, Ragged)
        counts.append(value.counts if ragged else None)
        shapes.append((value.values if ragged else value).shape[1:])
    rows = [c for c in counts if c is not None]
    clients = batch_size(batch)
    table = np.stack(rows, axis=1) if rows else np.zeros((clients, 0), dtype=np.int64)
    if (table == table[:1]).all():  # the usual case, and much cheaper to find out
        distinct, which = table[:1], np.zeros(clients, dtype=np.int64)
    else:
        distinct, which = np.unique(table, axis=0, return_inverse=True)
    lengths = np.empty(len(distinct), dtype=np.int64)
    for case, lengths_of_case in enumerate(distinct):
        remaining = iter(lengths_of_case.tolist())
        layout = tuple(
            (wire_dtype(spec, precision), shape if c is None else (next(remaining), *shape))
            for spec, c, shape in zip(specs.values(), counts, shapes, strict=True)
        )
        lengths[case] = _encoded_length(type(batch), layout)  # type: ignore[arg-type]
    return lengths[which.reshape(-1)] + sum(
        coded_bytes(value.values, value.offsets) if isinstance(value, Ragged) else coded_bytes(value)
        for value in (getattr(batch, name) for name, spec in specs.items() if spec.kind == "coded")
    )


@lru_cache(maxsize=256)
def _encoded_length(cls: Any, layout: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]) -> int:
    """The length of a reply with arrays of these types and shapes. Round and client take the same room whatever they are."""
    arrays = [np.broadcast_to(np.zeros((), dtype=dtype), shape) for dtype, shape in layout]
    return len(header(cls, Envelope(0, 0), arrays)) + sum(a.nbytes for a in arrays if a.dtype != CODED)


def batch_size(batch: Message) -> int:
    """The number of clients in a batch."""
    first = getattr(batch, next(iter(batch.specs())))
    return len(first.offsets) - 1 if isinstance(first, Ragged) else len(first)


def batch_on_wire(batch: M, precision: np.dtype[Any]) -> M:
    """The batch as it arrives: rounded to the wire precision, and checked to be finite."""
    arrived: dict[str, Any] = {}
    for name, spec in batch.specs().items():
        value = getattr(batch, name)
        array = value.values if isinstance(value, Ragged) else np.asarray(value)
        dtype = wire_dtype(spec, precision)
        if array.dtype != dtype:
            array = array.astype(dtype)
        refuse_non_finite(batch.kind, name, array)
        if dtype.kind == "f" and dtype.itemsize < 8:
            array = array.astype(np.float64)
        arrived[name] = dataclasses.replace(value, values=array) if isinstance(value, Ragged) else array
    return type(batch)(**arrived)


def decode(cls: type[M], data: bytes, dimensions: Mapping[str, int] | None = None) -> tuple[M, Envelope]:
    """The message and its envelope. Checks kind, field names, dtypes, shapes, length and finiteness.

    `dimensions` fixes the lengths of named axes that the receiver knows.
    """
    reader = _Reader(data, cls.kind)
    magic, version, round, client = reader.unpack(_COMPACT_PREFIX if cls.compact else _PREFIX)
    client = EVERYONE if cls.compact and client == _SHORT_EVERYONE else client
    expected = COMPACT_VERSION if cls.compact else VERSION
    if magic != MAGIC or version != expected:
        raise MessageError(f"not a fedns message of version {expected}: it starts with bytes {magic:#x}, {version}")
    specs = cls.specs()
    if cls.compact:
        if bytes(reader.take(4)) != layout_checksum(cls):
            raise MessageError(f"expected a {cls.kind} message with fields {', '.join(specs)}, got another")
        handler = reader.text()
        layout = [(name, *reader.shape()) for name in specs]
    else:
        kind, handler = reader.text(), reader.text()
        if kind != cls.kind:
            raise MessageError(f"expected a {cls.kind} message, got {kind!r}")
        layout = [(reader.text(), *reader.shape()) for _ in range(reader.byte())]
    names = [name for name, _, _ in layout]
    if names != list(specs):
        raise MessageError(f"{cls.kind} must have fields {', '.join(specs)}, got {', '.join(names) or 'none'}")
    lengths = dict(dimensions or {})
    for name, dtype, shape in layout:
        _check_layout(cls.kind, name, specs[name], dtype, shape, lengths)
    values = {name: reader.array(name, dtype, shape) for name, dtype, shape in layout}
    reader.finish()
    return cls(**values), Envelope(round, client, handler)


def handler_named_in(data: bytes) -> str:
    """The handler that an encoded request is for; nothing else of it is looked at."""
    reader = _Reader(data, "request")
    if data[1:2] == bytes([COMPACT_VERSION]):
        reader.take(_COMPACT_PREFIX.size + 4)
    else:
        reader.unpack(_PREFIX)
        reader.text()
    return reader.text()


def _check_layout(
    kind: str, name: str, spec: FieldSpec, dtype: np.dtype[Any], shape: tuple[int, ...], lengths: dict[str, int]
) -> None:
    allowed = list(WIRE_PRECISIONS.values()) if spec.kind == "real" else [wire_dtype(spec, WIRE_PRECISIONS["float64"])]
    if dtype not in allowed:
        raise MessageError(
            f"field '{name}' of {kind} has dtype {dtype.name}, expected {' or '.join(a.name for a in allowed)}"
        )
    if len(shape) != len(spec.dimensions):
        raise MessageError(f"field '{name}' of {kind} has {len(shape)} axes, expected {len(spec.dimensions)}")
    expected = tuple(lengths.setdefault(d, length) for d, length in zip(spec.dimensions, shape, strict=True))
    if shape != expected:
        raise MessageError(f"field '{name}' of {kind} has shape {shape}, expected {expected}")


def refuse_non_finite(kind: str, name: str, array: Array, whose: str = "") -> None:
    """Raise unless every number is finite."""
    if array.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()
    # A sum is finite only if all its terms are; the slower look is for sums that overflow.
    if not np.isfinite(total) and not np.isfinite(array).all():
        raise NonFiniteError(f"field '{name}' of {kind}{whose} holds NaN or infinite values")


def wire_dtype(spec: FieldSpec, precision: np.dtype[Any]) -> np.dtype[Any]:
    if spec.kind == "coded":
        return CODED
    return precision if spec.kind == "real" else np.dtype(spec.kind).newbyteorder("<")


def _text(text: str) -> bytes:
    raw = text.encode("ascii")
    return bytes([len(raw)]) + raw


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Reader:
    """Takes an encoded message apart, refusing to read past its end."""

    def __init__(self, data: bytes, kind: str) -> None:
        self.data = memoryview(data)
        self.at = 0
        self.kind = kind

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            raise MessageError(f"{self.kind} message is cut short: {len(self.data)} bytes are too few")
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def text(self) -> str:
        raw = bytes(self.take(self.byte()))
        if not raw.isascii():
            raise MessageError(f"{self.kind} message holds a name that is not plain text")
        return raw.decode("ascii")

    def varint(self) -> int:
        value, shift = 0, 0
        while shift < 63:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise MessageError(f"{self.kind} message holds a length that is too long")

    def shape(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        code = self.byte()
        if code >> 4 not in _DTYPES:
            raise MessageError(f"{self.kind} message holds an unknown number type {code >> 4}")
        return _DTYPES[code >> 4], tuple(self.varint() for _ in range(code & 15))

    def array(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        count = math.prod(shape)  # Python integers: a forged shape cannot overflow
        # Beside an axis of length 0 no other needs any bytes.
        if count == 0 and math.prod(max(1, length) for length in shape) >= _MOST_ENTRIES:
            raise MessageError(f"field '{name}' of {self.kind} has the impossible shape {shape}")
        if dtype == CODED:
            try:
                array, used = decode_integers(self.data[self.at :], min(count, 8 * len(self.data) + 1))
            except ValueError as error:
                raise MessageError(f"field '{name}' of {self.kind}: {error}") from None
            self.take(used)
            return array.reshape(shape)
        array = np.frombuffer(self.take(count * dtype.itemsize), dtype=dtype)
        refuse_non_finite(self.kind, name, array)
        wide = array.astype(np.float64) if dtype.kind == "f" else array.copy()
        return wide.reshape(shape)

    def finish(self) -> None:
        if self.at != len(self.data):
            raise MessageError(f"{self.kind} message has {len(self.data) - self.at} bytes too many")
