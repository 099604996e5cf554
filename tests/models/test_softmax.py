"""The softmax loss against numpy, scikit-learn's multinomial regression and statsmodels' MNLogit."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression
from tests.conftest import dense_features, make_shards

import fedns
from fedns.models.reference import pooled_optimum
from fedns.numerics.linalg import symmetric_of

LOSSES = [fedns.Softmax(3), fedns.Softmax(4, reference=True)]
LAYOUTS = [{}, {"sparse": True, "weighted": True}]


def drawn(classes, **layout):
    """Shards whose targets are classes that depend on the rows."""
    shards = make_shards(**layout)
    random = np.random.default_rng(3)
    x = dense_features(shards)
    z = x @ random.normal(size=(x.shape[1], classes)) / np.sqrt(x.shape[1]) + random.gumbel(size=(len(x), classes))
    return replace(shards, targets=z.argmax(axis=1).astype(float))


def expected(loss, shards, w):
    """(value, gradient, Hessian) of each client, by numpy."""
    x = np.column_stack([dense_features(shards), np.ones(shards.num_samples)])
    weights = np.ones(len(x)) if shards.sample_weights is None else shards.sample_weights
    coefficients = w.reshape(loss.outputs, -1)
    for a, b in zip(shards.starts, shards.stops, strict=True):
        z = x[a:b] @ coefficients.T
        full = np.column_stack([np.zeros(b - a), z]) if loss.reference else z
        p = np.exp(full) / np.exp(full).sum(axis=1, keepdims=True)
        y, share = shards.targets[a:b].astype(int), weights[a:b] / weights[a:b].sum()
        value = -share @ np.log(p[np.arange(b - a), y])
        slope = (p - np.eye(loss.classes)[y])[:, int(loss.reference) :]
        own = p[:, int(loss.reference) :]
        curvature = own[:, :, None] * np.eye(loss.outputs) - own[:, :, None] * own[:, None, :]
        hessian = np.einsum("n,nab,ni,nj->aibj", share, curvature, x[a:b], x[a:b]).reshape(w.size, w.size)
        yield value, np.einsum("n,na,ni->ai", share, slope, x[a:b]).ravel(), hessian


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_pass_is_numpys(loss, layout):
    shards = drawn(loss.classes, **layout)
    problem = fedns.Problem(loss, fedns.Ridge(0.1), intercept=True)
    w = np.random.default_rng(2).normal(size=problem.num_features(shards.num_columns)) / 3
    values, gradients, hessians = (np.array(part) for part in zip(*expected(loss, shards, w), strict=True))
    found_values, found_gradients = problem.value_and_gradient(w, shards)
    np.testing.assert_allclose(found_values, values, rtol=1e-10)
    np.testing.assert_allclose(found_gradients, gradients, rtol=1e-9, atol=1e-10)
    found = problem.gradient_and_hessian(w, shards)[1]
    np.testing.assert_allclose(symmetric_of(found, w.size), hessians, rtol=1e-9, atol=1e-10)
    vectors = np.random.default_rng(4).normal(size=(1, 2, w.size))
    times = problem.hessian_times(w, vectors, shards)
    np.testing.assert_allclose(times, np.einsum("cij,vj->cvi", hessians, vectors[0]), rtol=1e-8, atol=1e-9)
    along = problem.losses_along(w, w, np.array([0.0, 0.5]), shards)
    later = [value for value, _, _ in expected(loss, shards, 1.5 * w)]
    np.testing.assert_allclose(along, np.column_stack([values, later]), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_guard_sees_the_trace_of_every_rows_curvature(loss):
    """What rule R4 of a site goes by: with d the trace of a row's curvature, d |x|^2 is its part of the Hessian's trace."""
    shards = drawn(loss.classes)
    problem = fedns.Problem(loss, intercept=True)
    w = np.random.default_rng(2).normal(size=problem.num_features(shards.num_columns)) / 3
    x = np.column_stack([dense_features(shards), np.ones(shards.num_samples)])
    norms = (x[:, :-1] ** 2).sum(axis=1)
    sums = problem.passes.value_gradient_and_curvatures(loss, shards, w, norms)[2]
    for client, (a, b) in enumerate(zip(shards.starts, shards.stops, strict=True)):
        z = x[a:b] @ w.reshape(loss.outputs, -1).T
        traces = np.trace(loss.curvature(shards.targets[a:b], z), axis1=1, axis2=2) / (b - a)
        parts = traces * (norms[a:b] + 1)
        wanted = [traces.sum(), (traces**2).sum(), parts.sum(), parts.max()]
        np.testing.assert_allclose(sums[client], wanted, rtol=1e-9)
        assert sums[client, 2] == pytest.approx(np.trace(problem.hessian(w, shards)[client]), rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_root_has_a_row_for_each_class_and_squares_to_the_hessian(loss):
    shards = drawn(loss.classes)
    problem = fedns.Problem(loss, intercept=True)
    w = np.random.default_rng(2).normal(size=problem.num_features(shards.num_columns)) / 3
    sizes = problem.root_sizes(shards)
    for sketch in (fedns.RowSampling(int(sizes.max())), fedns.SRHT(1 << 14)):  # both are exact where they have all rows
        keys = np.arange(2 * shards.num_clients, dtype=np.uint64).reshape(-1, 2)
        _, rows, offsets = problem.gradient_and_sketch(w, shards, sketch.plan(sizes), keys)
        for client, hessian in enumerate(problem.hessian(w, shards)):
            root = rows[offsets[client] : offsets[client + 1]]
            np.testing.assert_allclose(root.T @ root, hessian, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_a_root_in_pieces_gives_the_same_sketch(monkeypatch):
    shards = drawn(3)
    problem = fedns.Problem(fedns.Softmax(3))
    w = np.random.default_rng(2).normal(size=problem.num_features(shards.num_columns)) / 3
    keys = np.arange(2 * shards.num_clients, dtype=np.uint64).reshape(-1, 2)
    for sketch in (fedns.SRHT(8), fedns.SJLT(8), fedns.Gaussian(8), fedns.RowSampling(8)):
        plan = sketch.plan(problem.root_sizes(shards))
        whole = problem.gradient_and_sketch(w, shards, plan, keys)[1]
        with monkeypatch.context() as patch:
            patch.setattr("fedns.numerics.parallel.SEGMENT_ROWS", 48)
            np.testing.assert_allclose(problem.gradient_and_sketch(w, shards, plan, keys)[1], whole, rtol=1e-12, atol=1e-14)


def test_penalised_fits_are_those_of_scikit_learn():
    shards, strength = drawn(3), 0.05
    problem = fedns.Problem(fedns.Softmax(3), fedns.Ridge(strength), intercept=True)
    found = fedns.simulate(fedns.FedNewton(line_search=fedns.ArmijoSearch()), problem, shards, rounds=30, gradient_tol=1e-12)
    rival = LogisticRegression(C=1 / (strength * shards.num_samples), tol=1e-12, max_iter=10_000)
    # Clients have unequal sizes, and the objective weighs them by their rows: it is the pooled mean.
    rival.fit(dense_features(shards), shards.targets)
    ours = found.coefficients.reshape(3, -1)
    np.testing.assert_allclose(ours[:, :-1], rival.coef_, atol=1e-7)
    intercepts = ours[:, -1] - ours[:, -1].mean()  # a constant added to all of them changes nothing
    np.testing.assert_allclose(intercepts, rival.intercept_ - rival.intercept_.mean(), atol=1e-7)


def test_fits_without_penalty_are_those_of_statsmodels():
    shards = drawn(4)
    problem = fedns.Problem(fedns.Softmax(4, reference=True), fedns.Ridge(0.0), intercept=True)
    optimum = pooled_optimum(problem, shards)
    x = np.column_stack([dense_features(shards), np.ones(shards.num_samples)])
    rival = sm.MNLogit(shards.targets, x).fit(method="newton", disp=0, tol=1e-14, maxiter=200)
    wanted = rival.params.T.ravel()
    assert (np.abs(optimum.coefficients - wanted) <= 1e-8 * (1 + np.abs(wanted))).all()
    assert -optimum.value * shards.num_samples == pytest.approx(rival.llf, rel=1e-10)


def test_other_targets_and_offsets_are_refused_with_a_sentence():
    shards = make_shards()
    with pytest.raises(fedns.DataError, match="number the classes from 0"):
        fedns.Softmax(3).check_targets(shards)
    with pytest.raises(fedns.ConfigError, match="one margin"):
        fedns.Problem(fedns.Softmax(3), offset=True)
