"""FedAvg and FedProx against numpy, against gradient descent, and against measured plateaus."""

import numpy as np
import pytest
import scipy.sparse
from tests.conftest import make_shards
from tests.methods.local_oracles import VARIANTS, after, assert_checkpoint_continues, problem_and_clients

import fedns
from fedns.core.cohort import Session
from fedns.core.shards import Shards
from fedns.methods import FedAvg, FedProx, GradientDescent
from fedns.methods.fedavg import ask_smoothness
from fedns.numerics.cpu.local_steps import shuffle
from fedns.numerics.rng import stream_keys
from fedns.simulation.simulator import SimulatedCohort

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pull", [0.0, 0.3])
def test_two_rounds_of_full_batch_steps(variant, pull):
    problem, shards, clients, shares = problem_and_clients(variant)
    w = np.zeros(problem.num_features(13))
    for _ in range(2):
        models = []
        for client in clients:
            u = w
            for _ in range(5):
                u = u - 0.2 * (client.gradient(u) + pull * (u - w))
            models.append(u)
        w = shares @ np.array(models)
    method = FedProx(learning_rate=0.2, proximal=pull) if pull else FedAvg(learning_rate=0.2)
    np.testing.assert_allclose(after(method, problem, shards, 2), w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("settings", "steps_of"), [({"local_epochs": 3}, lambda n: 3 * -(-n // 8)), ({"local_steps": 9}, lambda n: 9)]
)
def test_a_round_of_mini_batches(variant, settings, steps_of):
    problem, shards, clients, shares = problem_and_clients(variant)
    w = np.zeros(problem.num_features(13))
    keys = stream_keys(4, "local batches", 1, np.arange(5))
    models = []
    for client, key in zip(clients, keys, strict=True):
        u, n, queue = w, len(client.y), []
        for step in range(steps_of(n)):
            if not queue:
                order = np.empty(n, dtype=np.int64)
                shuffle(key[0], key[1], step // -(-n // 8), order)
                queue = [order[i : i + 8] for i in range(0, n, 8)]
            batch = queue.pop(0)
            # the batch's rows count n / |B| times as much as in the mean over all rows
            part = client._replace(x=client.x[batch], y=client.y[batch], s=client.s[batch] * n / len(batch))
            u = u - 0.1 * (part.gradient(u) + 0.2 * (u - w))
        models.append(u)
    method = FedProx(batch_size=8, learning_rate=0.1, proximal=0.2, **settings)
    np.testing.assert_allclose(after(method, problem, shards, 1, seed=4), shares @ np.array(models), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("rows", "batch"), [(12, 3), (10, 4), (5, 8)])
def test_an_epoch_visits_every_row_once(sparse, rows, batch):
    """Row i of the identity moves coordinate i alone, by learning_rate y_i / |B|."""
    features = scipy.sparse.identity(rows, format="csr") if sparse else np.eye(rows)
    shards = Shards.from_arrays(features, np.ones(rows), [rows])
    problem = fedns.Problem(loss=fedns.Squared(), penalty=fedns.Ridge(0.0))
    visits = after(FedAvg(local_epochs=1, batch_size=batch, learning_rate=0.5), problem, shards, 1)
    last = rows % batch
    expected = np.sort(np.r_[np.full(rows - last, 0.5 / min(batch, rows)), np.full(last, 0.5 / max(last, 1))])
    np.testing.assert_allclose(np.sort(visits), expected, rtol=1e-14)
    # Three epochs of full batches: the error of every coordinate shrinks three times.
    if last == 0:
        thrice = after(FedAvg(local_epochs=3, batch_size=batch, learning_rate=0.5), problem, shards, 1)
        np.testing.assert_allclose(1 - thrice, (1 - 0.5 / batch) ** 3, rtol=1e-14)


def test_every_epoch_and_client_has_an_order_of_its_own():
    orders = []
    for key in stream_keys(0, "local batches", 1, np.arange(2)):
        for epoch in range(2):
            order = np.empty(50, dtype=np.int64)
            shuffle(key[0], key[1], epoch, order)
            assert np.array_equal(np.sort(order), np.arange(50))
            orders.append(tuple(order))
    assert len(set(orders)) == 4


def test_the_orders_are_uniform():
    """Where row 0 ends up in 6000 shuffles of 6: chi-squared with 5 degrees of freedom, false alarm 1e-6."""
    places = np.zeros(6)
    order = np.empty(6, dtype=np.int64)
    for epoch in range(6000):
        shuffle(np.uint64(7), np.uint64(9), epoch, order)
        places[np.flatnonzero(order == 0)] += 1
    assert ((places - 1000) ** 2 / 1000).sum() < 36.0


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_mini_batches_do_not_depend_on_chunks_or_threads(sparse):
    shards = make_shards(sparse=sparse)
    method = FedAvg(batch_size=8, local_epochs=2)
    first = after(method, PROBLEM, shards, 3, seed=1, chunk_clients=1, threads=1)
    for settings in ({"chunk_clients": 3}, {"threads": 2}, {}):
        assert np.array_equal(first, after(method, PROBLEM, shards, 3, seed=1, **settings))
    assert not np.array_equal(first, after(method, PROBLEM, shards, 3, seed=2))


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_full_batch_step_is_gradient_descent(variant):
    problem, shards, _, _ = problem_and_clients(variant)
    averaged = fedns.simulate(FedAvg(local_epochs=1, learning_rate=0.3), problem, shards, rounds=20)
    descent = fedns.simulate(GradientDescent(step_size=0.3), problem, shards, rounds=20)
    np.testing.assert_allclose(averaged.coefficients, descent.coefficients, rtol=0, atol=1e-14)
    np.testing.assert_allclose(averaged.objective, descent.objective, rtol=1e-14)


@pytest.mark.parametrize("batch_size", [0, 16])
def test_without_the_proximal_term_fedprox_is_fedavg(batch_size):
    settings = {"batch_size": batch_size, "learning_rate": 0.2}
    a = after(FedProx(proximal=0.0, **settings), PROBLEM, make_shards(), 3)
    assert np.array_equal(a, after(FedAvg(**settings), PROBLEM, make_shards(), 3))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_smoothness_estimate_is_the_largest_curvature_and_a_little_more(variant):
    problem, shards, clients, _ = problem_and_clients(variant)
    zero = np.zeros(problem.num_features(13))
    exact = max(np.linalg.eigvalsh(c.hessian(zero) - np.diag(c.penalty))[-1] for c in clients) + 1e-2
    estimate = ask_smoothness(problem, SimulatedCohort(shards, Session(problem, 0)))
    assert exact * (1 - 1e-9) <= estimate <= 1.1 * exact


def test_the_search_is_counted_and_reported():
    history = fedns.simulate(FedAvg(search_rounds=3), PROBLEM, make_shards(), rounds=5)
    assert history.exchanges.tolist() == [1, 4, 6, 8, 9, 10]  # registration; smoothness, models, losses; models, losses; ...
    assert [r.diagnostics["candidates"] for r in history.records[1:]] == [4, 4, 4, 1, 1]
    rates = [r.diagnostics["learning_rate"] for r in history.records[1:]]
    smoothness = history.records[1].diagnostics["smoothness"]
    assert rates[2] == rates[3] == rates[4]
    assert min(abs(rates[2] * smoothness - c) for c in (1, 1.9, 4, 8)) < 1e-9
    kinds = {entry.kind for entry in history.ledger if entry.direction == "uplink" and entry.round == 1}
    assert kinds == {"LocalSmoothness", "LocalModels", "CandidateLosses"}
    sent = np.diff(history.uplink_bytes)
    assert sent[1] > 3.5 * sent[4]


@pytest.mark.slow
def test_a_candidate_that_overflows_loses_the_race():
    """Squared loss, 500 local steps: 8 / L grows by 7^500, which is not a number any more."""
    shards = make_shards(regression=True)
    problem = fedns.Problem(loss=fedns.Squared(), penalty=fedns.Ridge(1e-2))
    history = fedns.simulate(FedAvg(local_epochs=500, search_rounds=2), problem, shards, rounds=4, optimum="find")
    smoothness = history.records[1].diagnostics["smoothness"]
    assert history.records[-1].diagnostics["learning_rate"] * smoothness < 2
    assert history.suboptimality[-1] < history.suboptimality[0]


def test_a_given_learning_rate_that_is_too_large_ends_in_words():
    shards = make_shards(regression=True)
    problem = fedns.Problem(loss=fedns.Squared(), penalty=fedns.Ridge(1e-2))
    history = fedns.simulate(FedAvg(local_epochs=100, learning_rate=1e3), problem, shards, rounds=20)
    assert history.ending is fedns.Ending.DIVERGED
    assert np.isfinite(history.objective).all() and np.isfinite(history.coefficients).all()


@pytest.mark.slow
def test_partial_participation_still_learns():
    shards = make_shards(sizes=(30,) * 10)
    history = fedns.simulate(FedAvg(), PROBLEM, shards, rounds=20, optimum="find", participation=0.3)
    assert history.suboptimality[-1] < 0.2 * history.suboptimality[0]


def test_a_state_can_be_checkpointed():
    assert_checkpoint_continues(FedAvg(search_rounds=2), PROBLEM, make_shards())


@pytest.mark.parametrize(
    "settings",
    [{"local_epochs": 0}, {"batch_size": -1}, {"learning_rate": -0.1}, {"learning_rate": np.nan}, {"search_rounds": 0}],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(fedns.ConfigError):
        FedAvg(**settings)
    with pytest.raises(fedns.ConfigError):
        FedProx(proximal=-1.0)


@pytest.mark.parametrize(
    ("name", "clients", "measured"), [("phishing", 40, 3e-6), pytest.param("a9a", 80, 8e-5, marks=pytest.mark.nightly)]
)
def test_measured_gap_after_60_rounds(name, clients, measured, real_data):
    dataset = real_data(name)
    problem = fedns.Problem(penalty=fedns.Ridge(1e-3))
    gaps = []
    for seed in range(5):
        shards = fedns.split(*dataset, clients=clients, how="iid", seed=seed)
        gaps.append(fedns.simulate(FedAvg(), problem, shards, rounds=60, optimum="find", seed=seed).suboptimality[-1])
    assert measured / 2.5 < np.mean(gaps) < 2.5 * measured


def test_it_ends_on_a_plateau_and_says_so(real_data):
    shards = fedns.split(*real_data("phishing"), clients=40, how="sorted", seed=0)
    history = fedns.simulate(FedAvg(), fedns.Problem(penalty=fedns.Ridge(1e-3)), shards, rounds=100, optimum="find")
    assert history.ending is fedns.Ending.PLATEAU
    assert history.suboptimality[-1] > 1e-2
