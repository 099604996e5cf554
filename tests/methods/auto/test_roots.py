"""Hessians in few bits, as triangular roots."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

from fedns.core.errors import MessageError
from fedns.methods.auto.messages import LARGEST_POWER, ChangeAndSketch, ColumnScales, HessianRoot
from fedns.methods.auto.roots import mean_of_roots, rounded_root, unrounded
from fedns.numerics.linalg import symmetric_of
from fedns.numerics.small_ints import encode_small_ints


def hessian(condition, *, size=40, seed=0):
    """Eigenvalues from 1 down to 1 / condition, in random directions."""
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    return (vectors * np.geomspace(1.0, 1.0 / condition, size)) @ vectors.T


def draws(size, seed=0):
    return np.random.default_rng(seed).uniform(size=size * (size + 1) // 2)


@pytest.mark.parametrize("condition", [1e1, 1e3])
def test_rounding_is_a_fraction_of_the_curvature_in_every_direction(condition):
    exact = hessian(condition)
    root = unrounded(rounded_root(exact, draws(40)))
    ratios = scipy.linalg.eigh(root.T @ root, exact, eigvals_only=True)
    assert ratios[0] > 0.4 and ratios[-1] < 2.5


def test_rounding_the_matrix_itself_to_more_bits_leaves_nothing_of_small_curvatures():
    exact = hessian(1e3)
    unit = np.abs(exact).max() / 2**7
    assert scipy.linalg.eigh(np.rint(exact / unit) * unit, exact, eigvals_only=True)[0] < 0.0


def test_the_mean_of_many_roundings_is_the_root():
    exact = hessian(100.0, size=6)
    mean = np.mean([unrounded(rounded_root(exact, draws(6, seed))) for seed in range(4000)], axis=0)
    order = rounded_root(exact, draws(6)).order
    expected = np.linalg.cholesky(exact[np.ix_(order, order)]).T
    np.testing.assert_allclose(mean[:, order], expected, atol=6 * 0.5 / 2**5 / np.sqrt(4000))  # six standard errors


@pytest.mark.parametrize("rank", [0, 3, 10])
def test_a_client_with_fewer_rows_than_columns_has_a_root(rank):
    rows = np.random.default_rng(0).normal(size=(rank, 10)) / np.sqrt(10)
    exact = rows.T @ rows
    root = unrounded(rounded_root(exact, draws(10)))
    np.testing.assert_allclose(root.T @ root, exact, atol=0.15)


def test_half_a_byte_an_entry():
    root = rounded_root(hessian(100.0, size=60), draws(60))
    assert len(encode_small_ints(root.entries)) < 0.75 * root.entries.size


def test_the_mean_is_over_clients_and_in_their_columns_units():
    hessians, scales = [hessian(10.0, size=8, seed=seed) for seed in range(3)], 2.0 ** np.arange(-4, 4)
    roots = [rounded_root(matrix, draws(8, seed)) for seed, matrix in enumerate(hessians)]
    weights, batch = np.array([0.5, 0.3, 0.2]), _batch(roots)
    fold = mean_of_roots(scales)
    fold.add(batch, weights)
    found = symmetric_of(fold.result(), 8) / np.outer(scales, scales)
    np.testing.assert_allclose(found, np.einsum("j,jab->ab", weights, hessians), atol=0.1)


def test_an_order_that_is_none_is_refused():
    root = rounded_root(hessian(10.0, size=8), draws(8))
    HessianRoot(*root).check()
    with pytest.raises(MessageError, match="every column once"):
        HessianRoot(np.zeros(8, np.int16), root.exponents, root.entries).check()


def test_units_that_no_sum_can_hold_are_refused():
    root, rows = rounded_root(hessian(10.0, size=8), draws(8)), np.zeros((2, 8), np.int16)
    change = (np.uint8(1), np.float32(1.0), np.float32(1.0), np.zeros(8, np.int16))
    made = (
        (lambda power: HessianRoot(root.order, np.full(8, power, np.int16), root.entries), 1),
        (lambda power: ColumnScales(np.full(8, power, np.int16)), 1),
        (lambda power: ChangeAndSketch(*change, np.full(2, power, np.int16), rows), 8),
    )
    for make, parts in made:
        make(parts * LARGEST_POWER).check()
        make(-(2**15)).check()
        with pytest.raises(MessageError, match=rf"has units beyond 2\^{LARGEST_POWER}"):
            make(parts * LARGEST_POWER + 1).check()


def _batch(roots):
    names = ("order", "exponents", "entries")
    return SimpleNamespace(**{name: np.array([getattr(root, name) for root in roots]) for name in names})
