"""FedNL, FedNL-LS, FedNL-PP and Newton-Zero against their iterations written out in numpy."""

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.methods.local_oracles import assert_checkpoint_continues
from tests.methods.plain import Plain

import fedns
from fedns.core.errors import ConfigError
from fedns.core.history import Observer
from fedns.methods.fednl import FedNL, NewtonZero
from fedns.numerics.linalg import symmetric_of
from fedns.numerics.rng import generator

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=True)
ROUNDS = 6
CASES = [{}, {"sparse": True}, {"weighted": True}, {"sparse": True, "weighted": True, "dtype": np.float32}]


class States(Observer):
    """Keeps every state of a run."""

    def __init__(self):
        self.states = []

    def on_round(self, record, state):
        self.states.append(state)


def iterates(method, problem=PROBLEM, shards=None, rounds=ROUNDS, **settings):
    seen = States()
    history = fedns.simulate(method, problem, shards or make_shards(), rounds=rounds, observers=[seen], **settings)
    return np.array([state.coefficients for state in seen.states]), seen.states, history


def rank_one(D):
    values, vectors = np.linalg.eigh(D)
    best = np.argmax(np.abs(values))
    return values[best] * np.outer(vectors[:, best], vectors[:, best])


def top_m(D):
    rows, columns = np.triu_indices(len(D))
    size = np.abs(D[rows, columns]) * np.where(rows == columns, 1, np.sqrt(2))
    pick = np.argsort(-size, kind="stable")[: len(D)]
    kept = np.zeros_like(D)
    kept[rows[pick], columns[pick]] = kept[columns[pick], rows[pick]] = D[rows[pick], columns[pick]]
    return kept


def clipped(H):
    values, vectors = np.linalg.eigh(H)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def fednl_oracle(plain, compress, option, exact=True, norm="fro", search=False, rounds=ROUNDS):
    w = np.zeros(plain.M)
    learned = plain.hessians(w) if exact else np.zeros((len(plain.p), plain.M, plain.M))
    trace = [w]
    for _ in range(rounds):
        g = plain.mean(plain.gradients(w)) + plain.penalty * w
        errors = plain.hessians(w) - learned
        H = plain.mean(learned)
        shift = plain.p @ [np.linalg.norm(D, norm) for D in errors]
        B = clipped(H) if option == 1 else H + shift * np.eye(plain.M)
        d = -np.linalg.solve(B + np.diag(plain.penalty), g)
        w = w + (plain.search(w, d, g @ d) if search else 1.0) * d
        learned = learned + np.array([compress(D) for D in errors])
        trace.append(w)
    return np.array(trace)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("compressor", "compress"), [("rank1", rank_one), ("topk", top_m), ("identity", lambda D: D)])
@pytest.mark.parametrize("option", [1, 2])
def test_fednl_is_its_iteration(case, compressor, compress, option):
    shards = make_shards(**case)
    found, _, _ = iterates(FedNL(compressor=compressor, option=option, line_search=fedns.ArmijoSearch()), shards=shards)
    expected = fednl_oracle(Plain(PROBLEM, shards), compress, option, search=True)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_fednl_without_search_and_with_a_zero_start():
    shards = make_shards()
    plain = Plain(PROBLEM, shards)
    found, _, _ = iterates(FedNL(initial_hessian="zero"), shards=shards)
    np.testing.assert_allclose(found, fednl_oracle(plain, rank_one, 2, exact=False), rtol=1e-9, atol=1e-9)
    found, _, _ = iterates(FedNL(initial_hessian="zero", shift_norm="spectral"), shards=shards)
    np.testing.assert_allclose(found, fednl_oracle(plain, rank_one, 2, exact=False, norm=2), rtol=1e-9, atol=1e-9)
    squared = fedns.Problem(fedns.Squared(), fedns.Ridge(0.1))
    shards = make_shards(regression=True)
    found, _, _ = iterates(FedNL(), squared, shards)
    np.testing.assert_allclose(found, fednl_oracle(Plain(squared, shards), rank_one, 1), rtol=1e-9, atol=1e-9)


def test_identity_is_newton_one_step_late():
    shards = make_shards()
    plain = Plain(PROBLEM, shards)
    found, _, _ = iterates(FedNL(compressor="identity"), shards=shards)
    w = late = np.zeros(plain.M)
    for t in range(1, ROUNDS + 1):
        g = plain.mean(plain.gradients(w)) + plain.penalty * w
        w, late = w - np.linalg.solve(plain.mean(plain.hessians(late)) + np.diag(plain.penalty), g), w
        np.testing.assert_allclose(found[t], w, rtol=1e-9, atol=1e-11)


def test_rank_m_is_identity():
    a, _, _ = iterates(FedNL(compressor="rank14"))
    b, _, _ = iterates(FedNL(compressor="identity"))
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_newton_zero_keeps_the_first_hessian_and_sends_gradients_alone():
    shards = make_shards()
    plain = Plain(PROBLEM, shards)
    found, _, history = iterates(NewtonZero(), shards=shards)
    H = plain.mean(plain.hessians(np.zeros(plain.M))) + np.diag(plain.penalty)
    w = np.zeros(plain.M)
    for t in range(1, ROUNDS + 1):
        w = w - np.linalg.solve(H, plain.mean(plain.gradients(w)) + plain.penalty * w)
        np.testing.assert_allclose(found[t], w, rtol=1e-9, atol=1e-11)
    kinds = [(e.round, e.kind) for e in history.ledger if e.direction == "uplink"]
    assert kinds[1] == (0, "InitialHessian") and kinds[2:] == [(t, "LocalGradient") for t in range(1, ROUNDS + 1)]


def test_both_ends_hold_the_same_hessian_even_when_numbers_are_rounded():
    """With 32-bit messages the server's mean is still that of the clients' Hessians, to 64 bits."""
    from fedns.core.cohort import Session
    from fedns.core.run import Stop, run
    from fedns.simulation.simulator import SimulatedCohort

    shards = make_shards()
    for compressor in ("rank1", "topk", "randk", "identity"):
        for variant in ("standard", "pp"):
            cohort = SimulatedCohort(shards, Session(PROBLEM, 1, "float32"))
            seen = States()
            run(
                FedNL(compressor=compressor, variant=variant),
                PROBLEM,
                cohort,
                stop=Stop(5),
                evaluate=lambda w: PROBLEM.evaluate(w, shards),
                participation=0.6,
                observers=[seen],
            )
            p = cohort.weights
            mean = p @ cohort.memory.arrays["fednl_hessian"]
            np.testing.assert_allclose(seen.states[-1].hessian_triangle, mean, rtol=1e-12, atol=1e-14)
            if variant == "pp":
                np.testing.assert_allclose(seen.states[-1].shift, p @ cohort.memory.arrays["fednl_shift"], rtol=1e-12)
                side = p @ cohort.memory.arrays["fednl_right_side"]
                np.testing.assert_allclose(seen.states[-1].right_side, side, rtol=1e-12, atol=1e-14)


def fednl_pp_oracle(plain, participation, seed, rounds):
    """Algorithm 2 of the paper, penalty inside f_j, with Rank-1 and the Frobenius norm."""
    identity, penalty = np.eye(plain.M), np.diag(plain.penalty)
    x = np.zeros(plain.M)
    H = plain.hessians(x) + penalty
    shift = np.zeros(len(H))
    g = (H @ x) - (plain.gradients(x) + plain.penalty * x)
    trace = [x]
    for t in range(1, rounds + 1):
        x = np.linalg.solve(plain.mean(H) + (plain.p @ shift) * identity, plain.mean(g))
        count = max(1, round(participation * len(H)))
        chosen = (
            generator(seed, "participation", t).choice(len(H), size=count, replace=False)
            if count < len(H)
            else range(len(H))
        )
        gradients, hessians = plain.gradients(x) + plain.penalty * x, plain.hessians(x) + penalty
        for j in chosen:
            H[j] = H[j] + rank_one(hessians[j] - H[j])
            shift[j] = np.linalg.norm(hessians[j] - H[j])
            g[j] = (H[j] + shift[j] * identity) @ x - gradients[j]
        trace.append(x)
    return np.array(trace)


@pytest.mark.parametrize("participation", [0.4, 1.0])
def test_fednl_pp_is_algorithm_2_of_the_paper(participation):
    shards = make_shards(weighted=True)
    found, _, _ = iterates(FedNL(variant="pp"), shards=shards, participation=participation, seed=3, rounds=8)
    expected = fednl_pp_oracle(Plain(PROBLEM, shards), participation, 3, 8)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_fednl_pp_converges_where_the_standard_variant_wanders():
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2))
    shards = make_shards(400, 6, (60, 80, 100, 90, 70))
    _, _, pp = iterates(FedNL(variant="pp"), problem, shards, rounds=60, participation=0.4, optimum="find")
    _, _, standard = iterates(FedNL(option=2), problem, shards, rounds=60, participation=0.4, optimum="find")
    assert pp.suboptimality[-1] < 1e-12 < 1e-6 < standard.suboptimality[-1]


def test_fednl_pp_with_identity_and_everyone_is_newton():
    a, _, _ = iterates(FedNL(compressor="identity", variant="pp"))
    b, _, _ = iterates(fedns.FedNewton())
    np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_what_is_sent():
    """Numbers of 8 bytes per client and round; the header is below 100 bytes."""
    shards, features = make_shards(), 14
    for method, numbers in [
        (FedNL(), features + features + 1),
        (FedNL(option=2), features + features + 1 + 1),
        (FedNL(compressor="rank3", option=1), features + 3 * features + 3),
        (FedNL(compressor="topk", option=1), features + 1.5 * features),
        (FedNL(compressor="top20", option=2), features + 1 + 1.5 * 20),
        (FedNL(compressor="identity"), features + 105),
    ]:
        _, _, history = iterates(method, shards=shards)
        sent = np.diff(history.uplink_bytes) / shards.num_clients
        assert (sent == sent[0]).all() and 0 < sent[0] - 8 * numbers < 100
        assert 0 < history.uplink_bytes[0] / shards.num_clients - 8 * 105 < 150  # the Hessian at the start
    _, _, history = iterates(FedNL(initial_hessian="zero"), shards=shards)
    assert history.uplink_bytes[0] / shards.num_clients < 100


@pytest.mark.slow
def test_rand_k_learns_the_hessian():
    shards = make_shards(400, 6, (200, 200))
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2))
    _, states, history = iterates(FedNL(compressor="rand10"), problem, shards, rounds=60, optimum="find")
    plain = Plain(problem, shards)
    expected = plain.mean(plain.hessians(history.coefficients))
    np.testing.assert_allclose(symmetric_of(states[-1].hessian_triangle, 6), expected, atol=1e-6)
    assert history.suboptimality[-1] < 1e-13


@pytest.mark.slow
def test_option_1_with_top_k_diverges_in_words():
    """Single entries make the estimate indefinite, and clipping leaves directions with the penalty alone."""
    shards = make_shards(300, 30, (60, 60, 60, 60, 60), seed=2)
    problem = fedns.Problem(penalty=fedns.Ridge(1e-9))
    _, _, history = iterates(FedNL(compressor="top5", option=1), problem, shards, rounds=300)
    assert history.stop_reason.startswith("diverged in round") and not history.converged
    for record in history.records:
        assert np.isfinite([record.objective, record.gradient_norm, *record.diagnostics.values()]).all()
    assert np.isfinite(history.coefficients).all()
    _, _, safe = iterates(FedNL(compressor="top5"), problem, shards, rounds=300)  # option 2 by default
    assert safe.objective[-1] < safe.objective[0]


@pytest.mark.parametrize("method", [FedNL(), FedNL(variant="pp"), FedNL(compressor="randk"), NewtonZero()])
def test_states_can_be_written_and_read_back(method):
    assert_checkpoint_continues(method, PROBLEM, make_shards())


@pytest.mark.parametrize(
    "settings",
    [
        {"compressor": "rank"},
        {"option": 3},
        {"initial_hessian": "half"},
        {"line_search": fedns.LocalSearch()},
        {"shift_norm": "nuclear"},
        {"variant": "qp"},
        {"alpha": 2.0},
        {"variant": "pp", "option": 1},
        {"variant": "pp", "line_search": fedns.ArmijoSearch()},
    ],
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        FedNL(**settings)


def rounds_and_numbers(method, dataset, clients, limit, seeds=(0, 1, 2)):
    """Mean rounds and 64-bit numbers per client to a gap of 1e-10, as section 12 of ALGORITHMS.md counts them."""
    problem = fedns.Problem(penalty=fedns.Ridge(1e-3))
    found = []
    for seed in seeds:
        history = fedns.simulate(
            method, problem, fedns.split_dataset(dataset, clients, "iid", seed), rounds=limit, tol=1e-10
        )
        found.append((history.round[-1], history.uplink_bytes[-1] / 8 / clients))
    return np.mean(found, axis=0)


@pytest.mark.parametrize(
    ("method", "name", "clients", "rounds", "numbers"),
    [
        (FedNL(option=1), "phishing", 40, 12, 3990),
        (FedNL(option=1), "a9a", 80, 31, 15283),
        (NewtonZero(), "phishing", 40, 22, 3842),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_rounds_on_real_data(real_data, method, name, clients, rounds, numbers):
    found, sent = rounds_and_numbers(method, real_data(name), clients, 2 * rounds)
    assert abs(found - rounds) <= max(1, 0.1 * rounds)
    assert 0 <= sent - numbers * found / rounds < 12 * found + 30 + 0.02 * numbers  # headers: below 100 bytes a message


def test_newton_zero_needs_more_than_sixty_rounds_on_a9a(real_data):
    found, _ = rounds_and_numbers(NewtonZero(), real_data("a9a"), 80, 61, seeds=(0,))
    assert found > 60


def test_top_k_on_w8a_is_super_linear_at_the_end(real_data):
    problem, shards = fedns.Problem(penalty=fedns.Ridge(1e-3)), fedns.split_dataset(real_data("w8a"), 142, "iid", 0)
    history = fedns.simulate(FedNL(compressor="topk"), problem, shards, rounds=80, gradient_tol=1e-9)
    assert history.converged
    factors = history.gradient_norm[1:] / history.gradient_norm[:-1]
    assert factors[-5:].max() < 0.5 * np.median(factors)
