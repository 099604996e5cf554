"""Rows that come by in windows against the same rows on the device: the same bits, in every pass."""

import gc

import numpy as np
import pytest
import scipy.sparse
from tests.conftest import dense_features
from tests.numerics.gpu.device import SIZES, coefficients, needs_device, on, shards

import fedns
from fedns.core.shards import Shards
from fedns.numerics.backend import LocalSteps
from fedns.numerics.errors import BackendError
from fedns.numerics.rng import stream_keys

pytestmark = needs_device
NARROW, WIDE = 18, 150  # columns: the fused kernel, and products of matrices
SKETCHES = fedns.SJLT(7), fedns.SJLT(7, nonzeros=2), fedns.SRHT(10), fedns.Gaussian(9), fedns.RowSampling(5)


@pytest.fixture(params=["straight", "gathered"])
def small(monkeypatch, request):
    """Windows of few pieces, and a room that can be set, in gigabytes."""
    from fedns.numerics.gpu import resident, streamed, windows

    if request.param == "gathered":
        monkeypatch.setattr(streamed, "pinned", lambda array: False)
    monkeypatch.setattr(streamed, "_WINDOW_BYTES", 100_000)
    monkeypatch.setattr(streamed, "_PART_BYTES", 10_000)
    monkeypatch.setattr(windows, "BLOCK_BYTES", 2_500_000)
    monkeypatch.setattr("fedns.numerics.gpu.backend._WORKING_BYTES", 400_000)
    return lambda gigabytes: monkeypatch.setenv(resident.VARIABLE, gigabytes)


def both(small, data, passes):
    """What a function of shards gives with rows on the device, and with rows that stream."""
    from fedns.numerics.gpu.resident import ResidentRows, device_rows
    from fedns.numerics.gpu.streamed import StreamedRows

    results = []
    for gigabytes, kind in (("1", ResidentRows), ("1e-6", StreamedRows)):
        small(gigabytes)
        weights = None if data.sample_weights is None else data.sample_weights.copy()
        own = Shards(data.rows, data.targets.copy(), data.starts, data.stops, weights)  # which the device has not seen
        assert isinstance(device_rows(own), kind)
        results.append(passes(own))
    return results


def same(pair):
    for resident, streamed in zip(*pair, strict=True):
        np.testing.assert_array_equal(resident, streamed)


@pytest.mark.parametrize("columns", [NARROW, WIDE])
@pytest.mark.parametrize(("dtype", "intercept", "weighted"), [("f8", False, False), ("i2", True, True), ("f4", True, False)])
def test_every_pass_gives_the_same_bits(small, columns, dtype, intercept, weighted):
    data, problem = shards(columns, dtype, weighted), on(fedns.Logistic(), intercept)
    w = coefficients(problem, data)
    norms, steps = (dense_features(data) ** 2).sum(axis=1), np.array([0.0, 0.5])
    local = LocalSteps(-(-data.sizes // 8), 8, 0.3, problem.penalty_curvature(w), 0.1)
    keys = stream_keys(0, "test", 0, np.arange(SIZES.size))
    same(
        both(
            small,
            data,
            lambda own: [
                *problem.value_and_gradient(w, own),
                problem.gradient(np.stack([w] * SIZES.size), own),
                *problem.gradient_and_hessian(w, own),
                problem.hessian_times(w, np.ones((1, 2, w.size)), own),
                problem.losses_along(w, -w, steps, own),
                problem.backend.curvatures_along(problem.loss, own, w, -w, steps, norms),
                problem.local_steps(w, own, local, keys),
                *(problem.gradient_and_sketch(w, own, s.plan(own.sizes), keys)[k] for s in SKETCHES for k in (0, 1)),
                problem.backend.sketched_rows(own, fedns.SJLT(7).plan(own.sizes), keys),
            ],
        )
    )


def test_some_of_the_clients_in_another_order(small):
    problem = on(fedns.Logistic())
    data = shards(NARROW).select([5, 0, 3, 4])
    w = coefficients(problem, data)
    same(both(small, data, lambda own: problem.gradient_and_hessian(w, own)))
    same(both(small, data, lambda own: problem.value_and_gradient(w, own)))


def test_compressed_rows_stream(small):
    whole = shards(NARROW, "i2")
    data = Shards.from_arrays(scipy.sparse.random(2873, 40, 0.1, "csr", random_state=0), whole.targets, SIZES)
    problem = on(fedns.Logistic())
    w = coefficients(problem, data)
    sampled = fedns.RowSampling(5).plan(data.sizes)
    keys = stream_keys(0, "test", 0, np.arange(SIZES.size))
    passes = lambda own: [*problem.value_and_gradient(w, own), *problem.gradient_and_sketch(w, own, sampled, keys)[:2]]  # noqa: E731
    same(both(small, data, passes))


@pytest.mark.parametrize("method", [fedns.FedNS(fedns.SRHT(10)), fedns.FedNewton(), fedns.Auto()], ids=lambda m: m.name)
def test_whole_runs(small, method):
    data = shards(NARROW)
    run = lambda own: [fedns.simulate(method, fedns.Problem(), own, rounds=4, device="cuda").coefficients]  # noqa: E731
    same(both(small, data, run))


def test_an_exception_in_the_middle_of_a_pass_leaves_the_buffers_in_order(small):
    from fedns.numerics.gpu.resident import device_rows

    data, problem = shards(NARROW), on(fedns.Logistic())
    w = coefficients(problem, data)
    small("1e-6")
    expected, rows = problem.gradient(w, data), device_rows(data)
    windows = rows.windows(data, rows.pieces(data, 512, rows.window_rows))
    next(windows), next(windows)
    windows.close()
    np.testing.assert_array_equal(problem.gradient(w, data), expected)


def test_rows_go_when_those_of_the_host_go(small):
    from fedns.numerics.gpu import resident

    small("1e-6")
    gc.collect()
    before, data = len(resident._known), shards(NARROW)
    on(fedns.Logistic()).gradient(np.zeros(NARROW), data)
    assert len(resident._known) == before + 1
    del data
    gc.collect()
    assert len(resident._known) == before


def test_a_room_that_is_no_number_is_refused(small):
    small("much")
    with pytest.raises(BackendError, match=r"FEDNS_DEVICE_MEMORY must be a number of gigabytes above 0, got 'much'"):
        on(fedns.Logistic()).gradient(np.zeros(NARROW), shards(NARROW))


def test_memory_is_pinned_once_and_let_go(small):
    from fedns.numerics.gpu import streamed

    small("1e-6")
    gc.collect()
    before, data = sum(streamed._pins.values()), shards(NARROW)
    other = Shards(data.rows, data.targets.copy(), data.starts, data.stops)
    for own in (data, other):
        on(fedns.Logistic()).gradient(np.zeros(NARROW), own)
    assert sum(streamed._pins.values()) in (before, before + 4)
    del data, other, own
    gc.collect()
    assert sum(streamed._pins.values()) == before
