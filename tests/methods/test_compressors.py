"""Compressors of symmetric matrices do what their names say."""

import itertools

import numpy as np
import pytest

from fedns.core.errors import ConfigError
from fedns.methods.compressors import add_compressed, parse_compressor
from fedns.numerics.backend import triangle_size
from fedns.numerics.linalg import symmetric_of, triangle_of
from fedns.numerics.rng import stream_keys


def symmetric(seed, features, clients=1):
    A = np.random.default_rng(seed).normal(size=(clients, features, features))
    return A + A.transpose(0, 2, 1)


def compressed(name, matrices, seed=0):
    """C(D) written out: (clients, M, M)."""
    features = matrices.shape[-1]
    compressor = parse_compressor(name)
    parts = compressor.compress(triangle_of(matrices), features, stream_keys(seed, "test", 0, np.arange(len(matrices))))
    packed = np.zeros((len(matrices), triangle_size(features)))
    for j in range(len(matrices)):
        add_compressed(packed[j], parts, j, 1.0)
    return symmetric_of(packed, features)


def squared(D):
    return (D**2).sum(axis=(-2, -1))


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_rank_r_keeps_the_largest_absolute_eigenvalues(rank):
    D = symmetric(0, 7, clients=4)
    for matrix, found in zip(D, compressed(f"rank{rank}", D), strict=True):
        values, vectors = np.linalg.eigh(matrix)
        keep = np.argsort(-np.abs(values))[:rank]
        np.testing.assert_allclose(found, (vectors[:, keep] * values[keep]) @ vectors[:, keep].T, atol=1e-12)


def test_rank_m_and_larger_are_the_identity():
    D = symmetric(1, 6, clients=2)
    for name in ("rank6", "rank60", "identity", "top21", "top1000"):
        np.testing.assert_allclose(compressed(name, D), D, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_top_k_is_the_best_symmetric_matrix_with_k_entries(count):
    """Every choice of K entries of the upper triangle, by brute force."""
    D = symmetric(2, 4)
    rows, columns = np.triu_indices(4)
    best = np.inf
    for chosen in itertools.combinations(range(10), count):
        kept = np.zeros((4, 4))
        pick = list(chosen)
        kept[rows[pick], columns[pick]] = D[0][rows[pick], columns[pick]]
        kept[columns[pick], rows[pick]] = D[0][rows[pick], columns[pick]]
        best = min(best, squared(D[0] - kept))
    assert squared(D - compressed(f"top{count}", D))[0] == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("name", ["rank1", "rank3", "topk", "top3", "identity"])
def test_contraction(name):
    """|C(D) - D|^2 <= (1 - delta) |D|^2 with the delta that the theory of FedNL uses."""
    features = 9
    D = symmetric(3, features, clients=50)
    delta = {"rank1": 1 / 9, "rank3": 3 / 9, "topk": 9 / 45, "top3": 3 / 45, "identity": 1}[name]
    assert (squared(compressed(name, D) - D) <= (1 - delta) * squared(D) + 1e-12).all()


def test_rand_k_is_unbiased_with_the_stated_variance():
    """1600 draws of a 4 x 4 matrix of ones: each of ten means within 5 standard errors, one false alarm in 170 000.

    The squared error is the same for every draw.
    """
    features, count, draws = 4, 3, 1600
    entries = triangle_size(features)
    D = np.ones((1, features, features))
    matrices = np.repeat(D, draws, axis=0)
    found = triangle_of(compressed(f"rand{count}", matrices, seed=4))
    omega = entries / count - 1
    assert (np.abs(found.mean(axis=0) - 1) < 5 * np.sqrt(omega / draws)).all()
    assert ((found - 1) ** 2).sum(axis=1).mean() == pytest.approx(omega * entries)
    assert parse_compressor("rand3").learning_rate(features) == pytest.approx(1 / (1 + omega))


def test_learned_entries_of_rand_k_become_exact():
    D = symmetric(5, 5, clients=3)
    learned = parse_compressor("randk").learning_rate(5) * compressed("randk", D)
    chosen = learned != 0
    assert chosen.sum() > 0
    np.testing.assert_allclose(learned[chosen], D[chosen], rtol=1e-14)


@pytest.mark.parametrize("name", ["rank", "rankk", "rank0", "top", "top-3", "best5", "", "identity2"])
def test_unknown_compressors_are_refused(name):
    with pytest.raises(ConfigError, match="compressor must be like rank1"):
        parse_compressor(name)
