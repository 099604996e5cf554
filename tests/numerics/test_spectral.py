"""Eigenpairs and entries of symmetric matrices held as triangles against numpy."""

import numpy as np
import pytest

from fedns.numerics.linalg import triangle_of
from fedns.numerics.spectral import (
    add_low_rank,
    add_low_ranks,
    frobenius_norm,
    largest_eigenpairs,
    largest_entries,
    leading_eigenpairs,
    positive_part,
    spectral_norm,
    symmetric_times,
)


def symmetric(seed, features, clients=1):
    A = np.random.default_rng(seed).normal(size=(clients, features, features))
    return A + A.transpose(0, 2, 1)


def test_largest_entries_among_equals_are_the_first():
    np.testing.assert_array_equal(largest_entries(np.array([0.0, 2, -1, 1, 1, 3]), np.ones(6), 4), [1, 2, 3, 5])
    np.testing.assert_array_equal(largest_entries(np.zeros(5), np.ones(5), 3), [0, 1, 2])
    values = np.random.default_rng(6).normal(size=4000) ** 9
    expected = np.sort(np.argsort(-np.abs(values), kind="stable")[:700])
    np.testing.assert_array_equal(largest_entries(values, np.ones(4000), 700), expected)


@pytest.mark.parametrize("case", ["spread", "few large", "mostly zero", "all equal", "large at the sampled places"])
def test_largest_entries_of_many_whatever_the_sample_says(case):
    values = np.random.default_rng(7).normal(size=45150)
    match case:
        case "few large":
            values = values**15
        case "mostly zero":
            values[values < 2.0] = 0.0
        case "all equal":
            values[:] = -3.0
        case "large at the sampled places":
            values[:: 45150 // 1024] += 100.0
    expected = np.sort(np.argsort(-np.abs(values), kind="stable")[:300])
    np.testing.assert_array_equal(largest_entries(values, np.ones(45150), 300), expected)


@pytest.mark.slow
@pytest.mark.parametrize("features", [64, 150, 300])
@pytest.mark.parametrize("case", ["random", "close", "opposite", "repeated", "low rank", "zero", "noise"])
def test_eigenpairs_of_large_matrices_by_lanczos(features, case):
    random = np.random.default_rng(7)
    values = random.normal(size=features)
    match case:
        case "close":
            values[:2] = 9.0, 8.95
        case "opposite":
            values[:2] = 9.0, -9.01
        case "repeated":
            values[:3] = 9.0
        case "low rank":
            values[2:] = 0.0
        case "zero":
            values[:] = 0.0
        case "noise":
            values = 1e-17 * values
    Q = np.linalg.qr(random.normal(size=(features, features)))[0]
    D = (Q * values) @ Q.T
    D = (D + D.T) / 2
    count = features // 64
    found, vectors = largest_eigenpairs(triangle_of(D), features, count)
    expected = np.sort(np.abs(np.linalg.eigvalsh(D)))[::-1][:count]
    size = max(np.abs(values).max(), 1e-300)
    np.testing.assert_allclose(np.abs(found), expected, rtol=1e-12, atol=1e-13 * size)
    meant = np.abs(found) > 1e-12 * size  # what stands beside a zero does not matter
    real = vectors[meant]
    np.testing.assert_allclose(D @ real.T, real.T * found[meant], atol=2e-9 * size)
    np.testing.assert_allclose(real @ real.T, np.eye(len(real)), atol=1e-8)
    np.testing.assert_allclose((vectors**2).sum(axis=1), 1.0, rtol=1e-12)


def test_triangle_products_and_projection():
    D = symmetric(8, 11)[0]
    x = np.random.default_rng(9).normal(size=11)
    np.testing.assert_allclose(symmetric_times(triangle_of(D), x), D @ x, atol=1e-12)
    values, vectors = np.linalg.eigh(D)
    np.testing.assert_allclose(positive_part(D), (vectors * np.maximum(values, 0)) @ vectors.T, atol=1e-12)
    gram = D @ D
    np.testing.assert_array_equal(positive_part(gram), gram)


def test_norms_and_low_rank_sums():
    D = symmetric(10, 9)[0]
    weights = np.where(np.equal(*np.triu_indices(9)), 1.0, np.sqrt(2.0))
    assert frobenius_norm(triangle_of(D), weights) == pytest.approx(np.linalg.norm(D), rel=1e-14)
    assert spectral_norm(triangle_of(D), 9) == pytest.approx(np.linalg.norm(D, 2), rel=1e-12)
    values, vectors = np.linalg.eigh(D)
    triangle = np.zeros(45)
    add_low_rank(triangle, values, np.ascontiguousarray(vectors.T), 0.5)
    np.testing.assert_allclose(triangle, 0.5 * triangle_of(D), atol=1e-13)


def test_low_rank_matrices_of_several_clients_are_added_in_order():
    random = np.random.default_rng(11)
    scales, values, vectors = random.random(6), random.normal(size=(6, 2)), random.normal(size=(6, 2, 30))
    together, one_by_one = np.ones(465), np.ones(465)
    add_low_ranks(together, scales, values, vectors)
    for scale, own, directions in zip(scales, values, vectors, strict=True):
        add_low_rank(one_by_one, own, directions, scale)
    np.testing.assert_array_equal(together, one_by_one)
    expected = 1.0 + triangle_of(np.einsum("j,jr,jra,jrb->ab", scales, values, vectors, vectors))
    np.testing.assert_allclose(together, expected, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 7, 8, 30, 40])
def test_leading_eigenpairs_are_those_of_all(count):
    root = np.random.default_rng(12).normal(size=(50, 30))
    found, vectors = leading_eigenpairs(root.T @ root, count)
    np.testing.assert_allclose(found, np.linalg.eigvalsh(root.T @ root)[::-1][:count], rtol=1e-12)
    np.testing.assert_allclose(root.T @ (root @ vectors.T), vectors.T * found, atol=1e-11)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(found)), atol=1e-13)


def test_a_matrix_that_is_not_finite_has_no_leading_eigenpairs():
    with pytest.raises(np.linalg.LinAlgError, match="finite"):
        leading_eigenpairs(np.full((30, 30), np.nan), 2)
