"""Small integers in as few bits as they need: Rice codes, with the parameter that suits a message or its blocks best.

An integer v becomes u = 2v or -2v - 1, which is small where v is; u >> r is written in unary, zeros ended by a one, and the
low r bits follow in a block of their own, so that both blocks are read and written without a loop over numbers. Of entries
that are mostly 0 and +-1 this takes two bits each; of entries spread over b bits hardly more than b. Where the sizes of
neighbours are alike but differ along the message, every 16 integers have a parameter of their own, four bits, and nothing
else is written of 16 zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fedns.numerics.compiled import COMPILED, plain_jit

Integers = NDArray[np.int16]
Codes = NDArray[np.int64]
BLOCK = 16  # integers
_PARAMETERS = np.arange(15)
_ZEROS = 15  # in place of a block's parameter
_BLOCKS = 16  # in place of a message's
# Blocks that are read or written at once, and bytes that are looked through at once: what is held beside the bytes and the
# integers is a few megabytes, whoever wrote the bytes and however many integers they say they are.
_PIECE, _LOOK = 1024, 2**16
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.uint8)  # in each byte


def encode_small_ints(values: Integers) -> bytes:
    """The parameters, the unary part and the low bits; nothing at all for no integers."""
    codes = _folded(values.reshape(1, -1))
    if not codes.size:
        return b""
    whole, blocks = _best(codes), _best_of_blocks(codes)
    if _lengths(codes, whole)[0] <= _lengths_in_blocks(codes, blocks)[0]:
        return bytes([int(whole[0, 0])]) + _written(codes[0], np.repeat(whole[0], blocks.size))
    nibbles = np.append(blocks[0], np.zeros(blocks.size % 2, np.int64)).reshape(-1, 2) @ [16, 1]
    return bytes([_BLOCKS]) + nibbles.astype(np.uint8).tobytes() + _written(codes[0], blocks[0])


def decode_small_ints(data: memoryview, count: int) -> tuple[Integers, int]:
    """The integers at the beginning of these bytes, and how many bytes they took.

    Nothing is believed of `count` that the bytes do not show: a block of zeros takes four bits, every other integer one.
    """
    if not count:
        return np.zeros(0, dtype=np.int16), 0
    blocks = -(-count // BLOCK)
    in_blocks = len(data) > 0 and data[0] == _BLOCKS
    head = 1 + (-(-blocks // 2) if in_blocks else 0)
    if len(data) < head or data[0] in (_ZEROS, *range(_BLOCKS + 1, 256)):
        raise ValueError("coded integers are cut short or have no valid parameter")
    if in_blocks:
        pairs = np.frombuffer(data[1:head], dtype=np.uint8)
        parameters = np.stack([pairs >> 4, pairs & 15], axis=1).ravel()[:blocks]
    elif count > 8 * (len(data) - head):
        raise ValueError(f"{count} coded integers are cut short")
    else:
        parameters = np.full(blocks, data[0], dtype=np.uint8)
    values = np.zeros(count, dtype=np.int16)
    return values, head + _read(data[head:], parameters, values)


def small_ints_sizes(values: Integers, offsets: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """What `encode_small_ints` takes for each client of a batch: (clients, ...), or rows back to back with their offsets."""
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


def _written(codes: Codes, blocks: Codes) -> bytes:
    """The unary part and the low bits of the numbers whose block has a parameter."""
    unary, low = [], []
    for start, stop, parameters in _pieces(blocks, codes.size):
        numbers = codes[start:stop][parameters < _ZEROS]
        parameters = parameters[parameters < _ZEROS]
        ends = np.cumsum((numbers >> parameters) + 1)
        bits = np.zeros(int(ends[-1]) if ends.size else 0, dtype=np.uint8)
        bits[ends - 1] = 1
        unary.append(bits)
        low.append(((np.repeat(numbers, parameters) >> _places(parameters)) & 1).astype(np.uint8))
    return _in_bytes(unary) + _in_bytes(low)


def _in_bytes(pieces: Iterable[NDArray[np.uint8]]) -> bytes:
    """The bits of all pieces, back to back."""
    done, left = [], np.zeros(0, dtype=np.uint8)
    for bits in pieces:
        whole = np.concatenate([left, bits])
        cut = whole.size - whole.size % 8
        done.append(np.packbits(whole[:cut]).tobytes())
        left = whole[cut:]
    return b"".join(done) + np.packbits(left).tobytes()


def _pieces(blocks: NDArray[np.integer], count: int) -> Iterator[tuple[int, int, Codes]]:
    """So many integers a piece at a time: where it begins and ends, and the parameter of each integer."""
    for first in range(0, blocks.size, _PIECE):
        start, stop = BLOCK * first, min(BLOCK * (first + _PIECE), count)
        yield start, stop, _spread(blocks[first : first + _PIECE].astype(np.int64), stop - start)


def _read(data: memoryview, blocks: NDArray[np.uint8], values: Integers) -> int:
    """Fill in the numbers whose block has a parameter; how many bytes they took."""
    numbers = low_bits = 0
    for _, _, parameters in _pieces(blocks, values.size):
        written = parameters[parameters < _ZEROS]
        numbers, low_bits = numbers + written.size, low_bits + int(written.sum())
    unary = data[: _bytes_with(data, numbers)]
    used = len(unary) + -(-low_bits // 8)
    if used > len(data):
        raise ValueError(f"{values.size} coded integers are cut short")
    low, at, done = data[len(unary) : used], 0, 0  # bits of each part that have been read
    for start, stop, parameters in _pieces(blocks, values.size):
        here = parameters < _ZEROS
        parameters = parameters[here]
        if not parameters.size:
            continue
        ends = _ends(unary, at, parameters.size)
        quotients = np.diff(ends, prepend=at - 1) - 1
        stops = np.cumsum(parameters)
        bits = _bits(low, done, int(stops[-1])).astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(bits << _places(parameters))])
        codes = (quotients << parameters) + sums[stops] - sums[stops - parameters]
        if codes.max() > 0xFFFF:
            raise ValueError("coded integers are larger than 16 bits hold")
        values[start:stop][here] = np.where(codes & 1, -(codes + 1) // 2, codes // 2)
        at, done = int(ends[-1]) + 1, done + int(stops[-1])
    return used


def _bytes_with(data: memoryview, ones: int) -> int:
    """The number of bytes at the beginning that hold so many bits that are set."""
    if not ones:
        return 0
    for start in range(0, len(data), _LOOK):
        found = np.cumsum(_ONES[np.frombuffer(data[start : start + _LOOK], dtype=np.uint8)], dtype=np.int64)
        if found[-1] >= ones:
            return start + int(np.searchsorted(found, ones)) + 1
        ones -= int(found[-1])
    raise ValueError("coded integers are cut short")


def _ends(unary: memoryview, at: int, count: int) -> Codes:
    """Where the next so many bits stand that are set, from bit `at` on."""
    first = at // 8
    before = int(_ONES[unary[first] >> (8 - at % 8)])  # of the byte where the last piece ended
    here = np.frombuffer(unary[first : first + _bytes_with(unary[first:], before + count)], dtype=np.uint8)
    where = np.flatnonzero(here)  # the others, of which there may be any number, are not taken apart
    which, bits = np.nonzero(np.unpackbits(here[where, None], axis=1))
    return np.asarray((8 * (first + where[which]) + bits)[before : before + count])


def _bits(low: memoryview, at: int, count: int) -> NDArray[np.uint8]:
    """So many bits from bit `at` on."""
    first = at // 8
    here = np.frombuffer(low[first : -(-(at + count) // 8)], dtype=np.uint8)
    return np.unpackbits(here, count=at % 8 + count)[at % 8 :]


def _places(parameters: Codes) -> Codes:
    """0, 1, ... r - 1 for each parameter r, one after the other."""
    stops = np.cumsum(parameters)
    return np.asarray(np.arange(int(stops[-1]) if stops.size else 0) - np.repeat(stops - parameters, parameters))
