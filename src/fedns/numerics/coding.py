"""Small integers in as few bits as they need: Rice codes, with the parameter that suits a message or its blocks best.

An integer v becomes u = 2v or -2v - 1, which is small where v is; u >> r is written in unary, zeros ended by a one, and the
low r bits follow in a block of their own, so that both blocks are read and written without a loop over numbers. Of entries
that are mostly 0 and +-1 this takes two bits each; of entries spread over b bits hardly more than b. Where the sizes of
neighbours are alike but differ along the message, every 16 integers have a parameter of their own, four bits, and nothing
else is written of 16 zeros.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedns.numerics.compiled import COMPILED, plain_jit

Integers = NDArray[np.int16]
Codes = NDArray[np.int64]
BLOCK = 16  # integers
_PARAMETERS = np.arange(15)
_ZEROS = 15  # in place of a block's parameter
_BLOCKS = 16  # in place of a message's


def encode_integers(values: Integers) -> bytes:
    """The parameters, the unary part and the low bits; nothing at all for no integers."""
    codes = _folded(values.reshape(1, -1))
    if not codes.size:
        return b""
    whole, blocks = _best(codes), _best_of_blocks(codes)
    if _lengths(codes, whole)[0] <= _lengths_in_blocks(codes, blocks)[0]:
        return bytes([int(whole[0, 0])]) + _written(codes[0], np.repeat(whole[0], codes.size))
    nibbles = np.append(blocks[0], np.zeros(blocks.size % 2, np.int64)).reshape(-1, 2) @ [16, 1]
    return bytes([_BLOCKS, *nibbles.tolist()]) + _written(codes[0], _spread(blocks[0], codes.size))


def decode_integers(data: memoryview, count: int) -> tuple[Integers, int]:
    """The integers at the beginning of these bytes, and how many bytes they took."""
    if not count:
        return np.zeros(0, dtype=np.int16), 0
    head = 1 + (-(-count // (2 * BLOCK)) if len(data) and data[0] == _BLOCKS else 0)
    if len(data) < head or data[0] in (_ZEROS, *range(_BLOCKS + 1, 256)):
        raise ValueError("coded integers are cut short or have no valid parameter")
    parameters = np.full(count, data[0], dtype=np.int64)
    if head > 1:
        pairs = np.frombuffer(data[1:head], dtype=np.uint8).astype(np.int64)
        parameters = _spread(np.stack([pairs >> 4, pairs & 15], axis=1).ravel(), count)
    codes = np.zeros(count, dtype=np.int64)
    written = parameters < _ZEROS
    codes[written], used = _read(data[head:], parameters[written])
    return np.where(codes & 1, -(codes + 1) // 2, codes // 2).astype(np.int16), head + used


def coded_bytes(values: Integers, offsets: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """What `encode_integers` takes for each client of a batch: (clients, ...), or rows back to back with their offsets."""
    if offsets is None:
        return _bytes(values.reshape(len(values), -1))
    # Clients with equally many rows, the usual case, in one go.
    counts, width = np.diff(offsets), int(np.prod(values.shape[1:]))
    lengths = np.zeros(counts.size, dtype=np.int64)
    for count in np.unique(counts):
        members = np.flatnonzero(counts == count)
        rows = offsets[members][:, None] + np.arange(count)
        lengths[members] = _bytes(values.reshape(len(values), width)[rows].reshape(members.size, -1))
    return lengths


def _folded(values: Integers) -> Codes:
    """0, -1, 1, -2, 2, ... as 0, 1, 2, 3, 4, ..."""
    wide = values.astype(np.int64)
    return np.where(wide < 0, -2 * wide - 1, 2 * wide)


def _best(codes: Codes) -> Codes:
    """The parameter with which each row is shortest: (rows, 1)."""
    unary = np.stack([(codes >> parameter).sum(axis=1) for parameter in _PARAMETERS], axis=1)
    return np.asarray(np.argmin(unary + codes.shape[1] * _PARAMETERS, axis=1)[:, None])


def _best_of_blocks(codes: Codes) -> Codes:
    """The same for each block of each row: (rows, blocks)."""
    rows, count = codes.shape
    blocks = np.pad(codes, ((0, 0), (0, -count % BLOCK))).reshape(-1, BLOCK)
    return np.where(blocks.any(axis=1), _best(blocks)[:, 0], _ZEROS).reshape(rows, -1)


def _spread(parameters: Codes, count: int) -> Codes:
    return np.repeat(parameters, BLOCK, axis=-1)[..., :count]


def _lengths(codes: Codes, parameters: Codes) -> Codes:
    """Bytes of each row with these parameters of its numbers, (rows, numbers) or (rows, 1)."""
    written = parameters < _ZEROS
    unary = np.where(written, (codes >> np.minimum(parameters, _ZEROS)) + 1, 0).sum(axis=1)
    low = np.broadcast_to(np.where(written, parameters, 0), codes.shape).sum(axis=1)
    return np.asarray(1 + -(-unary // 8) + -(-low // 8))


def _lengths_in_blocks(codes: Codes, blocks: Codes) -> Codes:
    return np.asarray(_lengths(codes, _spread(blocks, codes.shape[1])) + -(-blocks.shape[1] // 2))


def _bytes(values: Integers) -> Codes:
    lengths = np.zeros(len(values), dtype=np.int64)
    if not values.shape[1]:
        return lengths
    if COMPILED and values.dtype == np.int16:
        _count_bytes(np.ascontiguousarray(values), lengths)
        return lengths
    codes = _folded(values)
    return np.minimum(_lengths(codes, _best(codes)), _lengths_in_blocks(codes, _best_of_blocks(codes)))


@plain_jit
def _count_bytes(values, lengths):
    """The same in one pass over the integers, which those of a Hessian are many of."""
    sums, totals = np.empty(15, dtype=np.int32), np.empty(15, dtype=np.int64)
    for row in range(values.shape[0]):
        count, unary, low = values.shape[1], 0, 0
        totals[:] = 0
        for start in range(0, count, BLOCK):
            sums[:] = 0
            stop = min(start + BLOCK, count)
            for i in range(start, stop):
                wide = np.int32(values[row, i])
                code = np.int32(-2 * wide - 1 if wide < 0 else 2 * wide)
                for parameter in range(15):
                    sums[parameter] += code >> np.int32(parameter)
            best = 0
            for parameter in range(15):
                totals[parameter] += sums[parameter]
                if sums[parameter] + BLOCK * parameter < sums[best] + BLOCK * best:
                    best = parameter
            if sums[0]:  # nothing is written of a block of zeros
                unary += sums[best] + stop - start
                low += best * (stop - start)
        in_blocks = (-(-count // BLOCK) + 1) // 2 + (unary + 7) // 8 + (low + 7) // 8
        best = 0
        for parameter in range(15):
            if totals[parameter] + count * parameter < totals[best] + count * best:
                best = parameter
        lengths[row] = 1 + min(in_blocks, (totals[best] + count + 7) // 8 + (count * best + 7) // 8)


def _written(codes: Codes, parameters: Codes) -> bytes:
    """The unary part and the low bits of the numbers that have a parameter."""
    codes, parameters = codes[parameters < _ZEROS], parameters[parameters < _ZEROS]
    ends = np.cumsum((codes >> parameters) + 1)
    unary = np.zeros(int(ends[-1]) if ends.size else 0, dtype=np.uint8)
    unary[ends - 1] = 1
    low = (np.repeat(codes, parameters) >> _places(parameters)) & 1
    return np.packbits(unary).tobytes() + np.packbits(low.astype(np.uint8)).tobytes()


def _read(data: memoryview, parameters: Codes) -> tuple[Codes, int]:
    """As many numbers as there are parameters, and how many bytes they took."""
    count, low_bits = parameters.size, int(parameters.sum())
    ends = np.flatnonzero(np.unpackbits(np.frombuffer(data, dtype=np.uint8)))[:count]
    unary_bytes = -(-int(ends[-1] + 1) // 8) if count and ends.size == count else 0
    used = unary_bytes + -(-low_bits // 8)
    if ends.size < count or used > len(data):
        raise ValueError(f"{count} coded integers are cut short")
    low = np.unpackbits(np.frombuffer(data[unary_bytes:used], dtype=np.uint8), count=low_bits).astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(low << _places(parameters))])
    stops = np.cumsum(parameters)
    codes = (np.diff(ends, prepend=-1) - 1 << parameters) + sums[stops] - sums[stops - parameters]
    if codes.max(initial=0) > 0xFFFF:
        raise ValueError("coded integers are larger than 16 bits hold")
    return codes, used


def _places(parameters: Codes) -> Codes:
    """0, 1, ... r - 1 for each parameter r, one after the other."""
    stops = np.cumsum(parameters)
    return np.asarray(np.arange(int(stops[-1]) if stops.size else 0) - np.repeat(stops - parameters, parameters))
