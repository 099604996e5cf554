import numpy as np

from fedns.numerics import parallel
from fedns.numerics.linalg import (
    add_weighted_rows,
    pack_symmetric,
    packed_size,
    single_threaded_blas,
    solve_positive,
    unpack_symmetric,
    weighted_gram,
)


def spd(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(2 * size, size))
    return root.T @ root


def test_packing_goes_both_ways_with_leading_axes():
    matrices = np.stack([spd(5, 1), spd(5, 2)])
    packed = pack_symmetric(matrices)
    assert packed.shape == (2, packed_size(5))
    np.testing.assert_array_equal(unpack_symmetric(packed, 5), matrices)
    np.testing.assert_array_equal(packed[0], matrices[0][np.triu_indices(5)])


def test_solution_of_a_well_conditioned_system():
    matrix, right = spd(8), np.arange(8.0)
    np.testing.assert_allclose(solve_positive(matrix, right), np.linalg.solve(matrix, right), rtol=1e-11)


def test_units_of_columns_do_not_matter():
    matrix, right = spd(6), np.arange(1.0, 7.0)
    units = 10.0 ** np.array([-6, 6, 0, 3, -3, 5])
    scaled = solve_positive(matrix * units[:, None] * units, right * units)
    np.testing.assert_allclose(scaled * units, np.linalg.solve(matrix, right), rtol=1e-9)


def test_a_singular_matrix_gets_a_least_norm_solution():
    root = np.random.default_rng(0).normal(size=(20, 4))
    root = np.column_stack([root, root[:, 0], np.zeros(20)])  # a repeated column and an empty one
    matrix = root.T @ root
    right = matrix @ np.ones(6)
    solution = solve_positive(matrix, right)
    np.testing.assert_allclose(matrix @ solution, right, rtol=1e-10)
    np.testing.assert_allclose(solution[[0, 4]], [1.0, 1.0], rtol=1e-9)
    assert solution[5] == 0.0


def test_weighted_gram_has_the_same_bits_on_any_number_of_threads():
    random = np.random.default_rng(3)
    rows, weights = random.normal(size=(1500, 30)), random.random(1500)
    found = []
    for count in (1, 2):
        with parallel.threads(count), single_threaded_blas():
            found.append(weighted_gram(rows, weights))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], (rows.T * weights) @ rows, rtol=1e-12, atol=1e-12)


def test_weighted_rows_are_added_in_order():
    rows, weights = np.random.default_rng(0).normal(size=(50, 3)), np.linspace(0, 1, 50)
    total = np.zeros(3)
    add_weighted_rows(total, rows, weights)
    expected = np.zeros(3)
    for row, weight in zip(rows, weights, strict=True):
        expected = expected + weight * row
    np.testing.assert_array_equal(total, expected)
