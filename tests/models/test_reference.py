from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge
from tests.conftest import dense_features, make_shards

import fedns
from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.models.loss import LabelLoss, NumberLoss
from fedns.models.losses import LOSSES, Squared
from fedns.numerics.formulas import exp, where_positive


def logistic_coefficients(features, targets, strength, intercept):
    """scikit-learn's answer to the same objective."""
    model = LogisticRegression(
        C=1.0 / (len(targets) * strength), solver="newton-cholesky", tol=1e-14, max_iter=1000, fit_intercept=intercept
    ).fit(features, targets)
    return np.r_[model.coef_[0], model.intercept_] if intercept else model.coef_[0]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_logistic_optimum_is_scikit_learns(sparse, intercept):
    shards = make_shards(sparse=sparse)
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=intercept)
    optimum = fedns.pooled_optimum(problem, shards)
    expected = logistic_coefficients(dense_features(shards), shards.targets, 1e-2, intercept)
    np.testing.assert_allclose(optimum.coefficients, expected, rtol=1e-8)
    assert optimum.relative_gradient <= 1e-12


@pytest.mark.parametrize("intercept", [False, True])
def test_ridge_optimum_is_the_closed_form(intercept):
    shards = make_shards(regression=True, weighted=True)
    problem = fedns.Problem(fedns.Squared(), fedns.Ridge(0.05), intercept=intercept)
    optimum = fedns.pooled_optimum(problem, shards)
    total = shards.sample_weights.sum()
    model = SklearnRidge(alpha=0.05 * total, fit_intercept=intercept, solver="cholesky")
    model.fit(dense_features(shards), shards.targets, sample_weight=shards.sample_weights)
    expected = np.r_[model.coef_, model.intercept_] if intercept else model.coef_
    np.testing.assert_allclose(optimum.coefficients, expected, rtol=1e-9)


@pytest.mark.parametrize("strength", [0.0, 1e-3])
def test_collinear_columns(strength):
    shards = make_shards(columns=5)
    x = dense_features(shards)
    doubled = Shards.from_arrays(np.column_stack([x, x[:, 1] - x[:, 2], np.zeros(300)]), shards.targets, shards.sizes)
    problem = fedns.Problem(penalty=fedns.Ridge(strength))
    optimum = fedns.pooled_optimum(problem, doubled)
    assert optimum.relative_gradient <= 1e-12
    assert optimum.coefficients[6] == 0.0
    if strength == 0.0:  # the same fit as without the redundant columns
        alone = fedns.pooled_optimum(problem, shards)
        assert optimum.value == pytest.approx(alone.value, abs=1e-14)


def test_badly_scaled_columns():
    shards = make_shards(columns=6)
    units = 10.0 ** np.array([-4, 4, 0, 6, -6, 2])
    scaled = Shards.from_arrays(dense_features(shards) * units, shards.targets, shards.sizes)
    problem = fedns.Problem(penalty=fedns.Ridge(0.0), intercept=True)
    expected = fedns.pooled_optimum(problem, shards).coefficients
    found = fedns.pooled_optimum(problem, scaled)
    np.testing.assert_allclose(found.coefficients[:-1] * units, expected[:-1], rtol=1e-8)
    assert found.relative_gradient <= 1e-12


def test_targets_of_any_size():
    """Prices of houses: residuals are rounded to 1e-11 of a price, which is not 1e-12 of 1."""
    random = np.random.default_rng(0)
    x = random.normal(size=(2000, 4)) * [2, 2, 1000, 500] + [-119, 35, 2600, 1400]
    y = 2e5 + x @ [-4e4, -4e4, 20.0, 30.0] + 7e4 * random.normal(size=2000)
    problem = fedns.Problem(fedns.Squared(), fedns.Ridge(0.0), intercept=True)
    found = fedns.pooled_optimum(problem, Shards.from_arrays(x, y, [1500, 500])).coefficients
    expected, *_ = np.linalg.lstsq(np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(2000)]), y)
    np.testing.assert_allclose(found[:-1] * x.std(axis=0), expected[:-1], rtol=1e-9)


@pytest.mark.slow
def test_separable_classes_without_a_penalty_are_refused_in_words():
    x = np.linspace(-1, 1, 40)[:, None]
    shards = Shards.from_arrays(x, np.sign(x[:, 0]), [40])
    with pytest.raises(DataError, match="separable"):
        fedns.pooled_optimum(fedns.Problem(penalty=fedns.Ridge(0.0)), shards)


def test_labels_that_are_not_two_valued_are_refused():
    shards = Shards.from_arrays(np.ones((3, 1)), [0.0, 1.0, 2.0], [3])
    with pytest.raises(DataError, match="labels -1 and \\+1, found 0, 1, 2"):
        fedns.pooled_optimum(fedns.Problem(), shards)


@dataclass(frozen=True)
class Welsch(NumberLoss):
    """1 - exp(-r^2 / 2): flat, and so concave, far from its targets."""

    name: ClassVar[str] = "welsch"
    nonnegative: ClassVar[bool] = True

    def value(self, y, z):
        return 1.0 - exp(-0.5 * (z - y) * (z - y))

    def derivatives(self, y, z):
        r = z - y
        e = exp(-0.5 * r * r)
        return r * e, (1.0 - r * r) * e


@dataclass(frozen=True)
class Dipped(Squared):
    """Convex in units of its targets, and concave between margins at which nobody looks before a run."""

    name: ClassVar[str] = "dipped"

    def value(self, y, z):
        return 0.5 * (z - y) * (z - y) + where_positive(z - 30.0, -2.0 * (z - 30.0) * (z - 30.0), 0.0)

    def derivatives(self, y, z):
        return z - y + where_positive(z - 30.0, -4.0 * (z - 30.0), 0.0), where_positive(z - 30.0, -3.0, 1.0)


def test_a_loss_that_is_not_convex_has_no_optimum_at_0():
    """Its gaps were measured from 0, where every run has a gap of 0 and so converges."""
    shards = Shards.from_arrays(np.ones((40, 1)), np.linspace(2.0, 4.0, 40), [20, 20])
    problem = fedns.Problem(Welsch(), fedns.Ridge(1e-3))
    for call in (
        lambda: fedns.pooled_optimum(problem, shards),
        lambda: fedns.simulate(fedns.FedNewton(), problem, shards, rounds=3),
    ):
        with pytest.raises(DataError, match="the welsch loss is not convex: its second derivative is -"):
            call()


def test_a_loss_that_is_not_convex_where_newton_steps_lead_is_noticed_there():
    shards = Shards.from_arrays(np.ones((40, 1)), np.linspace(40.0, 50.0, 40), [20, 20])
    with pytest.raises(DataError, match="the dipped loss is not convex on these rows: after 1 Newton steps"):
        fedns.pooled_optimum(fedns.Problem(Dipped(), fedns.Ridge(1e-3)), shards)


@pytest.mark.parametrize("loss", [kind() for kind in LOSSES.values()], ids=lambda loss: loss.name)
def test_our_losses_are_convex_wherever_they_are_looked_at(loss):
    targets = np.array([-1.0, 1.0]) if isinstance(loss, LabelLoss) else np.array([1e-8, 0.5, 1.0, 7.0, 1e9])
    loss.check(Shards.from_arrays(np.ones((targets.size, 1)), targets, [targets.size]))
