"""DistributedNewton against numpy, its trimming, and measured plateaus."""

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards
from tests.methods.local_oracles import VARIANTS, after, problem_and_clients

import fedns
from fedns.methods import DistributedNewton
from fedns.methods.distributed_newton import LocalNewtonStep, trimmed_mean

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("trim", [0.0, 0.2, 0.4])
def test_two_rounds(variant, trim):
    problem, shards, clients, shares = problem_and_clients(variant)
    w = np.zeros(problem.num_features(13))
    for _ in range(2):
        steps = np.array([c.newton(w) for c in clients])
        kept = np.argsort(np.linalg.norm(steps, axis=1))[: 5 - int(trim * 5)]
        w = w + 0.9 * (shares[kept] @ steps[kept]) / shares[kept].sum()
    method = DistributedNewton(step_size=0.9, trim=trim)
    # The client with a single row has a condition number of 1e4 or more.
    np.testing.assert_allclose(after(method, problem, shards, 2), w, rtol=0, atol=1e-10)


def test_with_one_client_it_is_newtons_method():
    shards = make_shards().pooled()
    newton = after(fedns.FedNewton(), PROBLEM, shards, 3)
    np.testing.assert_allclose(after(DistributedNewton(), PROBLEM, shards, 3), newton, rtol=1e-10)


@pytest.mark.parametrize("trimmed", [0, 1, 7, 19])
def test_the_streaming_trimmed_mean_is_the_sorted_one(trimmed):
    random = np.random.default_rng(trimmed)
    steps, weights = random.normal(size=(20, 3)), random.random(20)
    weights /= weights.sum()
    steps[5] = steps[11]  # a tie
    kept = np.argsort(np.linalg.norm(steps, axis=1), kind="stable")[: 20 - trimmed]
    expected = weights[kept] @ steps[kept] / weights[kept].sum()
    results = []
    for chunk in (1, 3, 20):
        reducer = trimmed_mean(trimmed)
        for start in range(0, 20, chunk):
            reducer.add(LocalNewtonStep(steps[start : start + chunk]), weights[start : start + chunk])
        results.append(reducer.result())
    np.testing.assert_allclose(results[0], expected, rtol=1e-12)
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


def test_trimming_keeps_out_clients_whose_labels_are_nonsense():
    """Two of ten clients have their labels flipped and their columns shrunk, which makes their steps long and wrong."""
    shards = make_shards(rows=1000, sizes=(100,) * 10)
    features, targets = dense_features(shards).copy(), shards.targets.copy()
    features[:200] *= 0.01
    targets[:200] *= -1
    spoilt = fedns.Shards.from_arrays(features, targets, shards.sizes)
    honest = fedns.pooled_optimum(PROBLEM, shards.select(np.arange(2, 10))).coefficients
    distances = [np.linalg.norm(after(DistributedNewton(trim=t), PROBLEM, spoilt, 8) - honest) for t in (0.0, 0.2)]
    assert distances[1] < 0.3 * distances[0]


def test_its_fixed_point_is_biased_and_the_history_says_so():
    history = fedns.simulate(DistributedNewton(), PROBLEM, make_shards(sizes=(60,) * 5), rounds=30, optimum="find")
    assert history.ending is fedns.Ending.PLATEAU
    assert history.suboptimality[-1] > 1e-6 and history.records[-1].diagnostics["step_norm"] < 1e-10


@pytest.mark.parametrize("settings", [{"trim": 0.5}, {"trim": -0.1}, {"step_size": 0.0}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(fedns.ConfigError):
        DistributedNewton(**settings)


@pytest.mark.parametrize(
    ("name", "clients", "how", "measured"),
    [("phishing", 40, "iid", 1e-4), ("a9a", 80, "iid", 2e-4), ("phishing", 40, "sorted", 0.3)],
)
def test_measured_plateaus(name, clients, how, measured, real_data):
    dataset = real_data(name)
    gaps = []
    for seed in range(3):
        shards = fedns.split(*dataset, clients=clients, how=how, seed=seed)
        history = fedns.simulate(
            DistributedNewton(), fedns.Problem(penalty=fedns.Ridge(1e-3)), shards, rounds=30, optimum="find"
        )
        assert history.ending is fedns.Ending.PLATEAU
        gaps.append(history.suboptimality[-1])
    assert measured / 2 < np.mean(gaps) < 2 * measured
