"""Rows with an index for each one-hot group: what is held so, and that every pass and every method gives the same bits."""

from dataclasses import replace

import numpy as np
import pytest

import fedns
from fedns.core.shards import Shards, as_rows
from fedns.methods import METHODS
from fedns.numerics import rows as storage
from fedns.numerics.backend import LocalSteps
from fedns.numerics.cpu.onehot import ones
from fedns.numerics.cpu.onehot.srht import onehot_srht_address
from fedns.numerics.onehot import OneHotRows, onehot_of
from fedns.numerics.rng import stream_keys

SIZES = np.array([1, 7, 33, 300, 8])
# Numbers of columns that hold other numbers, and one-hot groups: columns, and 1 where a row may have no one.
COVTYPE, MIXED = (10, (4, 0), (40, 0)), ((5, 0), 3, (9, 1), 6)
LAYOUTS = [
    COVTYPE,
    MIXED,
    ((30, 1),),
    (1, (7, 0), 8, (3, 0), (20, 1), 2),
    (16, (8, 0)),
    (19, (5, 1), (4, 0), (3, 1)),
    (8, (232, 0), 9, (17, 1)),
]


def matrix(layout, rows, seed=0):
    """Whole numbers from -3 to 300, and one-hot groups."""
    random, parts = np.random.default_rng(seed), []
    for part in layout:
        if isinstance(part, tuple):
            columns, none = part
            parts.append(np.eye(columns + none)[random.integers(0, columns + none, rows), :columns])
        else:
            parts.append(random.choice([-3.0, 0.0, 1.0, 2.0, 7.0, 300.0], (rows, part)))
    return np.hstack(parts)


def shards(layout, weighted=False):
    random, rows = np.random.default_rng(1), int(SIZES.sum())
    targets = np.where(random.random(rows) < 0.5, -1.0, 1.0)
    weights = random.random(rows) + 0.1 if weighted else None
    return Shards.from_arrays(matrix(layout, rows), targets, SIZES, sample_weights=weights)


def as_onehot(data):
    rows = onehot_of(data.rows.values.astype(np.int16))
    assert rows is not None
    return replace(data, rows=rows)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_onehot_rows_are_the_same_numbers_in_less_memory(layout):
    values = matrix(layout, 20_000).astype(np.int16)  # more than what is looked at in one go
    rows = onehot_of(values)
    assert rows.shape == values.shape and rows.nbytes < values.nbytes
    np.testing.assert_array_equal(rows.block(0, len(values)), values)
    np.testing.assert_array_equal(rows.part(5, 19_000).block(0, 18_995), values[5:19_000])
    np.testing.assert_array_equal(storage.written_out(rows).values, values, strict=True)


def test_groups_are_runs_of_columns_with_at_most_one_one():
    values = matrix((2, (4, 0), (6, 1), 1), 20_000)
    assert (onehot_of(values).firsts.tolist(), onehot_of(values).lasts.tolist()) == ([2, 6], [6, 12])
    values[-1, 6:12] = [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]  # one row with two ones cuts the second group
    assert (onehot_of(values).firsts.tolist(), onehot_of(values).lasts.tolist()) == ([2, 8], [6, 12])
    values[-1, 3] = 2.0
    assert onehot_of(values).firsts.tolist() == [8]
    assert onehot_of(np.random.default_rng(0).standard_normal((50, 9))) is None
    assert onehot_of(np.eye(300)).lasts.tolist() == [255, 300]


def test_rows_are_onehot_where_it_pays(monkeypatch):
    rows = as_rows(matrix(COVTYPE, 50))
    assert storage.onehot_where_it_pays(rows) is rows  # small
    monkeypatch.setattr(storage, "_WORTH_COMPILING", 0)
    found = storage.onehot_where_it_pays(rows)
    assert isinstance(found, OneHotRows) and found.numbers.dtype == np.int16 and found.nbytes == 50 * (2 * 10 + 2)
    few = as_rows(matrix((10, (4, 0)), 50))
    assert storage.onehot_where_it_pays(few) is few
    assert storage.onehot_where_it_pays(as_rows(matrix(((30, 1),), 50))).nbytes == 50


def test_what_reads_whole_rows_gets_them():
    data = shards(COVTYPE)
    part = as_onehot(data).extract(1, 3)
    np.testing.assert_array_equal(part.rows.block(0, 40), data.rows.values[1:41])
    np.testing.assert_array_equal(as_onehot(data).mean_squares(), data.mean_squares())
    np.testing.assert_array_equal(as_onehot(data).narrowed.rows.values, data.rows.values)
    whole = storage.written_once(part.rows)
    assert storage.written_once(part.rows) is whole


def sketches(problem, data, w):
    keys = stream_keys(0, "test", 0, np.arange(SIZES.size))
    kinds = fedns.SJLT(7), fedns.SJLT(7, nonzeros=2), fedns.SRHT(10), fedns.SRHT(20), fedns.SRHT(40), fedns.RowSampling(3)
    for sketch in (*kinds, fedns.Gaussian(3)):
        yield from problem.gradient_and_sketch(w, data, sketch.plan(data.sizes), keys)[:2]


def passes(problem, data, w):
    """Everything the passes over these rows give."""
    yield from problem.value_and_gradient(w, data)
    yield from problem.gradient_and_hessian(w, data)
    yield problem.losses_along(w, -w, np.array([0.0, 0.5]), data)
    yield problem.hessian_times(w, np.stack([[w, -2.0 * w]]), data)
    yield from problem.passes.value_gradient_and_curvatures(problem.loss, data, w, np.ones(SIZES.sum()))
    yield problem.passes.curvatures_along(problem.loss, data, w, -w, np.array([0.0, 0.5]), np.ones(SIZES.sum()))
    local = LocalSteps(np.full(SIZES.size, 9), 16, 1e-6, np.zeros(w.size))
    yield problem.local_steps(w, data, local, stream_keys(0, "test", 0, np.arange(SIZES.size)))
    yield from sketches(problem, data, w)


def same(found, wide, onehot_too, problem):
    w = np.random.default_rng(0).standard_normal(problem.num_features(wide.num_columns)) / 300
    for point in (w, np.where(np.arange(w.size) == w.size - 2, np.inf, w)):  # zeros times infinity are no zeros
        with np.errstate(invalid="ignore"):
            for theirs, ours in zip(found(problem, wide, point), found(problem, onehot_too, point), strict=True):
                np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.slow
def test_values_and_gradients_have_the_same_bits():
    for layout in (COVTYPE, MIXED, (10, (90, 1)), (21, (60, 0), (7, 0))):  # two of more columns than one chain has
        data = shards(layout)
        same(lambda problem, rows, w: problem.value_and_gradient(w, rows), data, as_onehot(data), fedns.Problem())


@pytest.mark.nightly
@pytest.mark.parametrize(("intercept", "weighted"), [(False, True), (True, False)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_pass_gives_the_same_bits(layout, intercept, weighted):
    data = shards(layout, weighted)
    same(passes, data, as_onehot(data), fedns.Problem(intercept=intercept))


@pytest.mark.nightly
def test_slopes_that_are_not_finite_have_the_same_bits():
    data = replace(shards(COVTYPE), targets=np.ones(SIZES.sum()))
    w = np.full(data.num_columns, 0.5)  # margins of some hundreds: exponentials of some of them are infinite
    problem = fedns.Problem(loss=fedns.Poisson())
    with np.errstate(invalid="ignore", over="ignore"):
        theirs, ours = (list(sketches(problem, rows, w)) for rows in (data, as_onehot(data)))
    assert not np.isfinite(theirs[1]).all()
    for one, other in zip(theirs, ours, strict=True):
        np.testing.assert_array_equal(other, one, strict=True)


LONG = np.array([1500, 40, 7])  # a client of several batches of rows, one of a few blocks, one without any


def transformed(problem, data, w, sizes):
    """Gradients and SRHT sketches."""
    keys = stream_keys(0, "test", 0, np.arange(LONG.size))
    for size in sizes:
        yield from problem.gradient_and_sketch(w, data, fedns.SRHT(size).plan(data.sizes), keys)[:2]


def by_code(layout, problem, sizes, infinite=None):
    """The same of dense rows and of one-hot ones, whose ones are added by their codes; one row may have an
    infinite slope."""
    random, rows = np.random.default_rng(1), int(LONG.sum())
    values = matrix(layout, rows)
    if infinite is not None:
        values[:, 0] = np.where(np.arange(rows) == infinite, 300.0, 0.0)
    targets = np.where(random.random(rows) < 0.5, 0.0, 1.0)
    data = Shards.from_arrays(values, targets, LONG, sample_weights=random.random(rows) + 0.1)
    narrow = as_onehot(data)
    w = random.standard_normal(problem.num_features(data.num_columns)) / 100
    w[0] = 5.0 if infinite is not None else w[0]  # the exponential of 1500
    if ones.available():
        assert all(onehot_srht_address(problem.loss, narrow.rows, w.size, 16, size) for size in sizes)
    with np.errstate(invalid="ignore", over="ignore"):
        return (list(transformed(problem, some, w, sizes)) for some in (data, narrow))


@pytest.mark.slow
def test_ones_that_are_added_by_their_codes_have_the_same_bits():
    for theirs, ours in zip(*by_code(COVTYPE, fedns.Problem(intercept=True), [20]), strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.nightly
@pytest.mark.parametrize("layout", [COVTYPE, (3, (60, 1)), (8, (52, 0), (3, 1)), (17, (47, 0))])
def test_ones_of_any_layout_have_the_same_bits(layout):
    for problem in (fedns.Problem(), fedns.Problem(loss=fedns.Squared(), intercept=True)):
        for theirs, ours in zip(*by_code(layout, problem, [1, 8, 20, 32]), strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.nightly
def test_ones_are_added_up_to_the_first_row_that_is_not_finite():
    for infinite in (0, 700):  # in the first and in the second batch of rows
        found = by_code(COVTYPE, fedns.Problem(loss=fedns.Poisson()), [20], infinite)
        for theirs, ours in zip(*found, strict=True):
            assert not np.isfinite(theirs[0]).all() and np.isfinite(theirs[-1]).all()
            np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.nightly
@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_gives_the_same_bits(method, monkeypatch):
    data = shards((3, (4, 0), (12, 1)))
    values = np.minimum(data.rows.values, 2.0)
    values[0, 0] = 300.0  # no smaller type than the other tests have kernels for
    data = replace(data, rows=as_rows(values))
    monkeypatch.setattr(storage, "_WORTH_COMPILING", 0)
    assert isinstance(data.onehot.rows, OneHotRows)
    narrow = fedns.simulate(METHODS[method](), fedns.Problem(), data, rounds=3)
    monkeypatch.setattr(Shards, "onehot", property(lambda self: self))
    wide = fedns.simulate(METHODS[method](), fedns.Problem(), data, rounds=3)
    np.testing.assert_array_equal(narrow.coefficients, wide.coefficients)
    assert narrow.ledger == wide.ledger


@pytest.mark.nightly
def test_softmax_reads_onehot_rows():
    data = replace(shards(COVTYPE), targets=np.random.default_rng(0).integers(0, 3, SIZES.sum()).astype(float))
    problem = fedns.Problem(loss=fedns.Softmax(3))
    w = np.random.default_rng(0).standard_normal(problem.num_features(data.num_columns)) / 300
    for ours, theirs in zip(
        problem.value_and_gradient(w, as_onehot(data)), problem.value_and_gradient(w, data), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
