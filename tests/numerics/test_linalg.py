import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedns.numerics import linalg, parallel
from fedns.numerics.backend import triangle_size
from fedns.numerics.cpu import folding
from fedns.numerics.linalg import (
    LowRank,
    add_weighted_rows,
    gram,
    single_threaded_blas,
    solve_from_triangle,
    solve_positive,
    solve_shifted,
    symmetric_of,
    triangle_of,
    weighted_gram,
)


def spd(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(2 * size, size))
    return root.T @ root


def test_packing_goes_both_ways_with_leading_axes():
    matrices = np.stack([spd(5, 1), spd(5, 2)])
    triangle = triangle_of(matrices)
    assert triangle.shape == (2, triangle_size(5))
    np.testing.assert_array_equal(symmetric_of(triangle, 5), matrices)
    np.testing.assert_array_equal(triangle[0], matrices[0][np.triu_indices(5)])


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


@pytest.mark.parametrize("columns", [3, 20_000], ids=["few", "enough for threads"])
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_weighted_rows_are_added_in_order(columns, threads):
    rows, weights = np.random.default_rng(0).normal(size=(50, columns)), np.linspace(0, 1, 50)
    expected = np.zeros(columns)
    for row, weight in zip(rows, weights, strict=True):
        expected = expected + weight * row
    for cuts in ([50], [17, 18, 50]):  # however many come at once
        total, start = np.zeros(columns), 0
        for stop in cuts:
            with parallel.threads(threads):
                add_weighted_rows(total, rows[start:stop], weights[start:stop])
            start = stop
        np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize("begun", [0, 1])
def test_a_thread_adds_the_share_before_its_own_where_nobody_else_begins_it(begun):
    """One thread that is given the second share first, as may be where there are fewer threads than shares."""
    rows, weights, total = np.ones((10, 2000)), np.ones(10), np.zeros(2000)
    shares, (taken, added) = np.array([0, 4, 10]), np.zeros((2, 11), dtype=np.int64)
    if begun:  # by another thread, which has added all of it
        taken[0], added[4] = 1, 2

    def add() -> None:
        for part in (1, 0):
            folding._add_shares(total, rows, weights, part, part + 1, shares, taken, added)

    # Compiled code lets others run: a thread that waits for ever is left behind.
    alone = threading.Thread(target=add, daemon=True)
    alone.start()
    alone.join(60)
    assert not alone.is_alive()
    np.testing.assert_array_equal(total, np.full(2000, 6.0 if begun else 10.0))


@pytest.fixture
def never_dense(monkeypatch):
    """Fails where an M x M matrix is formed."""
    monkeypatch.setattr(LowRank, "dense", lambda self: pytest.fail("the matrix was formed"))


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("free", [[], [39], [0, 17]])
def test_a_low_rank_matrix_is_solved_without_forming_it(never_dense, free, shift):
    random = np.random.default_rng(0)
    rows, diagonal, right = random.normal(size=(12, 40)), np.full(40, 1e-2), random.normal(size=40)
    diagonal[free] = 0.0
    matrix = rows.T @ rows + np.diag(diagonal + shift)
    solution = solve_shifted(LowRank(rows, shift), diagonal, right)
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-10, atol=1e-10 * np.abs(solution).max())


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 40), st.floats(-4, 2), st.floats(-3, 3), st.booleans())
def test_low_rank_and_dense_solutions_agree(seed, rank, more, exponent, row_exponent, intercept):
    """Over ranks, penalties, sizes of rows and repeated rows: the residual is that of a backward stable method."""
    random = np.random.default_rng(seed)
    size = rank + more
    rows = 10.0**row_exponent * random.normal(size=(rank, size))
    rows[rank // 2] = rows[0]
    diagonal, right = np.full(size, 10.0**exponent), random.normal(size=size)
    diagonal[-1] = 0.0 if intercept else diagonal[-1]
    matrix = rows.T @ rows + np.diag(diagonal)
    found, dense = solve_shifted(LowRank(rows), diagonal, right), solve_positive(matrix, right)
    rounding = 1e-13 * (np.linalg.norm(matrix, 2) * np.linalg.norm(found) + np.linalg.norm(right))
    assert np.linalg.norm(matrix @ found - right) <= rounding
    scale = 1.0 / np.sqrt(np.diag(matrix))
    condition = np.linalg.cond(matrix * scale[:, None] * scale)
    assert np.linalg.norm(found - dense) <= 1e-13 * size * condition * np.linalg.norm(dense)


@pytest.mark.parametrize("diagonal", [np.zeros(9), np.array([0.0] * 4 + [1.0] * 5)])
def test_a_low_rank_matrix_that_stays_singular_gets_the_dense_solution(diagonal):
    rows = np.random.default_rng(1).normal(size=(3, 9))
    matrix = rows.T @ rows
    right = (matrix + np.diag(diagonal)) @ np.ones(9)
    solution = solve_shifted(LowRank(rows), diagonal, right)
    np.testing.assert_array_equal(solution, solve_positive(matrix + np.diag(diagonal), right))


def test_a_column_without_curvature_and_penalty_gets_no_step(never_dense):
    rows = np.random.default_rng(1).normal(size=(3, 9))
    rows[:, 8] = 0.0
    solution = solve_shifted(LowRank(rows), np.array([1.0] * 8 + [0.0]), np.ones(9))
    assert solution[8] == 0.0
    expected = np.linalg.solve(rows[:, :8].T @ rows[:, :8] + np.eye(8), np.ones(8))
    np.testing.assert_allclose(solution[:8], expected, rtol=1e-12)


def test_a_gram_is_formed_only_where_there_are_as_many_rows_as_columns():
    rows = np.random.default_rng(0).normal(size=(6, 5))
    np.testing.assert_array_equal(gram(rows), rows.T @ rows)
    np.testing.assert_array_equal(gram(rows[:5]), rows[:5].T @ rows[:5])
    narrow = gram(rows[:4])
    assert isinstance(narrow, LowRank)
    np.testing.assert_array_equal(narrow.dense(), rows[:4].T @ rows[:4])


def test_a_dense_matrix_is_solved_as_ever():
    matrix, diagonal, right = spd(8), np.linspace(0, 1, 8), np.arange(8.0)
    expected = linalg.solve_positive(matrix + np.diag(diagonal), right)
    np.testing.assert_array_equal(solve_shifted(matrix, diagonal, right), expected)


def test_the_triangle_of_a_matrix_gets_the_solution_of_the_full_one():
    random = np.random.default_rng(5)
    rows, diagonal, right = random.standard_normal((90, 70)), random.random(70), random.standard_normal(70)
    triangle = triangle_of(rows.T @ rows)
    found = solve_from_triangle(triangle, diagonal, right)
    np.testing.assert_array_equal(found, solve_shifted(symmetric_of(triangle, 70), diagonal, right))
    np.testing.assert_allclose(found, np.linalg.solve(rows.T @ rows + np.diag(diagonal), right), rtol=1e-8)


def test_the_triangle_of_a_matrix_that_is_singular_gets_a_least_norm_solution():
    np.testing.assert_allclose(solve_from_triangle(np.array([1.0, 1.0, 1.0]), np.zeros(2), np.array([2.0, 2.0])), [1.0, 1.0])
    np.testing.assert_allclose(solve_from_triangle(np.array([4.0, 0.0, 0.0]), np.zeros(2), np.array([2.0, 0.0])), [0.5, 0.0])
