"""The walk of mini-batch steps that a site looks at is the one that the compiled passes make."""

import numpy as np
import pytest
from tests.conftest import make_shards

from fedns.federation.site.concentration import squared_norms
from fedns.federation.site.local_path import steps_of
from fedns.models.problem import Problem
from fedns.models.softmax import Softmax
from fedns.numerics.backend import LocalSteps
from fedns.numerics.rng import stream_keys


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_point_is_where_so_many_compiled_steps_end(sparse, weighted):
    shards = make_shards(rows=100, columns=6, sizes=(100,), sparse=sparse, weighted=weighted)
    problem, keys, norms = Problem(intercept=True), stream_keys(3, "local batches", 2, [0]), squared_norms(shards)
    w, diagonal, epochs = np.linspace(-0.2, 0.3, 7), np.full(7, 0.01), []
    local = LocalSteps(np.array([12]), 30, 0.4, diagonal, 0.1)  # three epochs, each of which ends with ten rows
    walked = list(steps_of(problem, w, shards, local, keys, norms, epochs.append))
    assert len(walked) == 12 and len(epochs) == 3
    for step, (point, _) in enumerate(walked[1:], start=1):
        ended = problem.local_steps(w, shards, local._replace(steps=np.array([step])), keys)[0]
        np.testing.assert_allclose(point, ended, rtol=1e-12, atol=1e-14)


def test_the_sums_are_those_of_the_rows_of_a_batch():
    shards = make_shards(rows=100, columns=3, sizes=(100,))
    problem, keys, norms = Problem(), stream_keys(0, "local batches", 1, [0]), squared_norms(shards)
    w = np.array([0.5, -0.5, 1.0])
    local = LocalSteps(np.array([1]), 100, 0.4, np.zeros(3))
    ((_, sums),) = steps_of(problem, w, shards, local, keys, norms, lambda _: None)
    whole = problem.passes.value_gradient_and_curvatures(problem.loss, shards, w, norms)[2][0]
    np.testing.assert_allclose(sums, whole, rtol=1e-12)
    halves = steps_of(problem, w, shards, local._replace(batch_size=50, steps=np.array([2])), keys, norms, lambda _: None)
    assert all(abs(sums[0] - whole[0]) > 1e-6 for _, sums in halves)


def test_several_outputs_walk_as_well():
    shards = make_shards(rows=60, columns=4, sizes=(60,))
    shards.targets[:] = np.arange(60) % 3
    problem, keys = Problem(Softmax(3)), stream_keys(1, "local batches", 1, [0])
    w = np.linspace(-1, 1, problem.num_features(4))
    local = LocalSteps(np.array([4]), 25, 0.3, np.zeros(w.size))
    *_, (last, _) = steps_of(problem, w, shards, local, keys, squared_norms(shards), lambda _: None)
    ended = problem.local_steps(w, shards, local._replace(steps=np.array([3])), keys)[0]
    np.testing.assert_allclose(last, ended, rtol=1e-12)
