"""What a run takes of memory is known before any of it is taken: many columns, sparse, with every method."""

import re
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from tests.conftest import make_shards
from tests.federation.in_process import OPEN_HANDED, Federation, Given, one_client, run_of

import fedns
from fedns.core.cohort import Session
from fedns.core.errors import ConfigError
from fedns.core.refusals import refuse_too_large
from fedns.core.shards import Shards
from fedns.federation.protocol.packets import OPEN, REFUSAL, Packet
from fedns.federation.site.service import SiteService
from fedns.methods.auto import thresholds
from fedns.methods.auto.metric import Metric
from fedns.models import reference
from fedns.numerics import memory
from fedns.numerics.linalg import LowRank, triangle_of
from fedns.runs.methods import parse_method
from fedns.simulation.simulator import SimulatedCohort

COLUMNS, GIGABYTE = 50_000, 10**9
PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-3), intercept=True)
USUAL = ("auto", "auto:prefer=rounds", "fednewton", "fedns", "giant", "lbfgs")
OTHERS = [name for name in (*fedns.METHODS, "auto:prefer=balanced") if name not in USUAL]
SENTENCE = (
    r"^{name} needs about [\d.]+ GB of memory for 50001 coefficients, and there are 4 GB: take auto, which needs [\d.]+ GB$"
)


@pytest.fixture(scope="module")
def wide() -> Shards:
    random = np.random.default_rng(0)
    features = scipy.sparse.random(160, COLUMNS, density=0.002, random_state=1, format="csr")
    return fedns.split(features, random.choice([-1.0, 1.0], 160), clients=4, how="iid", seed=0)


@pytest.fixture
def four_gigabytes(monkeypatch):
    monkeypatch.setattr(memory, "machine", lambda: 4 * GIGABYTE)


@pytest.mark.parametrize("text", [*USUAL, *(pytest.param(name, marks=pytest.mark.nightly) for name in OTHERS)])
def test_fifty_thousand_columns_take_what_was_said_or_are_refused_in_a_sentence(text, wide, four_gigabytes):
    method = parse_method(text).algorithm
    cohort = SimulatedCohort(wide.pooled() if method.pooled else wide, Session(PROBLEM, 0))
    needed = cohort.bytes_needed(method)
    tracemalloc.start()
    try:
        history = fedns.simulate(method, PROBLEM, wide, rounds=2)
    except ConfigError as error:
        assert needed > 4 * GIGABYTE and re.match(SENTENCE.format(name=method.name), str(error))
    else:
        assert needed <= 4 * GIGABYTE and len(history.records) >= 2
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < min(needed, 4 * GIGABYTE) + 0.1 * GIGABYTE  # little where it is refused: nothing was tried


def test_what_fits_is_what_is_recommended(wide):
    """What the sentence names is reckoned for these clients, and says so where nothing is left."""

    def refused(limit, bytes_of):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(ConfigError) as error:
            patch.setattr(memory, "machine", lambda: limit)
            refuse_too_large(fedns.FedNewton(), bytes_of, COLUMNS)
        return str(error.value)

    cohort = SimulatedCohort(wide, Session(PROBLEM, 0))
    auto, lbfgs = cohort.bytes_needed(fedns.Auto()), cohort.bytes_needed(fedns.LBFGS())
    assert lbfgs < auto < cohort.bytes_needed(fedns.FedNewton())
    assert "take auto, which" in refused(auto, cohort.bytes_needed)
    assert "take lbfgs, which" in refused(auto - 1, cohort.bytes_needed)
    assert refused(lbfgs - 1, cohort.bytes_needed).endswith("take fewer columns")


def test_whoever_starts_a_run_is_told_before_it(monkeypatch, tmp_path):
    shards, random = make_shards(), np.random.default_rng(0)
    rows, targets = random.normal(size=(60, 3)), random.choice([0, 1], 60)
    monkeypatch.setattr(memory, "machine", lambda: 1000)
    with pytest.raises(ConfigError, match=r"fednewton needs about .* take fewer columns"):
        fedns.simulate(fedns.FedNewton(), PROBLEM, shards, rounds=2, optimum="find")
    with pytest.raises(ConfigError, match=r"needs about .* and there are 1e-06 GB"):
        fedns.FederatedLogisticRegression().fit(rows, targets, sites=np.arange(60) % 3)
    with pytest.raises(ConfigError, match="fednewton needs about"):
        Federation(shards, tmp_path, run_of("fednewton", shards.num_clients)).start()
    site = SiteService("site-0", Given(one_client(shards, 3), compiling=True), OPEN_HANDED, tmp_path / "own")
    opened = Packet.decode(site.answer(Packet(OPEN, bytes(16), 1, 1, 0, 0, run_of("fednewton", 1).agreed()).encode()))
    assert opened.kind == REFUSAL and b"fednewton needs about" in opened.body


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        fedns.Problem(fedns.Poisson(), fedns.Ridge(1e-2), intercept=True),
        fedns.Problem(fedns.Softmax(classes=3), fedns.Ridge(1e-2)),
    ],
    ids=lambda problem: problem.loss.name,
)
def test_the_pooled_optimum_is_the_same_without_a_hessian(problem, monkeypatch):
    shards = make_shards(columns=8)
    targets = {"logistic": shards.targets, "poisson": np.arange(300.0) % 4, "softmax": np.arange(300.0) % 3}
    scales = 10.0 ** np.arange(-3, 5)
    shards = Shards.from_arrays(shards.rows.values * scales, targets[problem.loss.name], [300])
    with_it = fedns.pooled_optimum(problem, shards)
    monkeypatch.setattr(reference, "_WIDE", 0)
    without = fedns.pooled_optimum(problem, shards)
    assert without.value == pytest.approx(with_it.value, abs=1e-12)
    margins = [
        shards.rows.values @ one.coefficients.reshape(-1, one.coefficients.size)[:, :8].T for one in (with_it, without)
    ]
    if problem.loss.outputs == 1:
        np.testing.assert_allclose(*margins, atol=1e-8)


def test_a_metric_of_few_rows_solves_as_the_matrix_does():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(6, 30)), random.normal(size=(6, 30))
    scales, penalty = 2.0 ** random.integers(-3, 3, 30), np.append(np.full(29, 1e-2), 0.0)
    low = Metric().averaged_with(LowRank(first)).averaged_with(LowRank(second))
    matrices = [triangle_of(rows.T @ rows) for rows in (first, second)]
    whole = Metric().averaged_with(matrices[0]).averaged_with(matrices[1])
    assert not low.triangle.size and low.weight == whole.weight == 1.5
    vector = random.normal(size=30)
    solved = low.solver(scales, penalty, definite=True)(vector)
    np.testing.assert_allclose(solved, whole.solver(scales, penalty, definite=True)(vector), rtol=1e-7)
    for _ in range(9):
        low = low.averaged_with(LowRank(first))
    assert len(low.rows) == 6 * 3
    free = low.solver(scales, np.zeros(30), definite=True)(vector)  # nothing tells of most directions
    assert np.isfinite(free).all() and free @ vector > 0


@pytest.mark.parametrize("prefer", ["bytes", "balanced"])
def test_auto_makes_no_matrix_where_there_are_many_columns(prefer, monkeypatch):
    monkeypatch.setattr(thresholds, "WIDE", 40)
    shards = make_shards(rows=400, columns=200, sizes=(100,) * 4)
    history = fedns.simulate(fedns.Auto(prefer), PROBLEM, shards, rounds=120, tol=1e-9, wire="float64")
    assert history.converged, history.stop_reason
    assert {record.diagnostics["source"] for record in history.records[1:]} == {3.0}  # sketches


@pytest.mark.parametrize("number", [65_535, 65_536])
def test_clients_that_short_headers_cannot_number_are_refused(number):
    """Both sides of what sixteen bits hold; the simulator would send what no site could."""
    shards = Shards.from_arrays(np.ones((number, 1)), np.ones(number), np.ones(number, dtype=np.int64))
    problem = fedns.Problem(fedns.Squared(), fedns.Ridge(1.0))
    if number == 65_535:
        assert fedns.simulate(fedns.Auto(), problem, shards, rounds=1).records[-1].round == 1
    else:
        sentence = "the messages of auto are for up to 65535 clients, not 65536: take lbfgs"
        with pytest.raises(ConfigError, match=sentence):
            fedns.simulate(fedns.Auto(), problem, shards, rounds=1)
        assert fedns.simulate(fedns.LBFGS(), problem, shards, rounds=1).records[-1].round == 1


def test_rounds_that_short_headers_cannot_number_are_refused():
    with pytest.raises(ConfigError, match="the messages of auto are for up to 65535 rounds, not 65536: take lbfgs"):
        fedns.simulate(fedns.Auto(), PROBLEM, make_shards(), rounds=65_536)
    assert fedns.simulate(fedns.Auto(), PROBLEM, make_shards(), rounds=65_535, gradient_tol=1.0).converged
    assert fedns.simulate(fedns.LBFGS(), PROBLEM, make_shards(), rounds=65_536, gradient_tol=1.0).converged
