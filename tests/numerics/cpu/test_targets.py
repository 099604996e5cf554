"""Targets that are held again in a byte each: the same bits from less memory."""

from dataclasses import replace

import numpy as np
import pytest

import fedns
from fedns.core.shards import Shards
from fedns.numerics.onehot import OneHotRows, onehot_of
from fedns.numerics.rng import stream_keys
from fedns.numerics.rows import InBytes

SIZES = np.array([1, 7, 8, 16, 33, 300])  # shorter than a group, whole groups, groups and a rest


def table(kind, weighted):
    random, rows = np.random.default_rng(5), int(SIZES.sum())
    features = random.integers(-9, 9, (rows, 12)).astype(float)
    if kind == "onehot":  # numbers, and then a one-hot group
        features = np.hstack([features, np.eye(40)[random.integers(0, 40, rows)]])
    targets = random.integers(-128, 128, rows).astype(float)
    data = Shards.from_arrays(features, targets, SIZES, sample_weights=random.random(rows) if weighted else None)
    if kind == "onehot":
        found = onehot_of(features.astype(np.int16))
        assert isinstance(found, OneHotRows)
        return replace(data, rows=found)
    return data


@pytest.mark.parametrize("kind", ["dense", "onehot"])
@pytest.mark.parametrize("sketch", [fedns.SJLT(7), fedns.SRHT(20), fedns.SRHT(40), fedns.Gaussian(5)])
@pytest.mark.parametrize("intercept", [False, True])
def test_targets_in_bytes_give_the_same_bits(kind, sketch, intercept, monkeypatch):
    data = table(kind, weighted=intercept)
    problem = fedns.Problem(fedns.Squared(), intercept=intercept)
    w = np.random.default_rng(0).standard_normal(problem.num_features(data.num_columns))
    keys, plan = stream_keys(0, "test", 0, np.arange(SIZES.size)), sketch.plan(data.sizes)
    in_bytes = problem.gradient_and_sketch(w, data, plan, keys)
    asked = []
    monkeypatch.setattr(InBytes, "of", lambda self, targets: asked.append(targets) or np.empty(0, np.int8))
    for own, other in zip(in_bytes, problem.gradient_and_sketch(w, data, plan, keys), strict=True):
        np.testing.assert_array_equal(own, other)
    assert asked


@pytest.mark.parametrize("kind", ["dense", "onehot"])
@pytest.mark.parametrize("sketch", [fedns.SJLT(7), fedns.SRHT(20)])
def test_the_bytes_are_what_is_read(kind, sketch, monkeypatch):
    data = table(kind, weighted=False)
    keys, plan, w = stream_keys(0, "test", 0, np.arange(SIZES.size)), sketch.plan(data.sizes), np.zeros(data.num_columns)
    with monkeypatch.context() as patch:
        patch.setattr(InBytes, "of", lambda self, targets: np.ones(targets.size, np.int8))
        gradient, _, _ = fedns.Problem(fedns.Squared()).gradient_and_sketch(w, data, plan, keys)
    ones = replace(data, targets=np.ones(data.num_samples))
    expected, _, _ = fedns.Problem(fedns.Squared()).gradient_and_sketch(w, ones, plan, keys)
    assert np.array_equal(gradient[3], expected[3])  # sixteen rows; where there is a rest it may be read as it was


def test_what_is_no_small_integer_stays_as_it_is():
    targets = np.tile([-128.0, 0.0, 127.0], 10_000)
    assert InBytes().of(targets).dtype == np.int8 and np.array_equal(InBytes().of(targets), targets)
    for other in (128.0, -129.0, 0.5, 1e300):
        changed = targets.copy()
        changed[-1] = other
        assert InBytes().of(changed).size == 0


def test_bytes_are_made_once_for_shards_and_what_is_selected_of_them():
    data = table("dense", weighted=False)
    found = data.small_targets
    assert found.size and data.small_targets is found and data.select([0, 3]).small_targets is found
    assert data.onehot.small_targets is found


def test_other_targets_are_looked_at_again():
    data = table("dense", weighted=False)
    assert np.array_equal(data.small_targets, data.targets)
    other = replace(data, targets=data.targets + 1 - 2 * (data.targets > 0))
    assert np.array_equal(other.small_targets, other.targets) and np.array_equal(data.small_targets, data.targets)


def test_an_array_that_was_changed_after_a_fit_is_what_the_next_shards_have():
    x, y = np.arange(40.0).reshape(20, 2) / 10, np.where(np.arange(20) % 2, 1.0, -1.0)
    plan, keys, w = fedns.SJLT(4).plan(np.array([20])), stream_keys(0, "test", 0, np.arange(1)), np.zeros(2)
    before, _, _ = fedns.Problem().gradient_and_sketch(w, Shards.from_arrays(x, y, [20]), plan, keys)
    y *= -1.0  # the very array that the shards had
    after, _, _ = fedns.Problem().gradient_and_sketch(w, Shards.from_arrays(x, y, [20]), plan, keys)
    np.testing.assert_allclose(after, -before)
