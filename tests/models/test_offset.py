"""An offset against a problem in which the same column has a coefficient that happens to be 1."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import make_shards

from fedns.models.losses import Logistic
from fedns.models.problem import Problem
from fedns.numerics.linalg import symmetric_of
from fedns.sketches import SRHT


@pytest.mark.parametrize("intercept", [False, True])
def test_every_pass_is_that_of_a_coefficient_of_one(intercept):
    shards = make_shards(weighted=True)
    free, full = Problem(Logistic(), intercept=intercept, offset=True), Problem(Logistic(), intercept=intercept)
    random = np.random.default_rng(1)
    w, direction, steps = *random.normal(size=(2, 12 + intercept)), np.array([0.0, 0.5])
    place = 12
    wide, along = np.insert(w, place, 1.0), np.insert(direction, place, 0.0)
    assert free.num_features(13) == 12 + intercept
    same = np.testing.assert_array_equal
    same(free.losses_along(w, direction, steps, shards), full.losses_along(wide, along, steps, shards))
    same(free.gradient(w, shards), np.delete(full.gradient(wide, shards), place, axis=1))
    for mine, theirs in zip(free.value_and_gradient(w, shards), full.value_and_gradient(wide, shards), strict=True):
        same(mine, np.delete(theirs, place, axis=1) if theirs.ndim > 1 else theirs)
    hessian = symmetric_of(full.gradient_and_hessian(wide, shards)[1], wide.size)
    same(free.hessian(w, shards), np.delete(np.delete(hessian, place, axis=1), place, axis=2))
    times = full.hessian_times(wide, along[None, None], shards)
    same(free.hessian_times(w, direction[None, None], shards), np.delete(times, place, axis=2))
    plan, keys = SRHT(4).plan(shards.sizes), np.zeros((shards.num_clients, 2), dtype=np.uint64)
    same(
        free.gradient_and_sketch(w, shards, plan, keys)[1],
        np.delete(full.gradient_and_sketch(wide, shards, plan, keys)[1], place, 1),
    )
