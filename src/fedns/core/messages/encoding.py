"""Messages as bytes: a short header (kind, round, client, field names, types and shapes) and the raw arrays.

There is no pickle: decoding can only make arrays.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import ConfigError, MessageError
from fedns.core.messages import (
    CODED,
    NUMBER_CODES,
    WIRE_PRECISIONS,
    FieldSpec,
    M,
    Message,
    Ragged,
    batch_size,
    refuse_non_finite,
    refuse_shape,
    wire_dtype,
)
from fedns.core.types import Array, DType
from fedns.numerics.small_ints import decode_small_ints, encode_small_ints, small_ints_sizes

MAGIC = 0xF5
VERSION, COMPACT_VERSION = 3, 4  # 1 and 2 were those of 0.1
EVERYONE = 0xFFFFFFFF  # the client number of a request to all
_PREFIX, _COMPACT_PREFIX = struct.Struct("<BBII"), struct.Struct("<BBHH")
_SHORT_EVERYONE = 0xFFFF
_MOST_ENTRIES = 2**48
_NUMBER_TYPES = {code: dtype for dtype, code in NUMBER_CODES.items()}
Layout = tuple[tuple[DType, tuple[int, ...]], ...]  # types and shapes of a message's arrays


@dataclass(frozen=True)
class Envelope:
    """Who a message is for: the round and client it belongs to and, in a request, the handler that answers it."""

    round: int
    client: int = EVERYONE
    handler: str = ""


def encode(message: Message, envelope: Envelope, precision: DType) -> bytes:
    """Header and arrays of one message."""
    arrays = [
        np.asarray(getattr(message, name), dtype=wire_dtype(spec, precision)) for name, spec in message.specs().items()
    ]
    return header(type(message), envelope, arrays) + b"".join(_body(array) for array in arrays)


def _body(array: Array) -> bytes:
    return encode_small_ints(array) if array.dtype == CODED else array.tobytes()


def header(cls: type[Message], envelope: Envelope, arrays: list[Array]) -> bytes:
    """Everything that precedes the arrays. Only shapes and dtypes of the arrays matter."""
    layout = tuple((array.dtype, array.shape) for array in arrays)
    return _prefix(cls, envelope) + _description(cls, envelope.handler, layout)  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _description(cls: type[Message], handler: str, layout: Layout) -> bytes:
    """What a header says besides round and client, which is the same in every round."""
    if cls.compact:
        parts = [layout_checksum(cls), _text(handler)]
    else:
        parts = [_text(cls.kind), _text(handler), bytes([len(layout)])]
    for name, (dtype, shape) in zip(cls.specs(), layout, strict=True):
        parts.append((b"" if cls.compact else _text(name)) + bytes([NUMBER_CODES[dtype] << 4 | len(shape)]))
        parts.extend(_varint(length) for length in shape)
    return b"".join(parts)


def _prefix(cls: type[Message], envelope: Envelope) -> bytes:
    if not cls.compact:
        return _PREFIX.pack(MAGIC, VERSION, envelope.round, envelope.client)
    client = _SHORT_EVERYONE if envelope.client == EVERYONE else envelope.client
    if envelope.round > most_rounds(compact=True) or (envelope.client != EVERYONE and client >= _SHORT_EVERYONE):
        raise ConfigError(f"{cls.kind} messages are for up to {_SHORT_EVERYONE} rounds and clients")
    return _COMPACT_PREFIX.pack(MAGIC, COMPACT_VERSION, envelope.round, client)


def most_rounds(compact: bool) -> int:
    """Return how many rounds a header can number; the start is round 0."""
    return 0xFFFF if compact else 0xFFFFFFFF


def most_clients(compact: bool) -> int:
    """Return how many clients a header can number, beside the number of all of them."""
    return _SHORT_EVERYONE if compact else EVERYONE


def layout_checksum(cls: type[Message]) -> bytes:
    """Four bytes that tell a kind of message with its fields from every other."""
    fields = ";".join(f"{name}:{spec.kind}:{','.join(spec.dimensions)}" for name, spec in cls.specs().items())
    return struct.pack("<I", zlib.crc32(f"{cls.kind};{fields}".encode()))


def batch_bytes(batch: Message, precision: DType) -> NDArray[np.int64]:
    """The encoded length of each client's message, (clients,): the header as `encode` writes it plus the arrays' bytes."""
    return np.broadcast_to(_lengths(batch, precision), batch_size(batch))


def total_bytes(batch: Message, precision: DType) -> int:
    """The encoded length of all clients' messages together."""
    lengths = _lengths(batch, precision)
    return lengths * batch_size(batch) if isinstance(lengths, int) else int(lengths.sum())


def _lengths(batch: Message, precision: DType) -> int | NDArray[np.int64]:
    """The encoded length of each client's message, one number where it is that of all: the usual case, and much cheaper."""
    cls, values = type(batch), [getattr(batch, name) for name in batch.specs()]
    ragged = [value.counts for value in values if isinstance(value, Ragged)]

    def length(counts: Iterable[int]) -> int:
        """Of a message whose ragged fields have so many rows."""
        rows = iter(counts)
        shapes = [(next(rows), *v.values.shape[1:]) if isinstance(v, Ragged) else v.shape[1:] for v in values]
        return _encoded_length(cls, precision, *shapes)  # type: ignore[arg-type]

    lengths: int | NDArray[np.int64]
    if all(counts.min() == counts.max() for counts in ragged):
        lengths = length(int(counts[0]) for counts in ragged)
    else:
        pairs = np.stack(ragged)
        cases, which = np.unique(pairs if len(pairs) > 1 else pairs[0], axis=-1, return_inverse=True)  # one axis: faster
        lengths = np.array([length(case) for case in np.atleast_2d(cases).T.tolist()])[which.reshape(-1)]
    for spec, value in zip(cls.specs().values(), values, strict=True):
        if spec.kind == "small_ints":
            ragged_value = isinstance(value, Ragged)
            lengths = lengths + (small_ints_sizes(value.values, value.offsets) if ragged_value else small_ints_sizes(value))
    return lengths


@lru_cache(maxsize=256)
def _encoded_length(cls: type[Message], precision: DType, *shapes: tuple[int, ...]) -> int:
    """The length of a reply with arrays of these shapes. Round and client take the same room whatever they are."""
    dtypes = (wire_dtype(spec, precision) for spec in cls.specs().values())
    arrays = [np.broadcast_to(np.zeros((), dtype=dtype), shape) for dtype, shape in zip(dtypes, shapes, strict=True)]
    return len(header(cls, Envelope(0, 0), arrays)) + sum(a.nbytes for a in arrays if a.dtype != CODED)


def decode(
    cls: type[M], data: bytes, dimensions: Mapping[str, int] | None = None, largest_bytes: float = math.inf
) -> tuple[M, Envelope]:
    """The message and its envelope. Checks kind, field names, dtypes, shapes, length and finiteness.

    - dimensions: the lengths of named axes that the receiver knows.
    - largest_bytes: of the numbers of a field, which take up to 64 times as much as in the message where they are zeros.
    """
    reader = _Reader(data, cls.kind, largest_bytes)
    magic, version, round, client = reader.unpack(_COMPACT_PREFIX if cls.compact else _PREFIX)
    client = EVERYONE if cls.compact and client == _SHORT_EVERYONE else client
    expected = COMPACT_VERSION if cls.compact else VERSION
    if magic != MAGIC or version != expected:
        raise MessageError(f"not a fedns message of version {expected}: it starts with bytes {magic:#x}, {version}")
    described = _described_last.get(cls)
    known = described is not None and data.startswith(described.content, reader.at)
    if described is not None and known:
        reader.at += len(described.content)
    else:
        described = _read_description(cls, reader)
    if dimensions or not known:
        lengths, specs = dict(dimensions or {}), cls.specs()
        for name, dtype, shape in described.layout:
            _check_layout(cls.kind, name, specs[name], dtype, shape, lengths)
        _described_last[cls] = described
    values = {name: reader.array(name, dtype, shape) for name, dtype, shape in described.layout}
    reader.finish()
    return cls(**values), Envelope(round, client, described.handler)


class _Described(NamedTuple):
    """What a header says besides round and client, and how it was written."""

    content: bytes
    handler: str
    layout: list[tuple[str, DType, tuple[int, ...]]]  # name, type and shape of each field


# The last of each class whose layout was right. Rounds differ in little else than their numbers, and to read a header again
# takes as long as all the rest. What is written in the same bytes says the same.
_described_last: dict[type[Message], _Described] = {}


def _read_description(cls: type[Message], reader: _Reader) -> _Described:
    start, specs = reader.at, cls.specs()
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
    return _Described(bytes(reader.data[start : reader.at]), handler, layout)


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
    kind: str, name: str, spec: FieldSpec, dtype: DType, shape: tuple[int, ...], lengths: dict[str, int]
) -> None:
    allowed = list(WIRE_PRECISIONS.values()) if spec.kind == "real" else [wire_dtype(spec, WIRE_PRECISIONS["float64"])]
    if dtype not in allowed:
        raise MessageError(
            f"field '{name}' of {kind} has dtype {dtype.name}, expected {' or '.join(a.name for a in allowed)}"
        )
    refuse_shape(kind, name, spec.dimensions, shape, lengths)


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

    def __init__(self, data: bytes, kind: str, largest_bytes: float = math.inf) -> None:
        self.data = memoryview(data)
        self.at = 0
        self.kind = kind
        self.largest_bytes = largest_bytes

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

    def shape(self) -> tuple[DType, tuple[int, ...]]:
        code = self.byte()
        if code >> 4 not in _NUMBER_TYPES:
            raise MessageError(f"{self.kind} message holds an unknown number type {code >> 4}")
        return _NUMBER_TYPES[code >> 4], tuple(self.varint() for _ in range(code & 15))

    def array(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Array:
        count = math.prod(shape)  # Python integers: a forged shape cannot overflow
        # Beside an axis of length 0 no other needs any bytes.
        if count == 0 and math.prod(max(1, length) for length in shape) >= _MOST_ENTRIES:
            raise MessageError(f"field '{name}' of {self.kind} has the impossible shape {shape}")
        if dtype == CODED:
            if count * dtype.itemsize > self.largest_bytes:
                raise MessageError(
                    f"field '{name}' of {self.kind} has {count} numbers, which take more than {self.largest_bytes} bytes"
                )
            try:
                array, used = decode_small_ints(self.data[self.at :], count)
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
