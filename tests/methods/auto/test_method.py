"""auto: the pooled answer from a few bits a number."""

import itertools

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.conftest import dense_features, make_shards
from tests.federation.in_process import Federation, run_of

import fedns
from fedns.core.cohort import Session
from fedns.core.errors import MessageError
from fedns.core.shards import Shards
from fedns.methods.auto import rounding
from fedns.methods.auto.exchanges import sketch_plan
from fedns.methods.auto.rounding import eighths, exponents_of, round_at_random, round_to_nearest
from fedns.methods.auto.rules import Rules
from fedns.methods.auto.sources import EXACT_HESSIANS, HESSIANS, OWN_HESSIANS, SOME_ROOTS
from fedns.methods.auto.turn import Turn
from fedns.models.losses import LOSSES
from fedns.numerics.rng import stream_keys
from fedns.runs.over_sites import Policy
from fedns.simulation.simulator import SimulatedCohort

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-3))


def many_columns(clients: int, *, rows: int = 3000, columns: int = 70, seed: int = 0) -> Shards:
    """Correlated columns whose sizes differ by factors of up to a million."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, columns)) @ (np.eye(columns) + 0.3 * random.normal(size=(columns, columns)))
    targets = np.where(features @ random.normal(size=columns) / 8 + random.logistic(size=rows) > 0, 1.0, -1.0)
    sizes = np.full(clients, rows // clients)
    return Shards.from_arrays(features * 10.0 ** random.uniform(-3, 3, columns), targets, sizes)


@pytest.mark.parametrize("prefer", ["bytes", "balanced", "rounds"])
@pytest.mark.parametrize("clients", [4, 40])
def test_it_reaches_the_optimum_of_badly_scaled_columns(prefer, clients):
    shards = many_columns(clients)
    history = fedns.simulate(fedns.Auto(prefer=prefer), PROBLEM, shards, rounds=60, tol=1e-12)
    assert history.converged, history.stop_reason


@pytest.mark.parametrize(
    ("clients", "prefer", "source"),
    [(4, "bytes", OWN_HESSIANS), (40, "bytes", SOME_ROOTS), (4, "rounds", HESSIANS)],
)
def test_where_the_metric_comes_from(clients, prefer, source):
    history = fedns.simulate(fedns.Auto(prefer=prefer), PROBLEM, many_columns(clients), rounds=3)
    assert {record.diagnostics["source"] for record in history.records[1:]} == {float(source.number)}


def test_it_agrees_with_scikit_learn():
    shards = make_shards(weighted=True)
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=True)
    history = fedns.simulate(fedns.Auto(), problem, shards, rounds=60, gradient_tol=1e-12)
    total = shards.sample_weights.sum()
    oracle = LogisticRegression(C=1 / (total * 1e-2), solver="newton-cholesky", tol=1e-12)
    oracle.fit(dense_features(shards), shards.targets, shards.sample_weights)
    expected = np.append(oracle.coef_, oracle.intercept_)
    np.testing.assert_allclose(history.coefficients, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("clients", [4, 40])
def test_it_sends_less_than_every_other_method(clients):
    shards = many_columns(clients)
    optimum = fedns.pooled_optimum(PROBLEM, shards)

    def sent(method):
        history = fedns.simulate(method, PROBLEM, shards, rounds=100, tol=1e-10, optimum=optimum, wire="float32")
        return history.uplink_bytes[-1] if history.converged else np.inf

    rivals = [fedns.FedNewton(), fedns.FedNS(fedns.SRHT(16)), fedns.FedNDES(fedns.SRHT(16)), fedns.GIANT(), fedns.LBFGS()]
    assert sent(fedns.Auto()) < 0.5 * min(map(sent, rivals))


def test_for_few_rounds_it_is_newtons_method_in_half_the_bytes():
    shards = many_columns(10)
    optimum = fedns.pooled_optimum(PROBLEM, shards)
    ours, newton = (
        fedns.simulate(method, PROBLEM, shards, rounds=50, tol=1e-10, optimum=optimum, wire="float32")
        for method in (fedns.Auto(prefer="rounds"), fedns.FedNewton())
    )
    assert ours.round[-1] <= newton.round[-1] + 1
    assert ours.uplink_bytes[-1] < 0.5 * newton.uplink_bytes[-1]


@pytest.mark.parametrize("clients", [4, 40])
def test_between_the_two_it_is_within_half_as_much_again_of_the_rounds_and_of_the_bytes(clients):
    shards = many_columns(clients)
    optimum = fedns.pooled_optimum(PROBLEM, shards)
    few, both, fast = (
        fedns.simulate(fedns.Auto(prefer=prefer), PROBLEM, shards, rounds=60, tol=1e-10, optimum=optimum)
        for prefer in ("bytes", "balanced", "rounds")
    )
    assert both.round[-1] < few.round[-1] and both.round[-1] <= 1.5 * fast.round[-1]
    assert both.uplink_bytes[-1] <= 1.5 * few.uplink_bytes[-1]


@pytest.mark.slow
def test_a_start_far_away_converges():
    shards = make_shards()
    optimum = fedns.pooled_optimum(PROBLEM, shards)
    start = 1000 * np.linalg.norm(optimum.coefficients) * np.ones(13) / np.sqrt(13)
    for prefer in ("bytes", "rounds"):
        history = fedns.simulate(fedns.Auto(prefer=prefer), PROBLEM, shards, rounds=100, tol=1e-10, start=start)
        assert history.converged, history.stop_reason


@pytest.mark.slow
def test_part_of_the_clients_at_a_time_reaches_the_optimum_of_all():
    history = fedns.simulate(fedns.Auto(), PROBLEM, many_columns(20, columns=30), rounds=150, tol=1e-8, participation=0.7)
    assert history.converged, history.stop_reason


def gap_where_some_are_away(federation, shards, away):
    """Of a run in which the sites with the numbers away(round) do not answer; all are there before the first round."""

    def before(site, exchange):
        number = federation.cohort.session.round if hasattr(federation, "cohort") else 0
        return "no answer within 1 s" if number and int(site.removeprefix("site-")) in away(number) else ""

    federation.transport.before = before
    history = federation.start(watched=False)
    problem = fedns.Problem(penalty=fedns.Ridge(federation.spec.strength))
    best = fedns.pooled_optimum(problem, shards)
    return problem.evaluate(history.coefficients, shards).objective - best.value


@pytest.mark.slow
def test_three_of_ten_sites_absent_in_every_round_count_as_they_were(tmp_path):
    shards, random = make_shards(sizes=(30,) * 10), np.random.default_rng(0)
    federation = Federation(shards, tmp_path, run_of("auto", 10, rounds=40), Policy(absent="reuse"))
    away = [set(random.choice(10, 3, replace=False).tolist()) for _ in range(41)]
    assert gap_where_some_are_away(federation, shards, away.__getitem__) < 1e-8


@pytest.mark.slow
def test_a_round_goes_on_without_those_who_were_to_solve(tmp_path):
    shards = many_columns(4, rows=600)
    federation = Federation(shards, tmp_path, run_of("auto", 4, rounds=30), Policy(absent="reuse"))
    pairs = list(itertools.combinations(range(4), 2))
    assert gap_where_some_are_away(federation, shards, lambda number: pairs[number % 6] if number <= 12 else ()) < 1e-8


def test_roots_of_hessians_have_the_same_bits_at_sites_and_in_the_simulator(tmp_path):
    shards = many_columns(4, rows=600, columns=30)
    federation = Federation(shards, tmp_path, run_of("auto:prefer=balanced", 4, rounds=5))
    problem = fedns.Problem(penalty=fedns.Ridge(federation.spec.strength), intercept=True)
    at_sites = federation.start(watched=False)
    simulated = fedns.simulate(fedns.Auto(prefer="balanced"), problem, shards, rounds=5, seed=federation.spec.seed)
    assert simulated.records[1].note.startswith("asked some clients for the roots of their Hessians in 4 bits, because")
    assert at_sites.coefficients.tobytes() == simulated.coefficients.tobytes()
    assert at_sites.uplink_bytes.tolist() == simulated.uplink_bytes.tolist()


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_run_that_gives_up_has_the_same_bits_at_sites_and_in_the_simulator(loss, monkeypatch, tmp_path):
    """The bytes that were sent decide, which both know alike."""
    monkeypatch.setattr(Rules, "cost_of_hessians", lambda self, *about: 300.0)
    shards = many_columns(4, rows=600, columns=30)
    federation = Federation(shards, tmp_path, run_of("auto", 4, rounds=12, loss=loss))
    at_sites = federation.start(watched=False)
    problem = fedns.Problem(LOSSES[loss](), fedns.Ridge(federation.spec.strength), intercept=True)
    simulated = fedns.simulate(fedns.Auto(), problem, shards, rounds=12, seed=federation.spec.seed, optimum="find")
    changed = [record.round for record in simulated.records if "bytes a client are spent" in record.note]
    sources = [record.diagnostics["source"] for record in simulated.records[changed[0] + 1 :]]
    assert len(changed) == 1 and set(sources) == {float((EXACT_HESSIANS if loss == "squared" else HESSIANS).number)}
    assert simulated.records[-1].suboptimality < 1e-10
    assert at_sites.coefficients.tobytes() == simulated.coefficients.tobytes()
    assert at_sites.uplink_bytes.tolist() == simulated.uplink_bytes.tolist()


def test_a_product_is_the_hessian_times_the_vector_as_it_was_heard():
    shards, method = many_columns(40), fedns.Auto(prefer="balanced")
    cohort = SimulatedCohort(shards, Session(PROBLEM, 0))
    turn = Turn(method.client, method, PROBLEM, cohort, method.init(PROBLEM, cohort))
    turn.learn_scales()
    turn.take_the_last_step()
    heard, product = turn.product(np.ones(70) / turn.scales)
    features = dense_features(shards)
    expected = features.T @ (features @ heard) / 4 / len(features) + 1e-3 * heard  # the curvature is 1/4 at zero
    np.testing.assert_allclose(heard * turn.scales, 1.0, rtol=1e-3)
    error = np.abs(product - expected) / turn.scales
    assert error.max() < 0.05 * np.abs(expected / turn.scales).max()


def test_clients_sketch_by_their_weights():
    shards = make_shards(sizes=(200, *(5,) * 20))
    sizes = sketch_plan(PROBLEM, shards, 3, float(shards.total_weights.mean())).sizes
    assert sizes.tolist() == [24, *[1] * 20]  # 42, but no more than eight times the mean


@pytest.mark.parametrize(("rows", "weight"), [(0, 1.0), (-3, 1.0), (2**28, 1.0), (3, 0.0), (3, np.nan), (3, np.inf)])
def test_a_client_makes_no_sketch_that_is_out_of_proportion(rows, weight):
    with pytest.raises(MessageError, match="was asked for: 1 to 70 can be had"):
        sketch_plan(PROBLEM, many_columns(4), rows, weight)


@pytest.mark.parametrize("bits", [-3, 0, 1, 17, 2**31 - 1])
def test_a_client_rounds_to_two_to_sixteen_bits(bits):
    with pytest.raises(MessageError, match="2 to 16"):
        round_at_random(np.ones((1, 3)), bits, stream_keys(0, "test", 0, [0]))


def test_rounding_at_random_has_the_right_mean_and_never_overflows():
    values = np.random.default_rng(0).normal(size=(1, 50)) * 10.0 ** np.arange(50)[None] / 1e40
    draws = [round_at_random(values, 6, stream_keys(seed, "test", 0, [0])) for seed in range(4000)]
    assert max(np.abs(integers).max() for integers, _ in draws) == 31
    means = np.mean([integers * float(unit[0]) for integers, unit in draws], axis=0)
    assert np.abs(means - values).max() < 6 * 0.5 * float(draws[0][1][0]) / np.sqrt(4000)  # six standard errors


def test_compiled_rounding_is_the_rounding_of_arrays_to_the_last_bit(monkeypatch):
    values = np.random.default_rng(0).normal(size=(4, 500)) * np.array([[1.0], [1e-9], [1e9], [0.0]])
    keys = stream_keys(1, "test", 2, np.arange(4))
    compiled, units = round_at_random(values, 10, keys)
    monkeypatch.setattr(rounding, "COMPILED", False)
    integers, same_units = round_at_random(values, 10, keys)
    np.testing.assert_array_equal(compiled, integers)
    np.testing.assert_array_equal(units, same_units)


def test_units_and_exponents():
    integers, unit = round_to_nearest(np.array([1.0, -0.5, 0.0]), 8)
    np.testing.assert_allclose(integers * unit, [1.0, -0.5, 0.0], atol=0.5 * unit)
    assert round_to_nearest(np.zeros(3), 8)[0].tolist() == [0, 0, 0]
    np.testing.assert_allclose(eighths(np.array([-9, -8, 0, 3, 8], np.int16)), 2.0 ** (np.array([-9, -8, 0, 3, 8]) / 8))
    assert exponents_of(np.array([1.0, 4.0, 1e-6, 0.0])).tolist() == [0, 1, -10, -40]


def test_settings_are_checked():
    with pytest.raises(fedns.ConfigError, match="prefer of Auto must be"):
        fedns.Auto(prefer="speed")
    with pytest.raises(fedns.ConfigError, match="gradient_bits of Auto must be a whole number from 2 to 16 or None, got 1"):
        fedns.Auto(gradient_bits=1)
