"""What clients compute of their curvature, with more and with fewer rows than features."""

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.methods.curvature import gradients_and_roots, newton_steps
from fedns.numerics import linalg

CASES = [{}, {"sparse": True}, {"weighted": True}, {"sparse": True, "weighted": True}]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("intercept", [False, True])
def test_roots_are_those_of_the_hessians(case, intercept):
    problem, shards = fedns.Problem(intercept=intercept), make_shards(**case)
    w = np.linspace(-1, 1, 13 + intercept)
    gradient, roots = gradients_and_roots(problem, w, shards)
    np.testing.assert_allclose(gradient, problem.gradient(w, shards), rtol=1e-12, atol=1e-14)
    assert roots.counts.tolist() == shards.sizes.tolist()
    for client, hessian in enumerate(problem.hessian(w, shards)):
        root = roots.part(client)
        np.testing.assert_allclose(root.T @ root, hessian, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("each", [False, True])
def test_newton_steps_of_wide_clients_form_no_hessian(case, intercept, each, monkeypatch):
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=intercept)
    shards = make_shards(60, 40, (5, 30, 1, 24), **case)
    features = 40 + intercept
    w = np.random.default_rng(0).normal(size=(4, features) if each else features)
    diagonal = problem.penalty_curvature(np.zeros(features))
    right = problem.gradient(w, shards) + diagonal * w
    expected = [-np.linalg.solve(H + np.diag(diagonal), g) for H, g in zip(problem.hessian(w, shards), right, strict=True)]
    monkeypatch.setattr(fedns.Problem, "gradient_and_hessian", lambda *given: pytest.fail("a Hessian was formed"))
    monkeypatch.setattr(linalg.LowRank, "dense", lambda self: pytest.fail("a Hessian was formed"))
    steps, slopes = newton_steps(problem, w, shards)
    np.testing.assert_allclose(steps, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(slopes, np.sum(right * steps, axis=1), rtol=1e-12)


def test_a_common_gradient_and_clients_of_both_kinds():
    problem, shards = fedns.Problem(penalty=fedns.Ridge(1e-2)), make_shards()
    w, gradient = np.linspace(-1, 1, 13), np.linspace(1, 2, 13)
    steps, slopes = newton_steps(problem, w, shards, gradient)
    for step, hessian in zip(steps, problem.hessian(w, shards), strict=True):
        np.testing.assert_allclose(step, -np.linalg.solve(hessian + 1e-2 * np.eye(13), gradient), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(slopes, steps @ gradient, rtol=1e-12)
