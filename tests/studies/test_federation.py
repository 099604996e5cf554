"""A coordinator from Python: several runs and fits while the sites stay, with sites in this process or as processes."""

import asyncio
import contextlib
import importlib.util

import pytest
from tests.conftest import make_shards
from tests.federation.in_process import InProcess, run_of, services

import fedns
from fedns.federation.provision import init_federation
from fedns.lab.comparison.federation_demo import Demo, _simulated, prepare, site_processes
from fedns.studies import federation as module

SHARDS = make_shards(sizes=(150, 150))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A federation on paper; its sites are in this process."""
    pytest.importorskip("cryptography")
    init_federation(tmp_path / "trial", "flower", run_of("gd", 2).sites, "localhost:9092")
    transport = InProcess({name: site.answer for name, site in services(SHARDS, tmp_path / "state").items()})
    opened = []
    monkeypatch.setattr(
        module, "open_transport", lambda spec, logs: opened.append(spec) or contextlib.nullcontext(transport)
    )
    yield tmp_path / "trial"
    assert len(opened) <= 1  # one engine for all runs


def test_runs_follow_one_another_and_are_those_of_the_simulator(folder):
    with fedns.Federation(folder) as federation:
        federation.wait()
        assert federation.sites == ("site-0", "site-1")
        first = federation.run(method="fednewton", rounds=3, gradient_tol=None)
        second = federation.run(method="fednewton", rounds=5, gradient_tol=None, out="longer")
    spec = run_of("fednewton", 2, strength=1e-3, seed=0)
    problem = fedns.Problem(fedns.Logistic(), fedns.Ridge(spec.strength), intercept=True)
    for history, rounds, out in ((first, 3, "run-1"), (second, 5, "longer")):
        here = fedns.simulate(fedns.FedNewton(), problem, SHARDS, rounds=rounds)
        assert history.coefficients.tobytes() == here.coefficients.tobytes()
        assert (folder / "coordinator" / out / "report.html").is_file()


def test_it_works_inside_an_event_loop(folder):
    async def notebook():
        with fedns.Federation(folder / "coordinator") as federation:
            one = federation.run(rounds=2)
            return one, await asyncio.to_thread(federation.run, rounds=2)

    one, other = asyncio.run(notebook())
    assert one.coefficients.tobytes() == other.coefficients.tobytes()


def test_what_cannot_be_is_said(folder, tmp_path):
    with pytest.raises(fedns.ConfigError, match=r"has no experiment\.toml: give the folder"):
        fedns.Federation(tmp_path / "nowhere")
    federation = fedns.Federation(folder)
    with pytest.raises(fedns.ConfigError, match="is not open: use it in a block"):
        federation.run()
    with federation:
        with pytest.raises(fedns.ConfigError, match="sites: no settings of a run over sites"):
            federation.run(sites=("site-0",))
        with pytest.raises(fedns.ConfigError, match="open already"):
            federation.__enter__()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flower", "nvflare"])
def test_real_sites_serve_two_runs_without_a_restart(engine, tmp_path):
    if importlib.util.find_spec({"flower": "flwr"}.get(engine, engine)) is None:
        pytest.skip(f"{engine} is not installed")
    shards = prepare(Demo(engine, tmp_path / "f", sites=2))
    with site_processes(tmp_path / "f") as processes, fedns.Federation(tmp_path / "f") as federation:
        for method in ("fednewton", "fednl"):
            history = federation.run(method=method, rounds=3, gradient_tol=None)
            spec = run_of(method, 2, strength=1e-3, seed=0, rounds=3)
            assert history.coefficients.tobytes() == _simulated(spec, shards).coefficients.tobytes()
        assert all(process.poll() is None for process in processes.values())
