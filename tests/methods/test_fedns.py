"""FedNS against Algorithm 1 written out in numpy, with the sketch as a matrix."""

import math

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.methods.local_oracles import VARIANTS, after
from tests.methods.plain import Plain

import fedns
from fedns.core.clients import ClientMemory, Clients
from fedns.methods import FedNS, NewtonSketch
from fedns.methods.curvature import leverage_sample
from fedns.numerics.rng import stream_keys

SEED = 5
PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))
SKETCHES = [fedns.SRHT(6), fedns.SJLT(6), fedns.SJLT(8, nonzeros=2), fedns.Gaussian(6), fedns.Rademacher(6)]


def sketched_roots(plain, w, sketch, round_number):
    """S_j A_j of every client."""
    keys = stream_keys(SEED, "sketch", round_number, np.arange(len(plain.parts)))
    return [sketch.matrix(len(root), key) @ root for root, key in zip(plain.roots(w), keys, strict=True)]


def gram(plain, w, sketch, round_number):
    return plain.mean([y.T @ y for y in sketched_roots(plain, w, sketch, round_number)])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("sketch", [*SKETCHES, fedns.RowSampling(6)], ids=str)
def test_three_rounds(variant, sketch):
    sparse, intercept, weighted = variant
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=intercept)
    shards = make_shards(sparse=sparse, weighted=weighted)
    plain = Plain(problem, shards)
    w = np.zeros(plain.M)
    for number in (1, 2, 3):
        w = w + 0.3 * plain.newton(w, gram(plain, w, sketch, number))[0]
    found = after(FedNS(sketch, step_size=0.3), problem, shards, 3, seed=SEED)
    np.testing.assert_allclose(found, w, rtol=0, atol=1e-9)


@pytest.mark.parametrize("search", [fedns.ArmijoSearch(), fedns.LocalSearch()], ids=str)
def test_a_line_search_finds_the_step(search):
    shards = make_shards()
    plain, steps, w = Plain(PROBLEM, shards), [], np.zeros(13)
    for number in (1, 2, 3):
        d, slope = plain.newton(w, gram(plain, w, fedns.SRHT(4), number))
        steps.append(plain.step_of(search, w, d, slope))
        w = w + steps[-1] * d
    history = fedns.simulate(FedNS(fedns.SRHT(4), line_search=search), PROBLEM, shards, rounds=3, seed=SEED)
    assert [record.diagnostics["step_size"] for record in history.records[1:]] == steps
    np.testing.assert_allclose(history.coefficients, w, rtol=0, atol=1e-9)


@pytest.mark.parametrize("sketch", SKETCHES, ids=str)
def test_the_sum_of_sketches_is_one_sketch(sketch):
    shards = make_shards(weighted=True)
    plain, w = Plain(PROBLEM, shards), np.zeros(13)
    for number in (1, 2):
        total = np.zeros((sketch.size, 13))
        for p, y in zip(plain.p, sketched_roots(plain, w, sketch, number), strict=True):
            total[: len(y)] += np.sqrt(p) * y
        w = w + 0.1 * plain.newton(w, total.T @ total)[0]
    found = after(FedNS(sketch, step_size=0.1, aggregation="sum"), PROBLEM, shards, 2, seed=SEED)
    np.testing.assert_allclose(found, w, rtol=0, atol=1e-9)


def test_the_sketch_grows_with_the_logarithm_of_the_round():
    shards = make_shards()
    plain, w, method = Plain(PROBLEM, shards), np.zeros(13), FedNS(fedns.SRHT(5), step_size=0.3, growth="log2")
    for number in (1, 2, 3, 4):
        grown = fedns.SRHT(math.ceil(5 * math.log2(1 + number) ** 2))
        w = w + 0.3 * plain.newton(w, gram(plain, w, grown, number))[0]
    np.testing.assert_allclose(after(method, PROBLEM, shards, 4, seed=SEED), w, rtol=0, atol=1e-9)


def test_a_sketch_as_large_as_the_data_is_newtons_method():
    """A Hadamard transform that is not subsampled is orthogonal, and so changes no Gram matrix."""
    shards = make_shards()
    exact = after(fedns.FedNewton(), PROBLEM, shards, 4)
    np.testing.assert_allclose(after(FedNS(fedns.SRHT(256)), PROBLEM, shards, 4), exact, rtol=1e-9)


@pytest.mark.parametrize("sketch", SKETCHES[:2], ids=str)
def test_a_sketch_of_the_pooled_rows(sketch):
    shards = make_shards()
    plain, w = Plain(PROBLEM, shards.pooled()), np.zeros(13)
    for number in (1, 2):
        d, slope = plain.newton(w, gram(plain, w, sketch, number))
        w = w + plain.search(w, d, slope) * d
    found = after(NewtonSketch(sketch), PROBLEM, shards, 2, seed=SEED)
    np.testing.assert_allclose(found, w, rtol=0, atol=1e-9)


def test_a_client_sends_its_gradient_and_sketched_rows():
    history = fedns.simulate(FedNS(fedns.SRHT(16)), PROBLEM, make_shards(), rounds=1)
    (reply,) = [entry for entry in history.ledger if entry.round == 1 and entry.direction == "uplink"]
    rows = 1 + 16 + 8 + 16 + 16  # clients of 1 and 7 rows have only 1 and, padded, 8 to send
    numbers = 13 * (5 + rows)
    assert reply.messages == 5 and 8 * numbers < reply.bytes < 8 * numbers + 5 * 96


def test_leverage_samples_have_the_right_mean_and_follow_the_scores():
    """Against scores from a QR factor, over many draws; six standard errors."""
    problem, shards = fedns.Problem(penalty=fedns.Ridge(1e-12)), make_shards(sizes=(300,))
    plain = Plain(problem, shards)
    w, draws, size = np.linspace(-1, 1, plain.M), 400, 20
    (root,) = plain.roots(w)
    grams = []
    for seed in range(draws):
        clients = Clients(shards, np.array([0]), seed, 1, ClientMemory(np.array([0])))
        rows = leverage_sample(problem, clients, w, size).sketched_root.values
        assert rows.shape == (size, plain.M)
        grams.append(rows.T @ rows)
    error = np.abs(np.mean(grams, axis=0) - root.T @ root) / (np.std(grams, axis=0) / np.sqrt(draws))
    assert error.max() < 6
    q, _ = np.linalg.qr(root)
    scores = (q**2).sum(axis=1)  # leverage scores without a ridge, which sum to the rank
    # A row divided by sqrt(k p) has the squared norm |a|^2 total / (k score): the probability can be read off it.
    norms, squared = (rows**2).sum(axis=1), (root**2).sum(axis=1)
    possible = squared * scores.sum() / (size * scores)
    assert np.abs(norms[:, None] / possible - 1).min(axis=1).max() < 1e-6


@pytest.mark.parametrize(
    "settings", [{"growth": "adaptive"}, {"rows": "leverage"}, {"growth": "adaptive", "rows": "leverage"}]
)
def test_adaptive_and_leverage_sketches_reach_the_optimum(settings):
    problem, shards = fedns.Problem(penalty=fedns.Ridge(1e-2)), make_shards(sizes=(150, 150))
    method = fedns.FedNS(fedns.SRHT(4), line_search=fedns.ArmijoSearch(), **settings)
    history = fedns.simulate(method, problem, shards, rounds=100, tol=1e-10)
    assert history.converged, history.stop_reason
    sizes = [record.diagnostics.get("sketch_size", 4.0) for record in history.records[1:]]
    assert (max(sizes) > 4) == ("growth" in settings)


def test_adaptive_sketches_grow_by_what_was_observed():
    problem, shards = fedns.Problem(penalty=fedns.Ridge(1e-2)), make_shards(sizes=(150, 150))
    records = fedns.simulate(fedns.FedNS(fedns.SRHT(4), growth="adaptive"), problem, shards, rounds=12).records[1:]
    for before, now, following in zip(records, records[1:], records[2:], strict=False):
        poor = now.diagnostics["newton_decrement"] ** 2 > 0.25 * before.diagnostics["newton_decrement"] ** 2
        assert following.diagnostics["sketch_size"] == now.diagnostics["sketch_size"] * (2 if poor else 1)
