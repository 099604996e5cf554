"""Small integers in as few bits as they need: Rice codes, with the parameter that suits each message best.

An integer v becomes u = 2v or -2v - 1, which is small where v is; u >> r is written in unary, zeros ended by a one, and the
low r bits follow in a block of their own, so that both blocks are read and written without a loop over numbers. Of entries
that are mostly 0 and +-1 this takes two bits each; of entries spread over b bits hardly more than b.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int16]
_PARAMETERS = np.arange(16)


def encode_integers(values: Integers) -> bytes:
    """The parameter, the unary block and the block of low bits; nothing at all for no integers."""
    codes = _folded(values.reshape(1, -1))
    if not codes.size:
        return b""
    parameter = int(_bits(codes)[0].argmin())
    ends = np.cumsum((codes[0] >> parameter) + 1)
    unary = np.zeros(int(ends[-1]), dtype=np.uint8)
    unary[ends - 1] = 1
    low = (codes[0][:, None] >> np.arange(parameter)) & 1
    return bytes([parameter]) + np.packbits(unary).tobytes() + np.packbits(low.astype(np.uint8)).tobytes()


def decode_integers(data: memoryview, count: int) -> tuple[Integers, int]:
    """The integers at the beginning of these bytes, and how many bytes they took."""
    if not count:
        return np.zeros(0, dtype=np.int16), 0
    if len(data) < 2 or data[0] >= _PARAMETERS.size:
        raise ValueError("coded integers are cut short or have no valid parameter")
    parameter = data[0]
    ends = np.flatnonzero(np.unpackbits(np.frombuffer(data[1:], dtype=np.uint8)))[:count]
    unary_bytes = -(-int(ends[-1] + 1) // 8) if ends.size == count else 0
    used = 1 + unary_bytes + -(-count * parameter // 8)
    if not unary_bytes or used > len(data):
        raise ValueError(f"{count} coded integers are cut short")
    low = np.unpackbits(np.frombuffer(data[1 + unary_bytes : used], dtype=np.uint8), count=count * parameter)
    high = np.diff(ends, prepend=-1) - 1
    codes = (high << parameter) + low.reshape(count, parameter).astype(np.int64) @ (1 << np.arange(parameter))
    if codes.max() > 0xFFFF:
        raise ValueError("coded integers are larger than 16 bits hold")
    return np.where(codes & 1, -(codes + 1) // 2, codes // 2).astype(np.int16), used


def coded_bytes(values: Integers, offsets: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """What `encode_integers` takes for each client of a batch: (clients, ...), or rows back to back with their offsets."""
    if offsets is None:
        return _bytes(_folded(values.reshape(len(values), -1)))
    # Clients with equally many rows, the usual case, in one go.
    counts, width = np.diff(offsets), int(np.prod(values.shape[1:]))
    lengths = np.zeros(counts.size, dtype=np.int64)
    for count in np.unique(counts):
        members = np.flatnonzero(counts == count)
        rows = offsets[members][:, None] + np.arange(count)
        lengths[members] = _bytes(_folded(values.reshape(len(values), width)[rows].reshape(members.size, -1)))
    return lengths


def _folded(values: Integers) -> NDArray[np.int64]:
    """0, -1, 1, -2, 2, ... as 0, 1, 2, 3, 4, ..."""
    wide = values.astype(np.int64)
    return np.where(wide < 0, -2 * wide - 1, 2 * wide)


def _bits(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The length of each row with each parameter: (rows, parameters)."""
    unary = np.stack([(codes >> parameter).sum(axis=1) for parameter in _PARAMETERS], axis=1)
    return np.asarray(unary + codes.shape[1] * (1 + _PARAMETERS))


def _bytes(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    if not codes.shape[1]:
        return np.zeros(len(codes), dtype=np.int64)
    bits = _bits(codes)
    parameter = bits.argmin(axis=1)
    low = codes.shape[1] * parameter
    unary = bits[np.arange(len(codes)), parameter] - low
    return np.asarray(1 + -(-unary // 8) + -(-low // 8))
