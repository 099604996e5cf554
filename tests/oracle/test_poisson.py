"""Counts: every method and sketch against iteratively reweighted least squares in plain numpy."""

import numpy as np
import pytest
import scipy.sparse
from tests.conftest import dense_features

import fedns
from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.methods import METHODS
from fedns.models.reference import pooled_optimum
from fedns.numerics.rng import stream_keys
from fedns.sketches import SJLT, SKETCHES

STRENGTH = 1e-2
PROBLEM = fedns.Problem(fedns.Poisson(), fedns.Ridge(STRENGTH))
# Where local models or local directions are averaged, the end is not the optimum; FedNew comes near slowly.
BIASED = {"fedavg", "fedprox", "localnewton", "distributednewton", "fednew", "qfednew"}
SETTINGS = {"fednl": {"line_search": fedns.ArmijoSearch()}, "newtonsketch": {"sketch": SJLT(200)}}


def counts(columns=6, sizes=(100, 60, 240, 8), sparse=False, seed=0, level=0.5):
    random = np.random.default_rng(seed)
    x = random.normal(size=(sum(sizes), columns)) * (random.random((sum(sizes), columns)) < (0.2 if sparse else 1.0))
    y = random.poisson(np.exp(level + 0.4 * x @ random.normal(size=columns) / np.sqrt(columns))).astype(float)
    return Shards.from_arrays(scipy.sparse.csr_matrix(x) if sparse else x, y, sizes)


def irls(shards, strength=STRENGTH):
    """Weighted least squares on the working response z + (y - mu) / mu, over and over."""
    x, y = dense_features(shards), shards.targets
    w = np.zeros(x.shape[1])
    for _ in range(50):
        mu = np.exp(x @ w)
        gram = x.T @ (mu[:, None] * x) / len(y) + strength * np.eye(w.size)
        w = np.linalg.solve(gram, x.T @ (mu * (x @ w) + y - mu) / len(y))
    return w


@pytest.mark.parametrize("sparse", [False, True])
def test_the_pooled_optimum(sparse):
    shards = counts(sparse=sparse)
    np.testing.assert_allclose(pooled_optimum(PROBLEM, shards).coefficients, irls(shards), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in BIASED])
def test_every_method_that_ends_at_the_optimum(name):
    # Newton-Zero keeps the Hessian at 0, which has to be at least half of that at the optimum: smaller counts.
    shards = counts(level=-1.0 if name == "newtonzero" else 0.5)
    method = METHODS[name](**SETTINGS.get(name, {}))
    history = fedns.simulate(method, PROBLEM, shards, rounds=1000, gradient_tol=1e-12)
    np.testing.assert_allclose(history.coefficients, irls(shards), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", sorted(BIASED))
def test_methods_that_average_come_near(name):
    shards = counts(sizes=(200, 200))
    history = fedns.simulate(METHODS[name](), PROBLEM, shards, rounds=100)
    np.testing.assert_allclose(history.coefficients, irls(shards), rtol=0, atol=0.05)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", SKETCHES)
def test_fedns_with_every_sketch(kind, sparse):
    """Rows of six columns are narrow: SJLT takes them eight at a time."""
    shards = counts(sparse=sparse)
    history = fedns.simulate(fedns.FedNS(SKETCHES[kind](120)), PROBLEM, shards, rounds=200, gradient_tol=1e-13)
    np.testing.assert_allclose(history.coefficients, irls(shards), rtol=0, atol=1e-10)


@pytest.mark.parametrize("columns", [1, 6, 17, 40, 64])
def test_sjlt_on_narrow_rows(columns):
    shards = counts(columns)
    w = np.random.default_rng(1).normal(size=columns) * 0.2
    sketch, keys = SJLT(9), stream_keys(0, "sketch", 1, np.arange(4))
    gradient, table, offsets = PROBLEM.gradient_and_sketch(w, shards, sketch.plan(shards.sizes), keys)
    x = dense_features(shards)
    for j, (a, b) in enumerate(zip(shards.starts, shards.stops, strict=True)):
        mean = np.exp(x[a:b] @ w)
        np.testing.assert_allclose(gradient[j], x[a:b].T @ (mean - shards.targets[a:b]) / (b - a), rtol=1e-12, atol=1e-13)
        root = np.sqrt(mean / (b - a))[:, None] * x[a:b]
        np.testing.assert_allclose(table[offsets[j] : offsets[j + 1]], sketch.matrix(b - a, keys[j]) @ root, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_mini_batch_steps_of_one_client_end_at_the_optimum(sparse):
    """With a single client nothing is averaged, and batches of all rows are gradient steps."""
    shards = counts(3, (64,), sparse)
    method = fedns.FedAvg(batch_size=64, local_steps=200, learning_rate=0.2)
    history = fedns.simulate(method, PROBLEM, shards, rounds=40, gradient_tol=1e-13)
    np.testing.assert_allclose(history.coefficients, irls(shards), rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", [fedns.FedNewton(), fedns.FedNS(SJLT(20)), fedns.FedAvg(learning_rate=1e3)], ids=str)
def test_an_overflow_is_noticed_and_leaves_numbers(method):
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 3)) * 40.0
    shards = Shards.from_arrays(x, random.poisson(1e6, size=200).astype(float), [100, 100])
    history = fedns.simulate(method, fedns.Problem(fedns.Poisson(), fedns.Ridge(0.0)), shards, rounds=20)
    assert np.isfinite(history.coefficients).all()
    assert "finite" in history.stop_reason or np.isfinite(history.objective).all()


def test_a_line_search_steps_back_from_an_overflow():
    """The Newton step from 0 leads to margins of about the counts themselves, exp of which is infinite."""
    x = np.linspace(0.5, 1.0, 80)[:, None]
    shards = Shards.from_arrays(x, np.full(80, 3000.0), [40, 40])
    history = fedns.simulate(
        METHODS["fednewton"](line_search=fedns.ArmijoSearch(trials=30)), PROBLEM, shards, rounds=80, gradient_tol=1e-9
    )
    assert np.isfinite(history.coefficients).all()
    w, problem = history.coefficients, PROBLEM
    gradient = problem.gradient(w, shards.pooled())[0] + STRENGTH * w
    assert abs(gradient[0]) < 1e-6


def test_negative_targets_are_refused():
    with pytest.raises(DataError, match="targets >= 0, found -1"):
        fedns.simulate(fedns.FedNewton(), PROBLEM, Shards.from_arrays(np.ones((3, 1)), [1.0, -1.0, 2.0], [3]), rounds=1)
