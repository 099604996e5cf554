"""Counter-based randomness keyed by (seed, purpose, round, client).

A draw is a pure function of its key and its index, so results do not depend on batch size, threads, arrival order or
engine. Kernels use `random_bits`; setup code uses `generator`.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedns.numerics.compiled import COMPILED, jit, plain_jit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FACTORS = _MIX_A, _MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFTS = _S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_UNIT = 1.0 / 9007199254740992.0  # 2^-53
_ONE, _SHIFT_11 = np.uint64(1), np.uint64(11)


@plain_jit
def mix(x):
    """SplitMix64's finaliser, a bijection of 64-bit words that passes BigCrush on a counter."""
    x = (x ^ (x >> _S30)) * _MIX_A
    x = (x ^ (x >> _S27)) * _MIX_B
    return x ^ (x >> _S31)


@plain_jit
def random_bits(key0, key1, index):
    """64 random bits for this index of this stream.

    Two keyed rounds: with one, streams would be stretches of a single sequence and a million of them would overlap.
    """
    return mix(mix(key0 + np.uint64(index) * GOLDEN) ^ key1)


@jit
def sample_without_replacement(key0, key1, population, count):
    """Floyd's algorithm: `count` distinct numbers below `population`, uniformly, in increasing order."""
    chosen = np.empty(count, np.int64)
    if count * count > population:
        taken = np.zeros(population, np.uint8)
        for j in range(population - count, population):
            t = _below(key0, key1, j)
            taken[j if taken[t] else t] = 1
        found = 0
        for number in range(population):
            if taken[number]:
                chosen[found] = number
                found += 1
        return chosen
    # A few numbers are kept in order at less cost than a mark for each candidate.
    for drawn in range(count):
        j = population - count + drawn
        t = _below(key0, key1, j)
        place = np.searchsorted(chosen[:drawn], t)
        if place < drawn and chosen[place] == t:
            t, place = j, drawn  # j is above all earlier numbers
        for r in range(drawn, place, -1):
            chosen[r] = chosen[r - 1]
        chosen[place] = t
    return chosen


@jit
def _below(key0, key1, j):
    """A uniform number among 0, ..., j."""
    return np.int64(np.float64(random_bits(key0, key1, j) >> _SHIFT_11) * _UNIT * (j + 1))


@jit
def normal_row(key0, key1, position, entries):
    """Column `position` of a Gaussian sketch, by the Box-Muller transform."""
    pairs = (entries.size + 1) // 2
    scale = np.sqrt(1.0 / entries.size)
    for p in range(pairs):
        index = 2 * (position * pairs + p)
        u = (np.float64(random_bits(key0, key1, index) >> _SHIFT_11) + 1.0) * _UNIT  # never 0
        angle = 2.0 * np.pi * np.float64(random_bits(key0, key1, index + 1) >> _SHIFT_11) * _UNIT
        radius = scale * np.sqrt(-2.0 * np.log(u))
        entries[2 * p] = radius * np.cos(angle)
        if 2 * p + 1 < entries.size:
            entries[2 * p + 1] = radius * np.sin(angle)


@jit
def sign_row(key0, key1, position, entries):
    """Column `position` of a Rademacher sketch: 64 signs from each word."""
    words = (entries.size + 63) // 64
    scale = np.sqrt(1.0 / entries.size)
    for word in range(words):
        bits = random_bits(key0, key1, position * words + word)
        for r in range(64 * word, min(64 * word + 64, entries.size)):
            entries[r] = scale * (1.0 - 2.0 * np.float64((bits >> np.uint64(r - 64 * word)) & _ONE))


def stream_keys(seed: int, purpose: str, round: int, clients: ArrayLike) -> NDArray[np.uint64]:
    """One 128-bit stream key per client: (clients, 2)."""
    words = _base_key(seed, purpose, round)
    counter = np.ascontiguousarray(clients, dtype=np.uint64)
    keys = np.empty((counter.size, 2), dtype=np.uint64)
    if COMPILED:
        _keys_of(words, counter, keys)
        return keys
    with np.errstate(over="ignore"):
        for column in range(2):
            keys[:, column] = mix_array(mix_array(counter * GOLDEN + words[2 * column]) ^ words[2 * column + 1])
    return keys


@plain_jit
def _keys_of(words, counter, keys):
    """keys[j] = the first two random words of client j, of the streams that `words` are the keys of."""
    for j in range(counter.size):
        for column in range(2):
            keys[j, column] = random_bits(words[2 * column], words[2 * column + 1], counter[j])


def uniforms(keys: NDArray[np.uint64], count: int) -> NDArray[np.float64]:
    """Numbers between 0 and 1, the first `count` of each stream: (streams, count)."""
    counter = np.arange(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        bits = mix_array(mix_array(keys[:, :1] + counter * GOLDEN) ^ keys[:, 1:])
    return np.asarray(bits >> np.uint64(11), dtype=np.float64) * 2.0**-53


@plain_jit
def round_rows(values, units, keys, rounded):
    """Each row in units of its own, every number up or down as what `uniforms` draws for it says; rows of unit 0 stay."""
    for j in range(values.shape[0]):
        if units[j] > 0:
            for i in range(values.shape[1]):
                position = values[j, i] / units[j]
                below = np.floor(position)
                draw = np.float64(random_bits(keys[j, 0], keys[j, 1], np.uint64(i)) >> np.uint64(11)) * 2.0**-53
                rounded[j, i] = np.int16(below + 1.0 if draw < position - below else below)


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """A numpy generator of its own for this key, for draws made outside kernels."""
    key = stream_keys(seed, purpose, round, np.array([client]))[0]
    return np.random.Generator(np.random.Philox(key=key))


def mix_array(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix` over an array."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> _S30)) * _MIX_A
        x = (x ^ (x >> _S27)) * _MIX_B
    return x ^ (x >> _S31)


def _base_key(seed: int, purpose: str, round: int) -> NDArray[np.uint64]:
    text = f"{seed}/{purpose}/{round}".encode()
    return np.frombuffer(hashlib.blake2b(text, digest_size=32).digest(), dtype="<u8")
