"""Rows that stay in their file give the bits of rows in memory, in every pass and every method."""

from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.methods import METHODS
from fedns.numerics import memory, streaming
from fedns.numerics.backend import LocalSteps
from fedns.numerics.errors import BackendError
from fedns.numerics.parallel import cut
from fedns.numerics.rng import stream_keys
from fedns.numerics.rows import DenseRows


def mapped(array, path):
    np.save(path, array)
    return np.asarray(np.load(path, mmap_mode="r"))


def on_disk(shards, folder):
    """The same shards with their rows in files."""
    rows = shards.rows
    names = ("flat",) if isinstance(rows, DenseRows) else ("data", "indices", "indptr")
    return replace(
        shards, rows=rows._replace(**{name: mapped(getattr(rows, name), folder / f"{name}.npy") for name in names})
    )


@pytest.fixture
def small_reads(monkeypatch):
    """A few rows at a time, and no room for any."""
    monkeypatch.setattr(streaming, "_READ_BYTES", 2000)
    with memory.limited(100):
        yield


def test_where_a_part_of_a_map_lies(tmp_path):
    numbers = np.arange(60.0).reshape(20, 3)
    path = tmp_path / "x.npy"
    part = mapped(numbers, path)[5:, :].reshape(-1)
    name, place = streaming.file_of(part)
    assert name == str(path)
    np.testing.assert_array_equal(np.fromfile(path, np.float64, 4, offset=place), numbers.reshape(-1)[15:19])
    assert streaming.file_of(numbers) is None


def test_rows_that_fit_are_not_read_in_parts(tmp_path):
    shards = on_disk(make_shards(), tmp_path)
    segments = cut(shards.starts, shards.stops)
    with memory.limited(shards.rows.nbytes):
        (run,) = streaming.in_memory(shards.rows, segments)
    assert run.rows is shards.rows and run.segments is segments


@pytest.mark.parametrize("sparse", [False, True])
def test_parts_are_the_rows_in_order(tmp_path, small_reads, sparse):
    plain = make_shards(sparse=sparse)
    shards = on_disk(plain, tmp_path).select([1, 2, 4, 0])
    segments = cut(shards.starts, shards.stops, segment_rows=32)
    seen = []
    for run in streaming.in_memory(shards.rows, segments):
        for at in range(run.low, run.high):
            a, b = run.segments.first[at], run.segments.last[at]
            assert (run.first + a, run.first + b) == (segments.first[at], segments.last[at])
            expected = replace(plain, starts=segments.first[at : at + 1], stops=segments.last[at : at + 1])
            got = replace(plain, rows=run.rows, starts=np.array([a]), stops=np.array([b]))
            (_, _, left), (_, _, right) = *got.blocks(0), *expected.blocks(0)
            np.testing.assert_array_equal(left, right)
            seen.append(at)
    assert seen == list(range(segments.number)) and segments.number == 7


def test_a_file_that_was_cut_short_is_named(tmp_path, small_reads):
    shards = on_disk(make_shards(), tmp_path)
    with (tmp_path / "flat.npy").open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(BackendError, match=r"flat.npy.*cut short"):
        list(streaming.in_memory(shards.rows, cut(shards.starts, shards.stops)))


def passes(problem, shards, w):
    """Everything the passes over these rows give."""
    keys = stream_keys(0, "test", 0, np.arange(shards.num_clients))
    loss, steps, norms = problem.loss, np.array([0.0, 0.5]), np.arange(float(shards.num_samples))
    yield from problem.value_and_gradient(w, shards)
    yield from problem.gradient_and_hessian(w, shards)
    yield problem.losses_along(w, -w, steps, shards)
    yield problem.hessian_times(w, np.stack([[w, -2.0 * w]]), shards)
    yield from problem.passes.value_gradient_and_curvatures(loss, shards, w, norms)
    yield problem.passes.curvatures_along(loss, shards, w, -w, steps, norms)
    local = LocalSteps(np.full(shards.num_clients, 3), 8, 0.1, np.zeros(w.size))
    yield problem.local_steps(w, shards, local, keys)
    for sketch in (fedns.SJLT(7), fedns.SRHT(10), fedns.RowSampling(3), fedns.Gaussian(3)):
        plan = sketch.plan(problem.root_sizes(shards))
        yield from problem.gradient_and_sketch(w, shards, plan, keys)[:2]
        yield problem.passes.sketched_rows(shards, sketch.plan(shards.sizes), keys)


def agree(problem, plain, stored):
    w = np.random.default_rng(1).standard_normal(problem.num_features(plain.num_columns))
    for left, right in zip(passes(problem, plain, w), passes(problem, stored, w), strict=True):
        np.testing.assert_array_equal(left, right, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("most", [512 << 20, 3000])  # above it, the system pages rows in
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [fedns.Logistic(), fedns.Softmax(3)])
def test_every_pass_gives_the_bits_of_rows_in_memory(tmp_path, small_reads, monkeypatch, loss, sparse, most):
    monkeypatch.setattr(streaming, "_MOST_BYTES", most)
    plain = make_shards(sparse=sparse, weighted=True)
    if loss.outputs > 1:
        plain = replace(plain, targets=np.random.default_rng(0).integers(0, 3, plain.num_samples).astype(float))
    agree(fedns.Problem(loss, intercept=True), plain, on_disk(plain, tmp_path))


@pytest.mark.slow
def test_clients_longer_than_a_segment_give_the_same_bits(tmp_path, small_reads):
    plain = make_shards(200_000, 3, (150_000, 50_000))
    agree(fedns.Problem(), plain, on_disk(plain, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_gives_the_bits_of_rows_in_memory(tmp_path, small_reads, method):
    plain = make_shards(weighted=True)
    one = fedns.simulate(METHODS[method](), fedns.Problem(), plain, rounds=3)
    two = fedns.simulate(METHODS[method](), fedns.Problem(), on_disk(plain, tmp_path), rounds=3)
    np.testing.assert_array_equal(one.coefficients, two.coefficients)
    assert one.ledger == two.ledger
