"""SHED against its iteration written out in numpy."""

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.methods.local_oracles import assert_checkpoint_continues
from tests.methods.plain import Plain

import fedns
from fedns.core.errors import ConfigError
from fedns.core.history import Observer
from fedns.methods.shed import SHED, eigenpairs, renewals, rounds_between
from fedns.runs.methods import parse_method

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=True)
ROUNDS = 8
CASES = [{}, {"sparse": True}, {"weighted": True}, {"sparse": True, "weighted": True, "dtype": np.float32}]


class Iterates(Observer):
    def __init__(self):
        self.points = []

    def on_round(self, record, state):
        self.points.append(state.coefficients)


def iterates(method, problem=PROBLEM, shards=None, rounds=ROUNDS, **settings):
    seen = Iterates()
    history = fedns.simulate(method, problem, shards or make_shards(), rounds=rounds, observers=[seen], **settings)
    return np.array(seen.points), history


def shed_oracle(plain, pairs, renewal_rounds, midpoint=False, search=True, rounds=ROUNDS):
    """`pairs` per client; eigenvalues beyond the rank are zero and change nothing."""
    w = np.zeros(plain.M)
    trace = [w]
    for t in range(rounds):
        if t in renewal_rounds:
            values, vectors = np.linalg.eigh(plain.hessians(w))
            values, vectors = np.maximum(values[:, ::-1], 0), vectors[:, :, ::-1]
            q = np.zeros(len(plain.p), dtype=int)
        q = np.minimum(q + pairs, plain.M)
        H = np.diag(plain.penalty)
        for p, ell, V, k in zip(plain.p, values, vectors, q, strict=True):
            r = ell[k] if k < plain.M else 0.0
            r = (r + ell[-1]) / 2 if midpoint else r
            H = H + p * ((V[:, :k] * (ell[:k] - r)) @ V[:, :k].T + r * np.eye(plain.M))
        g = plain.mean(plain.gradients(w)) + plain.penalty * w
        d = -np.linalg.solve(H, g)
        w = w + (plain.search(w, d, g @ d) if search else 1.0) * d
        trace.append(w)
    return np.array(trace)


FIBONACCI = (0, 1, 2, 4, 7, 12, 20, 33, 54)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("pairs", [1, 3, 9])
def test_shed_is_its_iteration(case, pairs):
    shards = make_shards(**case)
    found, _ = iterates(SHED(eigenpairs=pairs), shards=shards)
    np.testing.assert_allclose(found, shed_oracle(Plain(PROBLEM, shards), pairs, FIBONACCI), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("renewal", "at"), [("once", (0,)), ("every3", (0, 3, 6)), ("every1", range(20))])
def test_other_schedules(renewal, at):
    shards = make_shards()
    found, _ = iterates(SHED(renewal=renewal), shards=shards)
    np.testing.assert_allclose(found, shed_oracle(Plain(PROBLEM, shards), 3, at), rtol=1e-9, atol=1e-9)


def test_renewals_follow_the_cumulative_fibonacci_numbers():
    numbers = [renewals("fibonacci", t) for t in range(60)]
    assert tuple(t for t in range(60) if t == 0 or numbers[t] > numbers[t - 1]) == FIBONACCI


@pytest.mark.parametrize("schedule", ["fibonacci", "every1", "every4"])
def test_a_renewal_lasts_until_the_next(schedule):
    generations = [renewals(schedule, iteration) for iteration in range(140)]
    for generation in set(generations) - {generations[-1]}:
        assert rounds_between(schedule, generation) == generations.count(generation)
    assert rounds_between("once", 1) == 0
    assert rounds_between("fibonacci", 2**60) > 10**9


def test_all_pairs_at_once_is_newton_with_the_hessian_of_the_last_renewal():
    shards = make_shards()
    plain = Plain(PROBLEM, shards)
    found, _ = iterates(SHED(eigenpairs=14, line_search=None), shards=shards)
    w = np.zeros(plain.M)
    for t in range(ROUNDS):
        if t in FIBONACCI:
            H = plain.mean(plain.hessians(w)) + np.diag(plain.penalty)
        w = w - np.linalg.solve(H, plain.mean(plain.gradients(w)) + plain.penalty * w)
        np.testing.assert_allclose(found[t + 1], w, rtol=1e-8, atol=1e-10)
    newton, _ = iterates(fedns.FedNewton(), shards=shards)
    every, _ = iterates(SHED(eigenpairs=14, renewal="every1", line_search=None), shards=shards)
    np.testing.assert_allclose(every, newton, rtol=1e-8, atol=1e-10)


def test_the_midpoint_helps_squared_losses():
    problem = fedns.Problem(fedns.Squared(), fedns.Ridge(1e-3))
    shards = make_shards(regression=True, sizes=(60,) * 5)
    plain = Plain(problem, shards)
    midpoint = SHED(eigenpairs=2, renewal="once", residual="midpoint", line_search=None)
    found, history = iterates(midpoint, problem, shards)
    np.testing.assert_allclose(found, shed_oracle(plain, 2, (0,), midpoint=True, search=False), rtol=1e-9, atol=1e-9)
    _, usual = iterates(SHED(eigenpairs=2, renewal="once", line_search=None), problem, shards)
    assert history.objective[4] < usual.objective[4]
    assert (np.diff(usual.objective) <= 1e-15).all()  # H is no smaller than the Hessian: a unit step never overshoots


def test_clients_may_send_unequal_numbers_of_pairs():
    shards = make_shards()
    plain = Plain(PROBLEM, shards)
    found, _ = iterates(SHED(eigenpairs_per_client=(1, 4, 2, 6, 3)), shards=shards)
    expected = shed_oracle(plain, np.array([1, 4, 2, 6, 3]), FIBONACCI)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    by_rows, _ = iterates(SHED(eigenpairs=4, allocation="rows"), shards=shards)
    pairs = np.maximum(1, np.rint(4 * plain.p * 5)).astype(int)  # 1, 6, 1, 10, 3
    np.testing.assert_allclose(by_rows, shed_oracle(plain, pairs, FIBONACCI), rtol=1e-9, atol=1e-9)
    typed = parse_method("shed:eigenpairs_per_client=1/4/2/6/3").algorithm
    assert typed == SHED(eigenpairs_per_client=(1, 4, 2, 6, 3))
    with pytest.raises(ConfigError, match="2 numbers, but there are 5 clients"):
        iterates(SHED(eigenpairs_per_client=(1, 2)), shards=shards)


def test_what_is_sent():
    """Clients of full rank: M + q(M+1) + 1 + 13 numbers; nothing beyond the rank, and a client with one row has one pair."""
    shards, features = make_shards(sizes=(150, 150)), 14
    _, history = iterates(SHED(), shards=shards)
    sent = np.diff(history.uplink_bytes) / 2 / 8
    assert (sent == sent[0]).all() and 0 < sent[0] - (features + 3 * (features + 1) + 1 + 13) < 25  # two headers
    _, history = iterates(SHED(eigenpairs=14, renewal="once"), shards=shards)
    assert 0 < np.diff(history.uplink_bytes)[-1] / 2 / 8 - (features + 1 + 13) < 25
    one_row = make_shards(2, 13, (1, 1))
    _, history = iterates(SHED(eigenpairs=5), fedns.Problem(), one_row, rounds=1)
    assert 0 < np.diff(history.uplink_bytes)[0] / 2 / 8 - (13 + 14 + 1 + 13) < 25


def test_absent_clients_keep_what_they_sent():
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2))
    shards = make_shards(400, 6, (60, 80, 100, 90, 70))
    _, history = iterates(SHED(eigenpairs=2), problem, shards, rounds=25, participation=0.6, seed=2, optimum="find")
    assert history.objective[-1] < history.objective[0] and history.suboptimality[-1] < 0.05
    again, _ = iterates(SHED(eigenpairs=2), problem, shards, rounds=25, participation=0.6, seed=2, chunk_clients=1)
    np.testing.assert_array_equal(again[-1], history.coefficients)


def test_states_can_be_written_and_read_back():
    assert_checkpoint_continues(SHED(), PROBLEM, make_shards(), rounds=5)


@pytest.mark.parametrize(
    "settings",
    [
        {"eigenpairs": 0},
        {"eigenpairs_per_client": (1, 0)},
        {"renewal": "never"},
        {"renewal": "every0"},
        {"residual": "mean"},
        {"allocation": "bandwidth"},
        {"line_search": fedns.LocalSearch()},
    ],
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        SHED(**settings)


@pytest.mark.parametrize(
    ("name", "clients", "pairs", "rounds", "numbers"),
    [
        ("phishing", 40, 3, 16, 4624),
        ("phishing", 40, 17, 6, 7530),
        pytest.param("a9a", 80, 3, 51, 25959, marks=pytest.mark.nightly),
        ("a9a", 80, 30, 9, 34713),
    ],
)
def test_rounds_on_real_data(real_data, name, clients, pairs, rounds, numbers):
    problem, dataset = fedns.Problem(penalty=fedns.Ridge(1e-3)), real_data(name)
    found = []
    for seed in range(3):
        shards = fedns.split_dataset(dataset, clients, "iid", seed)
        history = fedns.simulate(SHED(eigenpairs=pairs), problem, shards, rounds=2 * rounds, tol=1e-10)
        found.append((history.round[-1], history.uplink_bytes[-1] / 8 / clients))
    mean_rounds, sent = np.mean(found, axis=0)
    assert abs(mean_rounds - rounds) <= max(1, 0.1 * rounds)
    # The table counts full batches of pairs; beyond the rank of a client's Hessian none are sent here.
    assert 0.95 * numbers * mean_rounds / rounds <= sent <= numbers * mean_rounds / rounds + 20 * mean_rounds


@pytest.mark.parametrize("residual", ["next", "midpoint"])
def test_clients_with_fewer_rows_than_features(residual, monkeypatch):
    """No client forms a matrix in the size of the features, and memories of different lengths go together."""
    shards = make_shards(60, 40, (5, 30, 1, 24))
    plain = Plain(PROBLEM, shards)
    monkeypatch.setattr(fedns.Problem, "gradient_and_hessian", lambda *given: pytest.fail("a Hessian was formed"))
    method = SHED(eigenpairs=4, residual=residual)
    found, _ = iterates(method, shards=shards)
    expected = shed_oracle(plain, 4, FIBONACCI, midpoint=residual == "midpoint")
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    one_by_one, _ = iterates(method, shards=shards, chunk_clients=1)
    np.testing.assert_array_equal(found, one_by_one)


def test_eigenpairs_of_wide_and_tall_clients():
    problem, shards, w = PROBLEM, make_shards(weighted=True), np.linspace(-1, 1, 14)
    gradient, values, vectors = eigenpairs(problem, w, shards, 14)
    np.testing.assert_allclose(gradient, problem.gradient(w, shards), rtol=1e-12, atol=1e-14)
    for hessian, ell, V, rows in zip(problem.hessian(w, shards), values, vectors, shards.sizes, strict=True):
        np.testing.assert_allclose((V.T * ell) @ V, hessian, rtol=1e-10, atol=1e-13)
        assert (np.diff(ell) <= 0).all() and (ell[rows:] == 0).all()
        rank = min(rows, 14)
        np.testing.assert_allclose(V[:rank] @ V[:rank].T, np.eye(rank), atol=1e-12)
