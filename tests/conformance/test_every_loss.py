"""What every loss must keep, whoever wrote it. A new loss is covered by being registered."""

from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards

import fedns
from fedns.models.losses import LOSSES

LAYOUTS = [{}, {"sparse": True}, {"columns": 70}, {"dtype": np.float32, "weighted": True}]
MARGINS = np.linspace(-4.0, 4.0, 42)  # none of them where a loss changes its formula


@pytest.fixture(params=[name for name in LOSSES if LOSSES[name].has_root])  # Cox's is no sum over rows: it has its own tests
def loss(request):
    return LOSSES[request.param]()


def shards_for(loss, **layout):
    """Rows with targets that the loss takes: labels, counts, numbers above 0, or any numbers."""
    shards = make_shards(**layout)
    random = np.random.default_rng(1)
    counts, numbers = random.poisson(2.0, shards.num_samples).astype(float), random.normal(size=shards.num_samples)
    kinds = [shards.targets, counts, np.exp(numbers), numbers]
    for targets in kinds:
        suited = replace(shards, targets=targets)
        try:
            loss.check_targets(suited)
        except fedns.DataError as refusal:
            assert loss.name in str(refusal) and "\n" not in str(refusal)
        else:
            return suited
    raise AssertionError("it takes neither labels, nor counts, nor numbers")


def expected(loss, shards, w):
    """(value, gradient, Hessian) of each client's mean loss, by numpy from the formulas for many rows."""
    x = np.column_stack([dense_features(shards), np.ones(shards.num_samples)])
    weights = np.ones(len(x)) if shards.sample_weights is None else shards.sample_weights
    y, z = shards.targets, x @ w
    for a, b in zip(shards.starts, shards.stops, strict=True):
        share, rows = weights[a:b] / weights[a:b].sum(), x[a:b]
        slope, curvature = loss.slope(y[a:b], z[a:b]), loss.curvature(y[a:b], z[a:b])
        yield share @ loss.value(y[a:b], z[a:b]), rows.T @ (share * slope), rows.T @ ((share * curvature)[:, None] * rows)


def test_its_derivatives_are_those_of_its_value(loss):
    for y in np.unique(shards_for(loss).targets)[:20]:
        targets, h = np.full_like(MARGINS, y), 1e-5
        difference = (loss.value(targets, MARGINS + h) - loss.value(targets, MARGINS - h)) / (2 * h)
        np.testing.assert_allclose(loss.slope(targets, MARGINS), difference, rtol=1e-6, atol=1e-8)
        difference = (loss.slope(targets, MARGINS + h) - loss.slope(targets, MARGINS - h)) / (2 * h)
        np.testing.assert_allclose(loss.curvature(targets, MARGINS), difference, rtol=1e-6, atol=1e-8)


def test_it_is_convex_and_its_curvature_bound_holds(loss):
    for y in np.unique(shards_for(loss).targets)[:20]:
        curvature = loss.curvature(np.full_like(MARGINS, y), MARGINS)
        assert (curvature >= 0).all() and (curvature <= loss.curvature_bound * (1 + 1e-12)).all()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_passes_over_rows_compute_it_and_no_other(loss, layout):
    shards = shards_for(loss, **layout)
    problem = fedns.Problem(loss, fedns.Ridge(0.1), intercept=True)
    w = np.random.default_rng(2).normal(size=shards.num_columns + 1) / np.sqrt(shards.num_columns)
    values, gradients, hessians = (np.array(part) for part in zip(*expected(loss, shards, w), strict=True))
    found_values, found_gradients = problem.value_and_gradient(w, shards)
    np.testing.assert_allclose(found_values, values, rtol=1e-10)
    np.testing.assert_allclose(found_gradients, gradients, rtol=1e-9, atol=1e-10)
    upper = np.triu_indices(w.size)
    _, packed = problem.gradient_and_hessian(w, shards)
    np.testing.assert_allclose(packed, hessians[:, upper[0], upper[1]], rtol=1e-9, atol=1e-10)
    along = problem.losses_along(w, 0.1 * w, np.array([0.0, 1.0]), shards)
    later = [value for value, _, _ in expected(loss, shards, 1.1 * w)]
    np.testing.assert_allclose(along, np.column_stack([values, later]), rtol=1e-10)


@pytest.mark.parametrize("sketch", ["srht", "sjlt"])
def test_its_sketched_hessian_is_its_own(loss, sketch):
    """A sketch of more rows than there are is exact, or nearly: FedNS then takes Newton's steps."""
    shards = shards_for(loss)
    problem = fedns.Problem(loss, fedns.Ridge(0.1))
    method = fedns.FedNS(fedns.SKETCHES[sketch](4096), line_search=fedns.ArmijoSearch())
    history = fedns.simulate(method, problem, shards, rounds=30, gradient_tol=1e-9)
    exact = fedns.simulate(fedns.FedNewton(line_search=fedns.ArmijoSearch()), problem, shards, rounds=30, gradient_tol=1e-11)
    np.testing.assert_allclose(history.coefficients, exact.coefficients, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", [fedns.LBFGS(), fedns.FedAvg(learning_rate=0.01, batch_size=8), fedns.GIANT()], ids=str)
def test_methods_of_other_kinds_improve_it_too(loss, method):
    history = fedns.simulate(method, fedns.Problem(loss, fedns.Ridge(0.1)), shards_for(loss), rounds=5)
    assert history.objective[-1] < history.objective[0]
