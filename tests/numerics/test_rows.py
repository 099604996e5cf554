"""Rows in narrow types: what is chosen, and that every method and every sketch gives the same bits."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

import fedns
from fedns.core.shards import Shards, as_rows
from fedns.methods import METHODS
from fedns.numerics.rng import stream_keys
from fedns.numerics.rows import narrowed

SIZES = np.array([1, 7, 33, 300])
# Numbers that fit each type and no smaller one.
SAMPLES = {
    "u1": np.array([0.0, 1.0, 255.0]),
    "i1": np.array([-128.0, 0.0, 127.0]),
    "i2": np.array([-32768.0, 3.0, 32767.0]),
    "f4": np.array([0.5, -0.25, 3.0]),
    "f8": np.array([0.1, 1.0, 2.0]),
}


@pytest.mark.parametrize(("kind", "values"), SAMPLES.items())
def test_the_smallest_type_that_is_exact(kind, values):
    matrix = np.tile(values, (7000, 1))  # longer than what is looked at first
    assert narrowed(as_rows(matrix)).flat.dtype == kind
    sparse = as_rows(scipy.sparse.csr_matrix(np.hstack([matrix, np.zeros((7000, 20))])))
    np.testing.assert_array_equal(narrowed(sparse).data.astype(float), sparse.data)


def test_one_number_at_the_end_decides():
    matrix = np.zeros((10_000, 3))
    matrix[-1, -1] = 256.0
    assert narrowed(as_rows(matrix)).flat.dtype == np.int16
    matrix[-1, -1] = 0.1
    rows = as_rows(matrix)
    assert narrowed(rows) is rows


def test_a_mapped_table_is_read_where_it_lies(tmp_path):
    matrix = np.arange(60.0).reshape(20, 3)
    np.save(tmp_path / "rows.npy", matrix)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="c")
    targets = np.where(np.arange(20) % 2, 1.0, -1.0)
    shards = Shards.from_arrays(mapped, targets, [8, 12])
    assert shards.narrowed is shards and np.shares_memory(shards.rows.flat, mapped)
    in_memory = Shards.from_arrays(matrix, targets, [8, 12])
    w = np.array([0.01, -0.02, 0.005])
    np.testing.assert_array_equal(fedns.Problem().gradient(w, shards), fedns.Problem().gradient(w, in_memory.narrowed))


def table(kind, columns, sparse=False):
    """Shards of numbers drawn from those of a type, many of them zero."""
    random = np.random.default_rng(columns)
    rows = int(SIZES.sum())
    features = random.choice(np.append(SAMPLES[kind], 0.0), (rows, columns))
    if sparse:
        features[random.random(features.shape) < 0.8] = 0.0
    targets = np.where(random.random(rows) < 0.5, -1.0, 1.0)
    return Shards.from_arrays(scipy.sparse.csr_matrix(features) if sparse else features, targets, SIZES)


def passes(problem, shards, w):
    """Everything the passes over these rows give."""
    keys = stream_keys(0, "test", 0, np.arange(SIZES.size))
    yield from problem.value_and_gradient(w, shards)
    yield from problem.gradient_and_hessian(w, shards)
    yield problem.losses_along(w, -w, np.array([0.0, 0.5]), shards)
    yield problem.hessian_times(w, np.stack([[w, -2.0 * w]]), shards)
    for sketch in (fedns.SJLT(7), fedns.SJLT(7, nonzeros=2), fedns.SRHT(10), fedns.SRHT(40), fedns.RowSampling(3)):
        yield from problem.gradient_and_sketch(w, shards, sketch.plan(shards.sizes), keys)[:2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["u1", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("i1", "i2")), "f4"])
@pytest.mark.parametrize("columns", [5, 18, 54, 70])
def test_every_pass_gives_the_same_bits(kind, columns):
    shards = table(kind, columns)
    assert shards.narrowed.rows.flat.dtype == kind
    for intercept in (False, True):
        problem = fedns.Problem(intercept=intercept)
        w = np.random.default_rng(0).standard_normal(columns + intercept) / np.abs(SAMPLES[kind]).max()
        for wide, narrow in zip(passes(problem, shards, w), passes(problem, shards.narrowed, w), strict=True):
            np.testing.assert_array_equal(wide, narrow, strict=True)


@pytest.mark.slow
def test_compressed_rows_give_the_same_bits():
    shards = table("u1", 40, sparse=True)
    assert shards.narrowed.rows.data.dtype == np.uint8
    w = np.random.default_rng(0).standard_normal(40) / 255.0
    for wide, narrow in zip(passes(fedns.Problem(), shards, w), passes(fedns.Problem(), shards.narrowed, w), strict=True):
        np.testing.assert_array_equal(wide, narrow, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_gives_the_same_bits(method, monkeypatch):
    shards = table("u1", 12)
    shards = replace(shards, rows=as_rows(np.minimum(shards.rows.values, 2.0)))
    narrow = fedns.simulate(METHODS[method](), fedns.Problem(), shards, rounds=3)
    monkeypatch.setattr(Shards, "onehot", property(lambda self: self))
    wide = fedns.simulate(METHODS[method](), fedns.Problem(), shards, rounds=3)
    np.testing.assert_array_equal(narrow.coefficients, wide.coefficients)
    assert narrow.ledger == wide.ledger
