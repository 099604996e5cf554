"""FedNew and Q-FedNew against their iterations written out in numpy."""

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.methods.local_oracles import assert_checkpoint_continues
from tests.methods.plain import Plain

import fedns
from fedns.core.cohort import Session
from fedns.core.errors import ConfigError
from fedns.core.run import Stop, run
from fedns.methods.fednew import FedNew, QFedNew, dequantise, pack_codes, quantise, unpack_codes
from fedns.simulation.simulator import SimulatedCohort

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=True)
ROUNDS = 7
CASES = [{}, {"sparse": True}, {"weighted": True}, {"sparse": True, "weighted": True, "dtype": np.float32}]


def run_with_memory(method, shards, rounds=ROUNDS, wire="float64", **settings):
    cohort = SimulatedCohort(shards, Session(PROBLEM, 0, wire))
    history = run(method, PROBLEM, cohort, stop=Stop(rounds), evaluate=lambda w: PROBLEM.evaluate(w, shards), **settings)
    return history, cohort


def fednew_oracle(plain, rho, alpha, refresh, weights, rounds=ROUNDS):
    """rho and alpha per client; weights of the clients in y."""
    w = y = np.zeros(plain.M)
    dual = np.zeros((len(plain.p), plain.M))
    for t in range(rounds):
        if t == 0 or (refresh and t % refresh == 0):
            H = plain.hessians(w) + np.diag(plain.penalty) + (rho + alpha)[:, None, None] * np.eye(plain.M)
        g = plain.gradients(w) + plain.penalty * w
        local = np.linalg.solve(H, (g - dual + rho[:, None] * y)[:, :, None])[:, :, 0]
        y = weights @ local
        dual = dual + rho[:, None] * (local - y)
        w = w - y
    return w


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("refresh", [1, 0, 3])
def test_fednew_is_its_iteration(case, refresh):
    shards = make_shards(**case)
    plain = Plain(PROBLEM, shards)
    history, _ = run_with_memory(FedNew(rho=0.3, alpha=0.05, refresh=refresh), shards)
    rho, alpha = np.full(5, 0.3), np.full(5, 0.05)
    np.testing.assert_allclose(
        history.coefficients, fednew_oracle(plain, rho, alpha, refresh, plain.p), rtol=1e-9, atol=1e-10
    )


def test_parameters_of_summed_losses_are_divided_by_the_rows():
    """The same as ADMM on sums, rho the same for all clients: y is then the plain mean."""
    shards = make_shards(weighted=True)
    plain = Plain(PROBLEM, shards)
    history, _ = run_with_memory(FedNew(rho=20.0, alpha=3.0, scale="sum"), shards)
    expected = fednew_oracle(plain, 20.0 / plain.n, 3.0 / plain.n, 1, np.full(5, 0.2))
    np.testing.assert_allclose(history.coefficients, expected, rtol=1e-9, atol=1e-10)
    equal = make_shards(sizes=(60,) * 5)
    a, _ = run_with_memory(FedNew(rho=6.0, alpha=3.0, scale="sum"), equal)
    b, _ = run_with_memory(FedNew(rho=0.1, alpha=0.05), equal)
    np.testing.assert_allclose(a.coefficients, b.coefficients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("wire", ["float64", "float32"])
@pytest.mark.parametrize("method", [FedNew(0.3), FedNew(20.0, 3.0, scale="sum"), QFedNew(0.3)], ids=["mean", "sum", "q"])
def test_the_weighted_sum_of_the_duals_stays_zero(method, wire):
    for rounds in (2, 6):
        _, cohort = run_with_memory(method, make_shards(weighted=True), rounds, wire)
        dual = cohort.memory.arrays["fednew_dual"]
        assert np.abs(dual).max() > 1e-3
        np.testing.assert_allclose(cohort.weights @ dual, 0, atol=1e-14)


@pytest.mark.slow
def test_fednew_converges():
    history, _ = run_with_memory(FedNew(1.0, 0.1), make_shards(), rounds=300)
    assert history.gradient_norm[-1] < 1e-8


@pytest.mark.slow
def test_an_absent_client_keeps_its_dual():
    history, _ = run_with_memory(FedNew(1.0, 0.1), make_shards(), rounds=30, participation=0.6)
    assert np.isfinite(history.objective).all() and history.objective[-1] < history.objective[0]
    history, _ = run_with_memory(QFedNew(1.0, 0.1, bits=6), make_shards(), rounds=30, participation=0.6)
    assert history.objective[-1] < history.objective[0]


def test_quantiser_is_unbiased():
    """4000 draws of 50 numbers: each mean within 5 standard errors, sqrt(f (1-f)) levels each: one false alarm in 35 000."""
    random = np.random.default_rng(1)
    draws = 4000
    vector = random.normal(size=50)
    for bits in (1, 3, 8):
        codes, radius = quantise(np.tile(vector, (draws, 1)), bits, random.random((draws, 50)))
        assert codes.max() < 2**bits
        gap = 2 * float(radius[0]) / (2**bits - 1)
        assert radius[0] == pytest.approx(np.abs(vector).max(), rel=1e-6) and radius[0] >= np.abs(vector).max()
        f = ((vector + radius[0]) / gap) % 1
        found = dequantise(codes, radius, bits)
        assert (np.abs(found - vector) <= gap * (1 + 1e-9)).all()
        assert (np.abs(found.mean(axis=0) - vector) <= 5 * gap * np.sqrt(f * (1 - f) / draws) + 1e-12).all()


def test_codes_survive_packing_and_fill_their_bytes():
    random = np.random.default_rng(2)
    for bits in (1, 3, 5, 8, 11, 16):
        codes = random.integers(0, 2**bits, size=(4, 37)).astype(np.uint16)
        packed = pack_codes(codes, bits)
        assert packed.dtype == np.uint8 and packed.shape == (4, -(-bits * 37 // 8))
        np.testing.assert_array_equal(unpack_codes(packed, bits, 37), codes)


def test_quantising_nothing_gives_nothing():
    codes, radius = quantise(np.zeros((2, 5)), 3, np.full((2, 5), 0.4))
    np.testing.assert_array_equal(dequantise(codes, radius, 3), 0.0)


@pytest.mark.parametrize("refresh", [1, 0])
def test_qfednew_is_its_iteration(refresh):
    """The random numbers are the clients' own; everything else is written out again."""
    from fedns.numerics.rng import stream_keys

    shards = make_shards(weighted=True)
    plain = Plain(PROBLEM, shards)
    rho, alpha, bits = 0.3, 0.05, 3
    history, cohort = run_with_memory(QFedNew(rho, alpha, refresh=refresh), shards)
    w = y = np.zeros(plain.M)
    dual, sent = np.zeros((5, plain.M)), np.zeros((5, plain.M))
    for t in range(ROUNDS):
        if t == 0 or refresh:
            H = plain.hessians(w) + np.diag(plain.penalty) + (rho + alpha) * np.eye(plain.M)
        g = plain.gradients(w) + plain.penalty * w
        change = np.linalg.solve(H, (g - dual + rho * y)[:, :, None])[:, :, 0] - sent
        for j, key in enumerate(stream_keys(0, "qfednew quantiser", t + 1, np.arange(5))):
            R = np.nextafter(np.float32(np.abs(change[j]).max()), np.float32(np.inf)).astype(float)
            at = (change[j] + R) / (2 * R) * (2**bits - 1)
            u = np.random.Generator(np.random.Philox(key=key)).random(plain.M)
            sent[j] += (np.floor(at) + (u < at % 1)) * 2 * R / (2**bits - 1) - R
        y = plain.p @ sent
        dual += rho * (sent - y)
        w = w - y
    np.testing.assert_allclose(history.coefficients, w, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(cohort.memory.arrays["fednew_sent"], sent, rtol=1e-9, atol=1e-10)


def test_messages_are_as_small_as_they_claim():
    features, clients = 14, 5
    for bits in (1, 3, 8):
        history, _ = run_with_memory(QFedNew(bits=bits), make_shards())
        sent = np.diff(history.uplink_bytes) / clients
        assert (sent == sent[0]).all()
        assert 0 < sent[0] - (-(-bits * features // 8) + 4) < 60  # the header
    history, _ = run_with_memory(FedNew(), make_shards())
    assert 0 < np.diff(history.uplink_bytes)[0] / clients - 8 * features < 60


@pytest.mark.parametrize(
    "settings", [{"rho": 0.0}, {"alpha": -1.0}, {"refresh": -1}, {"scale": "median"}, {"bits": 0}, {"bits": 17}]
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        QFedNew(**settings)


@pytest.mark.slow
def test_too_little_damping_ends_in_words():
    history, _ = run_with_memory(FedNew(rho=1e-6, alpha=0.0), make_shards(300, 13, (20,) * 15), rounds=200)
    assert np.isfinite(history.objective).all() and np.isfinite(history.coefficients).all()
    assert history.stop_reason


@pytest.mark.parametrize("method", [FedNew(), FedNew(refresh=2, scale="sum"), QFedNew()])
def test_states_can_be_written_and_read_back(method):
    assert_checkpoint_continues(method, PROBLEM, make_shards())


def test_rounds_on_real_data(real_data):
    """61 rounds and 4125 numbers per client on phishing, (rho, alpha) = (0.01, 0.01) on mean losses."""
    problem, dataset = fedns.Problem(penalty=fedns.Ridge(1e-3)), real_data("phishing")
    rounds = []
    for seed in range(3):
        shards = fedns.split_dataset(dataset, 40, "iid", seed)
        history = fedns.simulate(FedNew(), problem, shards, rounds=90, tol=1e-10)
        rounds.append(history.round[-1])
        numbers = history.uplink_bytes[-1] / 40 / 8
        assert 0 < numbers - 68 * rounds[-1] < 6 * rounds[-1] + 12  # headers
    assert abs(np.mean(rounds) - 61) <= 6
