import numpy as np
import pytest
from scipy.special import expit

from fedns.numerics.cpu import pointwise
from fedns.numerics.cpu.jit import jit
from fedns.problems.losses import Logistic, Squared

LOSSES = [Logistic(), Squared()]


def margins_and_labels(count=20001, spread=40.0):
    random = np.random.default_rng(1)
    return random.normal(size=count) * spread, np.where(random.random(count) < 0.5, -1.0, 1.0)


def test_logistic_values_are_accurate_to_a_few_units_in_the_last_place():
    z, y = margins_and_labels()
    expected = np.logaddexp(0.0, -y * z)
    np.testing.assert_allclose(Logistic().value(y, z), expected, rtol=2e-15)


def test_logistic_derivatives_are_accurate_to_a_few_units_in_the_last_place():
    z, y = margins_and_labels()
    np.testing.assert_allclose(Logistic().slope(y, z), -y * expit(-y * z), rtol=2e-15)
    np.testing.assert_allclose(Logistic().curvature(y, z), expit(z) * expit(-z), rtol=2e-15)


def test_extreme_margins_neither_overflow_nor_vanish():
    z = np.array([0.0, 1e-300, 750.0, -750.0, 1e300, -1e300])
    values = Logistic().value(np.ones(6), z)
    np.testing.assert_allclose(values, np.logaddexp(0.0, -z), rtol=2e-15, atol=1e-300)
    assert np.isfinite(Logistic().slope(np.ones(6), z)).all()


def test_a_caller_that_reorders_sums_does_not_change_the_exponential():
    """The exponential's rounding trick breaks under reassociation, and numba hands a caller's options down."""

    @jit
    def through_a_reordering_kernel(y, z, slope, curvature):
        pointwise.derivatives(pointwise.LOGISTIC, y, 0, y.size, z, slope, curvature)

    z, y = margins_and_labels(999)
    slope, curvature = np.empty_like(z), np.empty_like(z)
    through_a_reordering_kernel(y, z, slope, curvature)
    np.testing.assert_allclose(slope, -y * expit(-y * z), rtol=2e-15)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_derivatives_match_finite_differences(loss):
    random = np.random.default_rng(2)
    z, y = random.normal(size=200), np.where(random.random(200) < 0.5, -1.0, 1.0)
    step = 1e-5
    slope = (loss.value(y, z + step) - loss.value(y, z - step)) / (2 * step)
    curvature = (loss.slope(y, z + step) - loss.slope(y, z - step)) / (2 * step)
    np.testing.assert_allclose(loss.slope(y, z), slope, atol=1e-9)
    np.testing.assert_allclose(loss.curvature(y, z), curvature, atol=1e-9)
