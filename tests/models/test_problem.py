"""The fused kernels against five lines of numpy, and against finite differences."""

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards

from fedns.core.shards import Shards
from fedns.models.losses import Logistic, Squared
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.linalg import triangle_of

LAYOUTS = {
    "dense": {},
    "sparse": {"sparse": True},
    "float32": {"dtype": np.float32},
    "sparse float32": {"sparse": True, "dtype": np.float32},
    "weighted": {"weighted": True},
    "weighted sparse": {"weighted": True, "sparse": True},
}


def oracle(problem: Problem, w, shards: Shards):
    """value, gradient, Hessian of each client's mean loss."""
    x = dense_features(shards)
    if problem.intercept:
        x = np.column_stack([x, np.ones(len(x))])
    s = shards.sample_weights if shards.sample_weights is not None else np.ones(len(x))
    z = x @ w
    if isinstance(problem.loss, Logistic):
        sigma = 1 / (1 + np.exp(-z))
        value, slope, curvature = (
            np.logaddexp(0, -shards.targets * z),
            sigma - (shards.targets + 1) / 2,
            sigma * (1 - sigma),
        )
    else:
        value, slope, curvature = 0.5 * (z - shards.targets) ** 2, z - shards.targets, np.ones_like(z)
    results = []
    for a, b in zip(shards.starts, shards.stops, strict=True):
        p = s[a:b] / s[a:b].sum()
        results.append((p @ value[a:b], (p * slope[a:b]) @ x[a:b], (x[a:b].T * (p * curvature[a:b])) @ x[a:b]))
    return [np.array(part) for part in zip(*results, strict=True)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", [1, 7, 8, 13, 33, 70])
def test_value_gradient_and_hessian_equal_numpy(layout, loss, intercept, columns):
    shards = make_shards(columns=columns, **LAYOUTS[layout])
    problem = Problem(loss, Ridge(0.1), intercept=intercept)
    w = np.random.default_rng(3).normal(size=columns + intercept)
    value, gradient, hessian = oracle(problem, w, shards)
    np.testing.assert_allclose(problem.value(w, shards), value, rtol=1e-12)
    np.testing.assert_allclose(problem.gradient(w, shards), gradient, rtol=1e-11, atol=1e-13)
    both = problem.gradient_and_hessian(w, shards)
    np.testing.assert_allclose(both[0], gradient, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(both[1], triangle_of(hessian), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(problem.hessian(w, shards), hessian, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("intercept", [False, True])
def test_gradient_and_hessian_match_finite_differences(sparse, loss, intercept):
    shards = make_shards(columns=6, sparse=sparse)
    problem = Problem(loss, Ridge(0.0), intercept=intercept)
    w = np.random.default_rng(4).normal(size=6 + intercept) * 0.5
    step = 1e-5
    moves = step * np.eye(w.size)
    gradient = np.stack([(problem.value(w + m, shards) - problem.value(w - m, shards)) / (2 * step) for m in moves], axis=1)
    hessian = np.stack(
        [(problem.gradient(w + m, shards) - problem.gradient(w - m, shards)) / (2 * step) for m in moves], axis=1
    )
    np.testing.assert_allclose(problem.gradient(w, shards), gradient, atol=2e-9)
    np.testing.assert_allclose(problem.hessian(w, shards), hessian, atol=2e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_along_a_direction_equal_separate_evaluations(layout):
    shards = make_shards(**LAYOUTS[layout])
    problem = Problem(intercept=True)
    random = np.random.default_rng(5)
    w, direction, steps = random.normal(size=14), random.normal(size=14), np.array([0.0, 1.0, 0.25, 1e-3])
    along = problem.losses_along(w, direction, steps, shards)
    separate = np.stack([problem.value(w + t * direction, shards) for t in steps], axis=1)
    np.testing.assert_allclose(along, separate, rtol=1e-13)


def test_each_client_may_have_its_own_coefficients():
    shards = make_shards()
    problem = Problem()
    own = np.random.default_rng(6).normal(size=(5, 13))
    gradient, hessian = problem.gradient_and_hessian(own, shards)
    values = problem.losses_along(own, own, np.array([0.0, 0.5]), shards)
    for j in range(5):
        alone = shards.select([j])
        np.testing.assert_array_equal(gradient[j], problem.gradient_and_hessian(own[j], alone)[0][0])
        np.testing.assert_array_equal(hessian[j], problem.gradient_and_hessian(own[j], alone)[1][0])
        np.testing.assert_array_equal(values[j], problem.losses_along(own[j], own[j], np.array([0.0, 0.5]), alone)[0])


def test_a_long_client_is_cut_into_segments_without_changing_the_answer(monkeypatch):
    shards = make_shards()
    problem = Problem()
    w = np.random.default_rng(7).normal(size=13)
    whole = problem.gradient(w, shards), problem.gradient_and_hessian(w, shards)[1], problem.value(w, shards)
    original = parallel.cut
    monkeypatch.setattr(parallel, "cut", lambda starts, stops, rows=16: original(starts, stops, 16))
    cut = problem.gradient(w, shards), problem.gradient_and_hessian(w, shards)[1], problem.value(w, shards)
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_clients_do_not_see_each_other():
    shards = make_shards()
    w = np.ones(13)
    together = Problem().gradient(w, shards)
    for j in range(shards.num_clients):
        np.testing.assert_array_equal(Problem().gradient(w, shards.select([j]))[0], together[j])


def test_duplicating_every_row_changes_nothing():
    shards = make_shards()
    order = np.concatenate([np.r_[a:b, a:b] for a, b in zip(shards.starts, shards.stops, strict=True)])
    doubled = Shards.from_arrays(dense_features(shards)[order], shards.targets[order], 2 * shards.sizes)
    w = np.full(13, 0.3)
    np.testing.assert_allclose(Problem().gradient(w, doubled), Problem().gradient(w, shards), rtol=1e-12)
    weighted = Shards.from_arrays(dense_features(shards), shards.targets, shards.sizes, sample_weights=np.full(300, 2.0))
    np.testing.assert_allclose(Problem().gradient(w, weighted), Problem().gradient(w, shards), rtol=1e-12)


def test_newton_step_solves_the_penalised_system_and_spares_the_intercept():
    shards = make_shards().pooled()
    problem = Problem(penalty=Ridge(0.5), intercept=True)
    w = np.random.default_rng(8).normal(size=14)
    _, gradient, hessian = oracle(problem, w, shards)
    diagonal = np.r_[np.full(13, 0.5), 0.0]
    full = gradient[0] + diagonal * w
    expected = -np.linalg.solve(hessian[0] + np.diag(diagonal), full)
    packed = problem.newton_step(w, gradient[0], hessian[0][np.triu_indices(14)])
    np.testing.assert_allclose(packed.step, expected, rtol=1e-9)
    newton = problem.newton_step(w, gradient[0], hessian[0])
    np.testing.assert_allclose(newton.step, expected, rtol=1e-9)
    assert newton.directional_derivative == pytest.approx(full @ expected)
    assert newton.newton_decrement == pytest.approx(np.sqrt(-full @ expected))
