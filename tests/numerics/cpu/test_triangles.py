import numpy as np
import pytest
import scipy.sparse

import fedns
from fedns.numerics.cpu.triangles import lanczos
from fedns.numerics.linalg import triangle_of


@pytest.mark.parametrize("intercept", [False, True])
def test_compressed_rows_of_every_length_have_the_hessian_of_scipys_products(intercept):
    rng = np.random.default_rng(4)
    lengths = np.repeat(np.arange(15), 9)
    places = [np.sort(rng.choice(60, length, replace=False)) for length in rng.permutation(lengths)]
    offsets = np.cumsum([0, *map(len, places)])
    x = scipy.sparse.csr_matrix((rng.normal(size=offsets[-1]), np.concatenate(places), offsets), shape=(135, 60))
    shards = fedns.split(x, rng.choice([-1.0, 1.0], 135), clients=2, how="contiguous")
    w = rng.normal(size=60 + intercept)
    problem = fedns.Problem(intercept=intercept)
    hessians, (gradients, _) = problem.hessian(w, shards), problem.gradient_and_hessian(w, shards)
    wide = scipy.sparse.hstack([x, np.ones((135, 1))]).tocsr() if intercept else x
    for client, (start, stop) in enumerate(zip(shards.starts, shards.stops, strict=True)):
        own, y = wide[start:stop], shards.targets[start:stop]
        p = 1.0 / (1.0 + np.exp(y * (own @ w)))
        curvature = scipy.sparse.diags(p * (1 - p) / (stop - start))
        np.testing.assert_allclose(hessians[client], (own.T @ curvature @ own).toarray(), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(gradients[client], own.T @ (-y * p) / (stop - start), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("intercept", [False, True])
def test_dense_rows_of_any_width_have_the_hessian_of_numpys_products(intercept):
    rng = np.random.default_rng(7)
    for columns in [*range(1, 27), 55, 95]:
        x, y = rng.normal(size=(300, columns)), rng.choice([-1.0, 1.0], 300)
        shards, w = fedns.Shards.from_arrays(x, y, [1, 128, 171]), rng.normal(size=columns + intercept) / columns
        hessians = fedns.Problem(intercept=intercept).hessian(w, shards)
        for client, (start, stop) in enumerate(zip(shards.starts, shards.stops, strict=True)):
            own = np.column_stack([x, np.ones(300)])[start:stop, : w.size]
            p = 1.0 / (1.0 + np.exp(own @ w))
            expected = (own.T * (p * (1 - p))) @ own / (stop - start)
            np.testing.assert_allclose(hessians[client], expected, rtol=1e-11, atol=1e-15)


def test_a_triangle_of_any_size_times_a_vector_is_numpys_product():
    rng = np.random.default_rng(5)
    for size in [*range(2, 21), 61]:
        matrix, x, out = rng.normal(size=(size, size)), np.zeros(size + 8), np.empty(size + 8)
        x[:size] = rng.normal(size=size)
        lanczos.times(triangle_of(matrix + matrix.T), size, x, out)
        np.testing.assert_allclose(out, [*((matrix + matrix.T) @ x[:size]), *np.zeros(8)], atol=1e-13)


@pytest.mark.parametrize("shift", [0.0, 3.0, -3.0])
def test_the_largest_eigenpair_of_a_tridiagonal_matrix_is_lapacks(shift):
    rng = np.random.default_rng(6)
    for size in (1, 2, 3, 12, 60):
        alpha, beta = rng.normal(size=size) + shift, np.abs(rng.normal(size=size))
        values, vectors = np.linalg.eigh(np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1))
        best = np.argmax(np.abs(values))
        value, vector = lanczos._largest_of_tridiagonal(alpha, beta)
        np.testing.assert_allclose(value, values[best], rtol=1e-13)
        np.testing.assert_allclose(np.abs(vector), np.abs(vectors[:, best]), atol=1e-11)
