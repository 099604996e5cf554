"""An engine is what its entry of the registry says and nothing more: a whole federation over one written here."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import InProcess, one_client

import fedns
from fedns.cli.serving import serve_site
from fedns.core.errors import ConfigError
from fedns.core.registry import Registry
from fedns.federation import config
from fedns.federation.coordinator.session import coordinate
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.protocol.transport import Engine
from fedns.federation.provision import init_federation
from fedns.federation.site_command import run_site
from fedns.federation.transports import BUILT_IN, TRANSPORTS
from fedns.runs.builder import algorithm_of, problem_of

SHARDS = make_shards(sizes=(90, 60, 150))
SITES = ["east", "north", "west"]


class Postman:
    """Keeps no connection: sites that were started are functions of bytes."""

    def __init__(self):
        self.services = {}
        self.calls = []

    def provision(self, folder, sites, host, port):
        self.calls.append((host, port))
        for name in ("office", *sites):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "stamp").write_text(name)
        return folder / "office", {site: folder / site for site in sites}

    def serve(self, credentials, service, path):
        self.services[(credentials / "stamp").read_text()] = service(path)

    @contextmanager
    def open(self, credentials, listen, logs):
        self.calls.append(((credentials / "stamp").read_text(), listen))
        yield InProcess(self.services)


@pytest.fixture
def postman(monkeypatch):
    carrier = Postman()
    engine = Engine("postman", "json", carrier.provision, carrier.serve, carrier.open)
    missing = Engine("pigeon", "no_such_package", carrier.provision, carrier.serve, carrier.open)
    monkeypatch.setattr(config, "TRANSPORTS", Registry("engine", "fedns.none", Engine, (engine, missing)))
    return carrier


def test_a_federation_over_an_engine_of_ones_own(postman, tmp_path):
    init_federation(tmp_path, "postman", SITES, "localhost:9")
    for number, name in enumerate(SITES):
        folder, mine = tmp_path / "sites" / name, one_client(SHARDS, number)
        np.savez(folder / "rows.npz", X=mine.rows.values, y=mine.targets)
        (folder / "site.toml").write_text(f'name = "{name}"\nengine = "postman"\n[data]\ndataset = "rows.npz"\n')
        run_site(folder / "site.toml", serve_site)
    read = config.read_experiment(tmp_path / "coordinator" / "experiment.toml")
    spec = replace(read, method="fednewton", rounds=3, gradient_tol=None)
    with open_transport(spec, logs=tmp_path / "logs") as transport:
        there = coordinate(spec, transport).history
    here = fedns.simulate(algorithm_of(spec), problem_of(spec), SHARDS, rounds=3, seed=spec.seed)
    assert there.coefficients.tobytes() == here.coefficients.tobytes() and there.ledger == here.ledger
    assert postman.calls == [("localhost", 9), ("office", "127.0.0.1:9")]
    assert (spec.home / "credentials" / "stamp").read_text() == "office"


def test_an_engine_that_is_not_installed_is_a_sentence(postman, tmp_path):
    with pytest.raises(ConfigError, match=r"the engine pigeon is not installed: pip install 'fedns\[pigeon\]'"):
        init_federation(tmp_path, "pigeon", SITES, "localhost:9")
    with pytest.raises(ConfigError, match="unknown engine 'postmann': did you mean postman"):
        init_federation(tmp_path, "postmann", SITES, "localhost:9")


def test_our_own_are_registered_by_their_names():
    assert [TRANSPORTS[engine.name] for engine in BUILT_IN] == list(BUILT_IN)
