"""Estimators over a federation in place of rows: the same numbers, with sites in this process or as processes."""

from __future__ import annotations

import contextlib
import importlib.util

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import InProcess, run_of, services

import fedns
from fedns.comparison.federation_demo import Demo, prepare, site_processes
from fedns.federation.provision import init_federation
from fedns.studies import federation as module

SHARDS = make_shards(sizes=(150, 150))
X = np.concatenate([block for client in range(2) for _, _, block in SHARDS.blocks(client)])
SITES = np.repeat([0, 1], 150)


@pytest.fixture
def federation(tmp_path, monkeypatch):
    """An open federation whose sites are in this process."""
    pytest.importorskip("cryptography")
    init_federation(tmp_path / "trial", "flower", run_of("gd", 2).sites, "localhost:9092")
    transport = InProcess({name: site.answer for name, site in services(SHARDS, tmp_path / "state").items()})
    monkeypatch.setattr(module, "open_transport", lambda spec, logs: contextlib.nullcontext(transport))
    with fedns.Federation(tmp_path / "trial") as running:
        yield running


def test_a_classifier_finds_what_it_finds_from_the_rows(federation):
    there = fedns.FederatedLogisticRegression(C=0.7).fit(federation)
    here = fedns.FederatedLogisticRegression(C=0.7).fit(X, SHARDS.targets, sites=SITES)
    assert there.coef_.tobytes() == here.coef_.tobytes() and there.intercept_.tobytes() == here.intercept_.tobytes()
    assert np.array_equal(there.predict(X), here.predict(X)) and there.n_iter_ == here.n_iter_
    assert there.inference_.standard_errors() == pytest.approx(here.inference_.standard_errors(), rel=1e-10)
    assert there.summary() == here.summary() and there.history_.converged
    with pytest.raises(fedns.DataError, match="in studies alone"):
        there.summary("HC0")


def test_regressors_too(federation):
    for make in (lambda: fedns.FederatedRidge(alpha=3.0), lambda: fedns.FederatedGLM("gaussian", alpha=0.1)):
        there, here = make().fit(federation), make().fit(X, SHARDS.targets, sites=SITES)
        assert there.predict(X).tobytes() == here.predict(X).tobytes()


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
