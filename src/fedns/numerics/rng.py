"""Counter-based randomness keyed by (seed, purpose, round, client).

A draw is a pure function of its key and its index, so results do not depend on batch size, threads, arrival order or
engine. Kernels use `random_bits`; setup code uses `generator`.
"""

import hashlib

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


@njit(cache=True)
def mix(x):
    """SplitMix64's finaliser, a bijection of 64-bit words that passes BigCrush on a counter."""
    x = (x ^ (x >> _S30)) * _MIX_A
    x = (x ^ (x >> _S27)) * _MIX_B
    return x ^ (x >> _S31)


@njit(cache=True)
def random_bits(key0, key1, index):
    """64 random bits for this index of this stream.

    Two keyed rounds: with one, streams would be stretches of a single sequence and a million of them would overlap.
    """
    return mix(mix(key0 + np.uint64(index) * _GOLDEN) ^ key1)


def stream_keys(seed: int, purpose: str, round: int, clients: ArrayLike) -> NDArray[np.uint64]:
    """One 128-bit stream key per client: (clients, 2)."""
    words = _base_key(seed, purpose, round)
    counter = np.asarray(clients, dtype=np.uint64)
    keys = np.empty((counter.size, 2), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in range(2):
            keys[:, column] = mix_array(mix_array(counter * _GOLDEN + words[2 * column]) ^ words[2 * column + 1])
    return keys


def uniforms(keys: NDArray[np.uint64], count: int) -> NDArray[np.float64]:
    """Numbers between 0 and 1, the first `count` of each stream: (streams, count)."""
    counter = np.arange(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        bits = mix_array(mix_array(keys[:, :1] + counter * _GOLDEN) ^ keys[:, 1:])
    return np.asarray(bits >> np.uint64(11), dtype=np.float64) * 2.0**-53


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
