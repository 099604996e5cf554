"""Sites that are late, gone or wrong: what each policy makes of it."""

import numpy as np
import pytest
from tests.federation.in_process import Federation, run_of

import fedns
from fedns.core.shards import Shards
from fedns.federation.coordinator import cohort as networked
from fedns.federation.coordinator import link
from fedns.numerics import parallel
from fedns.runs.builder import problem_of
from fedns.runs.over_sites import Policy

SITES = 10


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(link, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(networked, "PAUSE_SECONDS", 0.0)


def unlike_sites() -> Shards:
    """Ten sites of unequal size whose labels and columns are distributed differently."""
    random = np.random.default_rng(3)
    sizes = [40, 60, 80, 100, 120, 50, 70, 90, 110, 80]
    rows = [random.normal(loc=0.3 * site / SITES, size=(size, 4)) for site, size in enumerate(sizes)]
    truth = random.normal(size=4)
    targets = [np.where(x @ truth + random.logistic(size=len(x)) + 0.1 * (j - 5) > 0, 1.0, -1.0) for j, x in enumerate(rows)]
    return Shards.from_arrays(np.concatenate(rows), np.concatenate(targets), sizes)


def absent_at_random(federation, fraction, seed):
    """In each round after the start, this part of the sites does not answer."""
    random, away = np.random.default_rng(seed), {}

    def before(site, exchange):
        number = federation.cohort.session.round if hasattr(federation, "cohort") else 0
        if number == 0:
            return ""
        if number not in away:
            away[number] = set(random.choice(SITES, size=round(fraction * SITES), replace=False))
        return "no answer within 1 s" if int(site.removeprefix("site-")) in away[number] else ""

    federation.transport.before = before


def gap(federation, history, shards):
    problem = problem_of(federation.spec)
    best = fedns.pooled_optimum(problem, shards)
    return problem.evaluate(history.coefficients, shards).objective - best.value


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 100), marks=pytest.mark.nightly)], ids=["10", "90"])
@pytest.mark.parametrize(
    "fraction", [pytest.param(0.1, marks=pytest.mark.nightly), 0.3, pytest.param(0.5, marks=pytest.mark.nightly)]
)
def test_reusing_the_last_curvature_reaches_the_optimum_of_all_sites(fraction, seeds, tmp_path):
    shards, rounds = unlike_sites(), {0.1: 12, 0.3: 20, 0.5: 40}[fraction]
    gaps = []
    for seed in seeds:
        spec = run_of("fedns", SITES, seed=seed, rounds=rounds, sketch_size=6)
        federation = Federation(shards, tmp_path / str(seed), spec, Policy(absent="reuse"))
        absent_at_random(federation, fraction, seed)
        with parallel.threads(1):
            gaps.append(gap(federation, federation.start(watched=False), shards))
    assert max(gaps) < 1e-6


def test_renormalising_does_not(tmp_path):
    """Why the report states which objective was optimised: over those present, each round pulls to another optimum."""
    shards = unlike_sites()
    federation = Federation(shards, tmp_path, run_of("fedns", SITES, rounds=20), Policy(absent="renormalise"))
    absent_at_random(federation, 0.3, 0)
    history = federation.start()
    assert gap(federation, history, shards) > 1e-6
    assert [record.diagnostics["sites_present"] for record in history.records[1:]] == [7.0] * 20
    assert {event["event"] for event in federation.events} >= {"away", "round_lost"}
