import numpy as np
import pytest
from scipy.special import expit

from fedns.models.losses import LOSSES, Logistic
from fedns.numerics.cpu import pointwise
from fedns.numerics.jit import jit


def margins_and_labels(count=20001, spread=40.0):
    random = np.random.default_rng(1)
    return random.normal(size=count) * spread, np.where(random.random(count) < 0.5, -1.0, 1.0)


def values(loss, y, z):
    """As passes over rows compute them."""
    out = np.empty_like(z)
    pointwise.values(pointwise.loss_code(loss), y, 0, z.size, z, out)
    return out


def derivatives(loss, y, z):
    slope, curvature = np.empty_like(z), np.empty_like(z)
    pointwise.derivatives(pointwise.loss_code(loss), y, 0, z.size, z, slope, curvature)
    return slope, curvature


def test_logistic_values_are_accurate_to_a_few_units_in_the_last_place():
    z, y = margins_and_labels()
    expected = np.logaddexp(0.0, -y * z)
    np.testing.assert_allclose(values(Logistic(), y, z), expected, rtol=2e-15)


def test_logistic_derivatives_are_accurate_to_a_few_units_in_the_last_place():
    z, y = margins_and_labels()
    slope, curvature = derivatives(Logistic(), y, z)
    np.testing.assert_allclose(slope, -y * expit(-y * z), rtol=2e-15)
    np.testing.assert_allclose(curvature, expit(z) * expit(-z), rtol=2e-15)


def test_extreme_margins_neither_overflow_nor_vanish():
    z = np.array([0.0, 1e-300, 750.0, -750.0, 1e300, -1e300])
    np.testing.assert_allclose(values(Logistic(), np.ones(6), z), np.logaddexp(0.0, -z), rtol=2e-15, atol=1e-300)
    assert np.isfinite(derivatives(Logistic(), np.ones(6), z)).all()


def test_a_caller_that_reorders_sums_does_not_change_the_exponential():
    """The exponential's rounding trick breaks under reassociation, and numba hands a caller's options down."""

    @jit
    def through_a_reordering_kernel(loss, y, z, slope, curvature):
        pointwise.derivatives(loss, y, 0, y.size, z, slope, curvature)

    z, y = margins_and_labels(999)
    slope, curvature = np.empty_like(z), np.empty_like(z)
    through_a_reordering_kernel(pointwise.loss_code(Logistic()), y, z, slope, curvature)
    np.testing.assert_allclose(slope, -y * expit(-y * z), rtol=2e-15)


ROW_BY_ROW = [
    kind() for kind in LOSSES.values() if kind.has_root
]  # Cox's likelihood is no sum over rows: tests/models/test_cox.py


@pytest.mark.parametrize("loss", ROW_BY_ROW, ids=lambda loss: loss.name)
def test_derivatives_match_finite_differences(loss):
    random = np.random.default_rng(2)
    z, y = random.normal(size=200), np.where(random.random(200) < 0.5, -1.0, 1.0)
    step = 1e-5
    slope, curvature = derivatives(loss, y, z)
    np.testing.assert_allclose(slope, (values(loss, y, z + step) - values(loss, y, z - step)) / (2 * step), atol=1e-9)
    above, below = derivatives(loss, y, z + step)[0], derivatives(loss, y, z - step)[0]
    np.testing.assert_allclose(curvature, (above - below) / (2 * step), atol=1e-9)


@pytest.mark.parametrize("loss", ROW_BY_ROW, ids=lambda loss: loss.name)
def test_formulas_mean_the_same_in_python_and_compiled(loss):
    z, y = margins_and_labels(999, 5.0)
    digits = 1e-13 if loss.name == "probit" else 1e-14  # exp(-z^2 / 2) makes z^2 / 2 roundings of one, up to 160 here
    np.testing.assert_allclose(values(loss, y, z), loss.value(y, z), rtol=digits)
    np.testing.assert_allclose(derivatives(loss, y, z), (loss.slope(y, z), loss.curvature(y, z)), rtol=digits)
