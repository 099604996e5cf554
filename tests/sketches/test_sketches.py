"""The one-pass kernels against the matrices they stand for."""

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards

from fedns.core.errors import ConfigError
from fedns.core.messages import Ragged
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.rng import stream_keys
from fedns.sketches import SJLT, SKETCHES, SRHT, Gaussian, Rademacher, RowSampling

KINDS = [SRHT, SJLT, Gaussian, Rademacher, RowSampling]
EXAMPLES = [
    *[kind(size) for kind in KINDS for size in (1, 5, 17, 70)],
    SJLT(8, nonzeros=2),
    SJLT(8, nonzeros=8),
    SJLT(17, nonzeros=5),
]


def root(problem, w, shards):
    """A_j with A_j' A_j = Hessian of client j's mean loss."""
    x = dense_features(shards)
    if problem.intercept:
        x = np.column_stack([x, np.ones(len(x))])
    s = shards.sample_weights if shards.sample_weights is not None else np.ones(len(x))
    curvature = problem.loss.curvature(shards.targets, x @ w)
    for a, b in zip(shards.starts, shards.stops, strict=True):
        yield np.sqrt(curvature[a:b] * s[a:b] / s[a:b].sum())[:, None] * x[a:b]


@pytest.mark.parametrize("sketch", EXAMPLES, ids=str)
@pytest.mark.parametrize("layout", [{}, {"sparse": True}, {"dtype": np.float32, "weighted": True}], ids=str)
@pytest.mark.parametrize("intercept", [False, True])
def test_sketched_root_equals_matrix_times_root(sketch, layout, intercept):
    shards = make_shards(columns=13, **layout)
    problem = Problem(intercept=intercept)
    w = np.random.default_rng(0).normal(size=13 + intercept)
    keys = stream_keys(0, "sketch", 1, np.arange(5))
    gradient, rows, offsets = problem.gradient_and_sketch(w, shards, sketch.plan(shards.sizes), keys)
    np.testing.assert_allclose(gradient, problem.gradient(w, shards), rtol=1e-12, atol=1e-14)
    for j, a in enumerate(root(problem, w, shards)):
        expected = sketch.matrix(len(a), keys[j]) @ a
        np.testing.assert_allclose(Ragged(rows, offsets).part(j), expected, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 8, 31, 32, 33, 54, 64, 100])
@pytest.mark.parametrize("sketch", [SRHT(20), SJLT(20)], ids=str)
def test_every_width_of_row(columns, sketch):
    shards = make_shards(columns=columns)
    keys = stream_keys(1, "sketch", 1, np.arange(5))
    applied = sketch.apply(shards, keys)
    x = dense_features(shards)
    for j, (a, b) in enumerate(zip(shards.starts, shards.stops, strict=True)):
        np.testing.assert_allclose(applied.part(j), sketch.matrix(b - a, keys[j]) @ x[a:b], atol=1e-12)


@pytest.mark.parametrize(
    "sketch", [SRHT(20), SRHT(300), SJLT(20), SJLT(9, nonzeros=3), Gaussian(9), RowSampling(30)], ids=str
)
def test_cutting_a_client_into_segments_gives_the_same_sketch(sketch, monkeypatch):
    shards = make_shards(rows=3000, sizes=(2500, 500))
    problem, w = Problem(), np.full(13, 0.2)
    keys = stream_keys(2, "sketch", 1, np.arange(2))
    whole = problem.gradient_and_sketch(w, shards, sketch.plan(shards.sizes), keys)
    original = parallel.cut
    monkeypatch.setattr(parallel, "cut", lambda starts, stops, rows=512: original(starts, stops, 512))
    cut = problem.gradient_and_sketch(w, shards, sketch.plan(shards.sizes), keys)
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 100])
def test_srht_is_capped_at_the_padded_length_where_it_is_exact(rows):
    key = stream_keys(3, "sketch", 1, [0])[0]
    matrix = SRHT(1000).matrix(rows, key)
    assert matrix.shape[0] == 1 << (rows - 1).bit_length()
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(rows), atol=1e-12)


def test_srht_rows_are_distinct():
    key = stream_keys(4, "sketch", 1, [0])[0]
    matrix = SRHT(60).matrix(64, key)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(60) * 64 / 60, atol=1e-12)


def test_row_sampling_keeps_distinct_rows_and_all_of_a_small_client():
    key = stream_keys(5, "sketch", 1, [0])[0]
    matrix = RowSampling(10).matrix(40, key)
    assert ((matrix != 0).sum(axis=1) == 1).all() and ((matrix != 0).sum(axis=0) <= 1).all()
    np.testing.assert_array_equal(RowSampling(50).matrix(40, key), np.eye(40))


@pytest.mark.parametrize("nonzeros", [1, 3, 7])
def test_sjlt_columns_have_distinct_nonzeros_of_unit_length(nonzeros):
    matrix = SJLT(7, nonzeros=nonzeros).matrix(500, stream_keys(6, "sketch", 1, [0])[0])
    assert ((matrix != 0).sum(axis=0) == nonzeros).all()
    np.testing.assert_allclose((matrix**2).sum(axis=0), 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_size_zero_is_refused(kind):
    with pytest.raises(ConfigError, match="must be a whole number >= 1, got 0"):
        kind(0)


def test_too_many_nonzeros_are_refused():
    with pytest.raises(ConfigError, match="1 <= nonzeros <= size"):
        SJLT(4, nonzeros=5)


def test_names():
    assert set(SKETCHES) >= {"srht", "sjlt", "gaussian", "rademacher", "rows"}
    assert all(SKETCHES[name].name == name for name in SKETCHES)
