"""Estimators over a federation in place of rows: the same numbers, with sites in this process or as processes."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from tests.conftest import make_shards
from tests.federation.in_process import OPEN_HANDED, InProcess, run_of, services

import fedns
from fedns.federation.provision import init_federation
from fedns.lab.comparison.federation_demo import Demo, prepare, site_processes
from fedns.studies import federation as module
from fedns.studies.serving.columns import without_study

SHARDS = make_shards(sizes=(150, 150))
X = np.concatenate([block for client in range(2) for _, _, block in SHARDS.blocks(client)])
SITES = np.repeat([0, 1], 150)


TIMES = np.where(np.arange(300) % 3 == 0, -1.0, 1.0) * np.ceil(
    5 * np.exp(0.3 * SHARDS.targets - 0.5 * X[:, 0]) + 2 * X[:, 1] ** 2
)


def opened(shards, folder, monkeypatch, permissions=None):
    """An open federation whose sites are in this process."""
    pytest.importorskip("cryptography")
    init_federation(folder / "trial", "flower", run_of("gd", 2).sites, "localhost:9092")
    sites = services(shards, folder / "state", permissions, build=without_study)
    transport = InProcess({name: site.answer for name, site in sites.items()})
    monkeypatch.setattr(module, "open_transport", lambda spec, logs: contextlib.nullcontext(transport))
    return fedns.Federation(folder / "trial")


@pytest.fixture
def federation(tmp_path, monkeypatch):
    with opened(SHARDS, tmp_path, monkeypatch) as running:
        yield running


def test_a_classifier_finds_what_it_finds_from_the_rows(federation):
    there = fedns.FederatedLogisticRegression(C=0.7).fit(federation)
    here = fedns.FederatedLogisticRegression(C=0.7).fit(X, SHARDS.targets, sites=SITES)
    assert there.coef_.tobytes() == here.coef_.tobytes() and there.intercept_.tobytes() == here.intercept_.tobytes()
    assert np.array_equal(there.predict(X), here.predict(X)) and there.n_iter_ == here.n_iter_
    for kind in ("model", "HC0", "site"):
        assert there.summary(kind) == here.summary(kind) and there.history_.converged


@pytest.mark.parametrize(
    "make",
    [
        lambda: fedns.FederatedRidge(alpha=3.0),
        lambda: fedns.FederatedRidge(alpha=0.0, fit_intercept=False),
        lambda: fedns.FederatedGLM("gaussian", alpha=0.1),
        lambda: fedns.FederatedGLM("gaussian"),
    ],
)
def test_regressors_too_with_what_their_coefficients_are_worth(make, federation):
    there, here = make().fit(federation), make().fit(X, SHARDS.targets, sites=SITES)
    assert there.predict(X).tobytes() == here.predict(X).tobytes()
    for kind in ("model", "HC1", "site"):
        assert there.inference_.standard_errors(kind).tobytes() == here.inference_.standard_errors(kind).tobytes()
    assert there.summary() == here.summary() and "P>|t|" in there.summary()


def test_least_squares_over_sites_are_those_of_statsmodels(federation):
    fit = fedns.FederatedGLM("gaussian").fit(federation)
    rival = sm.OLS(SHARDS.targets, np.column_stack([X, np.ones(300)])).fit()
    assert np.append(fit.coef_, fit.intercept_) == pytest.approx(rival.params, abs=1e-9)
    assert fit.inference_.standard_errors() == pytest.approx(rival.bse, rel=1e-7)
    assert fit.inference_.residual_df == rival.df_resid
    assert fit.inference_.standard_errors("HC1") == pytest.approx(rival.get_robustcov_results("HC1").bse, rel=1e-7)


def test_links_that_are_not_canonical_have_standard_errors_too(federation):
    there = fedns.FederatedGLM("binomial", link="probit").fit(federation)
    here = fedns.FederatedGLM("binomial", link="probit").fit(X, SHARDS.targets, sites=SITES)
    assert there.inference_.standard_errors().tobytes() == here.inference_.standard_errors().tobytes()


def test_times_until_an_event(tmp_path, monkeypatch):
    shards = fedns.Shards.from_arrays(X, TIMES, [150, 150])
    here = fedns.FederatedCox().fit(X, TIMES, sites=SITES)
    with opened(shards, tmp_path, monkeypatch) as federation:
        there = fedns.FederatedCox().fit(federation)
    assert there.coef_.tobytes() == here.coef_.tobytes() and there.intercept_ == 0.0
    assert there.summary() == here.summary() and there.summary("HC0") == here.summary("HC0")
    rival = sm.PHReg(np.abs(TIMES), X, status=(TIMES > 0).astype(int), strata=SITES, ties="efron").fit(disp=0)
    assert there.coef_ == pytest.approx(rival.params, abs=1e-5)
    assert there.score(X, TIMES) == here.score(X, TIMES)


def test_the_ledger_has_every_byte_that_the_meter_counts(federation):
    fit = fedns.FederatedRidge(alpha=0.0).fit(federation)
    (ledger,) = federation.experiment.home.glob("run-*/ledger.jsonl")
    lines = [line for line in map(json.loads, ledger.read_text().splitlines()) if line["kind"] != "Opening"]
    meter = fit.meter_
    assert sum(line["bytes"] for line in lines) == meter.uplink_bytes + meter.downlink_bytes + meter.evaluation_bytes
    assert "look_at_fit" in {line["purpose"] for line in lines}


def test_a_fit_is_a_run_like_any_other_with_its_rounds_and_its_end(federation):
    fit = fedns.FederatedGLM("gaussian").fit(federation)
    (folder,) = federation.experiment.home.glob("run-*")
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["objective"] for line in rounds] == [record.objective for record in fit.history_.records]
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    (ended,) = [event for event in events if event["event"] == "ended"]
    assert ended["converged"] and ended["reason"] == fit.ending_
    assert [site["name"] for site in json.loads((folder / "sites.json").read_text())] == list(federation.sites)


def test_what_an_owner_does_not_permit_costs_only_what_it_was_for(tmp_path, monkeypatch):
    own = replace(OPEN_HANDED, handlers=("register", "curvature", "evaluate_locally", "information", "losses_along"))
    with opened(SHARDS, tmp_path, monkeypatch, own) as federation:
        fit = fedns.FederatedLogisticRegression().fit(federation)
        assert fit.inference_.standard_errors().all()
        with pytest.raises(fedns.DataError, match="does not permit 'look_at_fit'"):
            fit.summary("HC0")
        with pytest.raises(fedns.DataError, match="does not permit 'look_at_fit'"):
            fedns.FederatedRidge().fit(federation).summary()


def test_without_the_expected_information_the_observed_one_is_taken_and_that_is_said(tmp_path, monkeypatch):
    handlers = ("register", "curvature", "evaluate_locally", "information", "losses_along", "look_at_null", "look_at_fit")
    with opened(SHARDS, tmp_path, monkeypatch, replace(OPEN_HANDED, handlers=handlers)) as federation:
        there = fedns.FederatedGLM("binomial", link="probit").fit(federation)
    here = fedns.FederatedGLM("binomial", link="probit").fit(X, SHARDS.targets, sites=SITES)
    assert there.coef_.tobytes() == here.coef_.tobytes()
    observed = np.diag(np.linalg.inv(there.inference_.information)) ** 0.5
    assert there.inference_.standard_errors() == pytest.approx(observed, rel=1e-9)
    assert "note: the expected information is not known" in there.summary() and "note" not in here.summary()


def test_what_cannot_be_is_said(federation):
    with pytest.raises(fedns.ConfigError, match="their own targets and weights"):
        fedns.FederatedRidge().fit(federation, SHARDS.targets)
    with pytest.raises(fedns.ConfigError, match="no settings of a run"), federation.cohort(colour="red"):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flower", "nvflare"])
def test_over_real_sites(engine, tmp_path):
    if importlib.util.find_spec({"flower": "flwr"}.get(engine, engine)) is None:
        pytest.skip(f"{engine} is not installed")
    shards = prepare(Demo(engine, tmp_path / "f", sites=2))
    rows = np.concatenate([block for client in range(2) for _, _, block in shards.blocks(client)])
    here = fedns.FederatedLogisticRegression().fit(rows, shards.targets, sites=np.repeat([0, 1], shards.sizes))
    with site_processes(tmp_path / "f"), fedns.Federation(tmp_path / "f") as federation:
        there = fedns.FederatedLogisticRegression().fit(federation)
    assert there.coef_.tobytes() == here.coef_.tobytes()
