"""Compressors of symmetric matrices, for methods that send corrections to a Hessian both sides hold."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Clients
from fedns.core.cohort import Needs
from fedns.core.errors import ConfigError
from fedns.core.messages import Message, as_received
from fedns.core.types import FloatArray, Keys
from fedns.numerics import parallel
from fedns.numerics.backend import triangle_size
from fedns.numerics.rng import sample_without_replacement
from fedns.numerics.spectral import add_low_rank, add_low_ranks, largest_eigenpairs, largest_entries

ROOT_TWO = float(np.sqrt(2.0))


class Compressed(NamedTuple):
    """Compressed symmetric matrices of a batch of clients, whichever way: what is not used is empty.

    With vectors, the sum of values[r] vectors[r] vectors[r]'; with indices, the packed entries there; else all of them.
    """

    values: FloatArray  # (clients, values)
    vectors: FloatArray  # (clients, rank, features)
    indices: NDArray[np.int32]  # (clients, values)

    def rounded(self, number_bytes: int) -> Compressed:
        """What the other end receives when real numbers travel in this many bytes."""
        return Compressed(as_received(self.values, number_bytes), as_received(self.vectors, number_bytes), self.indices)


def add_compressed(triangle: FloatArray, carrier: Compressed, client: int, scale: float) -> None:
    """triangle += scale times this client's matrix, over upper triangles; a message with the same fields will do."""
    values = carrier.values[client]
    if carrier.vectors.shape[1]:
        add_low_rank(triangle, values, carrier.vectors[client], scale)
    elif carrier.indices.shape[1]:
        triangle[carrier.indices[client]] += scale * values
    else:
        triangle += scale * values


class mean_compressed:
    """Reducer: sum_j p_j C_j as a upper triangle, for messages with the fields of `Compressed`."""

    def __init__(self, features: int) -> None:
        self._total = np.zeros(triangle_size(features))

    def add(self, batch: Message, weights: FloatArray) -> None:
        carrier: Any = batch
        if carrier.vectors.shape[1]:
            add_low_ranks(self._total, weights, carrier.values, carrier.vectors)
            return
        for client, weight in enumerate(weights.tolist()):
            add_compressed(self._total, carrier, client, weight)

    def result(self) -> FloatArray:
        return self._total


class Compressor(ABC):
    """Sends a symmetric matrix approximately."""

    @abstractmethod
    def compress(self, triangle: FloatArray, features: int, keys: Keys) -> Compressed:
        """Each client's packed matrix, compressed; `keys` are the clients' random streams."""

    def learning_rate(self, features: int) -> float:
        """The step that FedNL's theory gives: 1 for a contraction, |C(D) - D| <= q |D| with q < 1."""
        return 1.0


@dataclass(frozen=True)
class RankR(Compressor):
    """The R eigenpairs largest in absolute value: R M + R numbers, |C(D) - D|^2 <= (1 - R/M) |D|^2."""

    rank: int

    def compress(self, triangle: FloatArray, features: int, keys: Keys) -> Compressed:
        clients, rank = len(triangle), min(self.rank, features)
        pairs = parallel.map_clients(lambda j: largest_eigenpairs(triangle[j], features, rank), clients)
        values, vectors = (np.stack(part) for part in zip(*pairs, strict=True))
        return Compressed(values, np.ascontiguousarray(vectors), _no_indices(clients))


@dataclass(frozen=True)
class TopK(Compressor):
    """The K entries of the upper triangle that capture most of the Frobenius norm: K numbers and K indices.

    An entry off the diagonal stands for two, so it is ranked by sqrt(2) times its size. |C(D) - D|^2 <=
    (1 - 2K/(M(M+1))) |D|^2.
    """

    count: int  # 0 means as many as there are features

    def compress(self, triangle: FloatArray, features: int, keys: Keys) -> Compressed:
        count = min(self.count or features, triangle.shape[1])
        weights = entry_weights(features)

        chosen = np.stack(parallel.map_clients(lambda j: largest_entries(triangle[j], weights, count), len(triangle)))
        values = np.take_along_axis(triangle, chosen, 1)
        return Compressed(values, _no_vectors(triangle, features), chosen.astype(np.int32))


@dataclass(frozen=True)
class RandK(Compressor):
    """K entries of the upper triangle drawn uniformly, scaled by E/K so that the mean is right; E = M(M+1)/2.

    Not a contraction but unbiased, with E|C(D) - D|^2 = (E/K - 1) |D|^2 = omega |D|^2. FedNL then learns with alpha =
    1/(omega + 1) = K/E: alpha times the scale is 1, and the drawn entries become exact. With alpha = 1 it would diverge.
    """

    count: int  # 0 means as many as there are features

    def compress(self, triangle: FloatArray, features: int, keys: Keys) -> Compressed:
        entries = triangle.shape[1]
        count = min(self.count or features, entries)
        draws = [sample_without_replacement(key[0], key[1], entries, count) for key in keys]
        indices = np.stack(draws).astype(np.int32)
        values = np.take_along_axis(triangle, indices.astype(np.intp), 1) * (entries / count)
        return Compressed(values, _no_vectors(triangle, features), indices)

    def learning_rate(self, features: int) -> float:
        return min(1.0, (self.count or features) / triangle_size(features))


@dataclass(frozen=True)
class WholeTriangle(Compressor):
    """The whole upper triangle: M(M+1)/2 numbers."""

    def compress(self, triangle: FloatArray, features: int, keys: Keys) -> Compressed:
        return Compressed(triangle.copy(), _no_vectors(triangle, features), _no_indices(len(triangle)))


def errors_of_learned(clients: Clients, name: str, hessians: FloatArray) -> list[FloatArray]:
    """The Hessians that clients have learned so far, in place; what these are off by is written over `hessians`."""
    learned = clients.in_place(name, hessians.shape[1])
    parallel.map_clients(lambda j: np.subtract(hessians[j], learned[j], out=hessians[j]), len(hessians))
    return learned


def learning_needs(features: int) -> Needs:
    """The memory of a method whose server and clients hold learned Hessians."""
    square = float(features) ** 2
    return Needs(server=3.0 * square + 20.0 * features, client=3.0 * square + 20.0 * features, kept=0.5 * square)


def parse_compressor(text: str) -> Compressor:
    """The compressor of this name: rank1, rank5, topk (K = M), top100, randk (K = M), rand200 or identity."""
    found = re.fullmatch(r"(rank|top|rand)(k|\d+)", text)
    if text == "identity":
        return WholeTriangle()
    if found is None or found[2] == "0" or (found[1] == "rank" and found[2] == "k"):
        raise ConfigError(f"compressor must be like rank1, topk, top100, randk, rand200 or identity, got {text!r}")
    count = 0 if found[2] == "k" else int(found[2])
    return RankR(count) if found[1] == "rank" else TopK(count) if found[1] == "top" else RandK(count)


@cache
def entry_weights(features: int) -> FloatArray:
    """What an entry of the upper triangle counts for in the Frobenius norm: 1 on the diagonal, else sqrt(2)."""
    weights = np.full(triangle_size(features), ROOT_TWO)
    weights[np.cumsum([0, *range(features, 1, -1)])] = 1.0
    weights.setflags(write=False)
    return weights


def _no_vectors(triangle: FloatArray, features: int) -> FloatArray:
    return np.zeros((len(triangle), 0, features))


def _no_indices(clients: int) -> NDArray[np.int32]:
    return np.zeros((clients, 0), dtype=np.int32)
