"""The doctor against planted faults: each is found and named, and what is in order is called so."""

import re
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fedns.cli.app import main
from fedns.cli.serving import table_of
from fedns.federation import doctor
from fedns.federation.config import SITE_FILE
from fedns.federation.processes import free_port
from fedns.federation.provision import init_federation
from fedns.federation.transports.flower import credentials as keys
from fedns.numerics import memory


def examine(path):
    return doctor.examine(path, table_of)


@pytest.fixture
def federation(tmp_path):
    """One site with a good table, and something on the coordinator's port that holds its certificate."""
    pytest.importorskip("cryptography")
    folder, port = tmp_path / "trial", free_port()
    init_federation(folder, "flower", ["north"], f"localhost:{port}")
    random = np.random.default_rng(0)
    rows = np.c_[random.normal(size=(200, 3)), random.integers(0, 2, 200)]
    np.savetxt(folder / "sites/north/data.csv", rows, delimiter=",", header="a,b,c,target", comments="")
    with coordinator(folder / "coordinator/credentials", port):
        yield folder


class coordinator:
    """Shakes hands with whoever comes, and says no more."""

    def __init__(self, credentials, port):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(credentials / "server.crt", credentials / "server.key")
        self.listener = socket.create_server(("127.0.0.1", port))
        self.thread = threading.Thread(target=self.listen, daemon=True)

    def listen(self):
        while True:
            try:
                visitor, _ = self.listener.accept()
            except OSError:
                return
            with visitor:
                try:
                    self.context.wrap_socket(visitor, server_side=True).close()
                except OSError:
                    continue

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


@pytest.fixture
def site(federation, monkeypatch):
    """The site's folder, and its faults; that a SuperLink knows its key is tried on a real one elsewhere."""
    monkeypatch.setattr("fedns.federation.transports.flower.client.why_not_admitted", lambda credentials: "")
    folder = federation / "sites/north"
    return folder, lambda: "\n".join(f"{f.what}: {f.fault}" for f in examine(folder / SITE_FILE) if f.fault)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_site_in_order_is_called_so(site, capsys):
    folder, faults = site
    assert faults() == ""
    with pytest.raises(SystemExit) as ended:
        main(["doctor", str(folder / SITE_FILE)])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0 and len(lines) > 10 and all(line.startswith("OK   ") for line in lines)


def test_a_table_larger_than_memory_is_no_fault_but_said(site):
    folder, faults = site
    with memory.limited(100):
        assert faults() == ""
        said = [finding.what for finding in examine(folder / SITE_FILE)]
    assert any(what.startswith("memory: the rows take") and "from disk" in what for what in said)


def expired(folder):
    days = timedelta(days=5)
    for name in ("coordinator/server.crt", "coordinator/server.key"):
        (folder / name).unlink(missing_ok=True)
    keys.provision(folder, ["north"], "localhost", 1, valid_for=days, starting=datetime.now(UTC) - 2 * days)
    return folder / "coordinator" / "server.crt"


def soon(credentials, folder, days):
    """An authority's certificate that ends in so many days, in place of the one in these credentials."""
    ends = datetime.now(UTC) + timedelta(days=days)
    made = keys.provision(folder, ["x"], "localhost", 1, valid_for=timedelta(days=100), starting=ends - timedelta(days=100))
    (credentials / "authority.crt").write_bytes((made.coordinator / "server.crt").read_bytes())


def file_port(file):
    (port,) = re.findall(r'listen = ".*(:\d+)"', file.read_text())
    return port


SITE_FAULTS = {
    "a setting that is unknown": (
        lambda f: edit(f / SITE_FILE, 'engine = "flower"', 'engine = "flowers"'),
        "did you mean flower",
    ),
    "no table": (lambda f: (f / "data.csv").unlink(), "data.csv' does not exist: 'dataset' in site.toml is a path"),
    "no such column": (lambda f: edit(f / SITE_FILE, 'target = "target"', 'target = "outcome"'), "table: .*outcome"),
    "too few rows": (
        lambda f: edit(f / SITE_FILE, "smallest_rows = 20", "smallest_rows = 500"),
        "limits: fewer rows than .* 500",
    ),
    "no state folder": (
        lambda f: (f / "state").write_text("a file"),
        "state can be written: .*ot a directory",
    ),
    "no credentials": (lambda f: (f / "credentials/site.toml").unlink(), "credentials: .* holds no credentials"),
    "a key that all can read": (lambda f: (f / "credentials/node.key").chmod(0o644), "private key: others .* chmod 600"),
    "an unknown host": (
        lambda f: edit(f / "credentials/site.toml", "localhost", "no-such-host.invalid"),
        "the name 'no-such-host.invalid' cannot be resolved",
    ),
    "a closed port": (
        lambda f: (f / "credentials/site.toml").write_text(f'site = "north"\nserver = "localhost:{free_port()}"\n'),
        "nobody listens there yet",
    ),
    "another authority": (
        lambda f: (f / "credentials/authority.crt").write_bytes(
            (keys.provision(f / "other", ["x"], "localhost", 1).coordinator / "authority.crt").read_bytes()
        ),
        "cannot be trusted: .*(self-signed|unable to get local issuer|signature failure)",
    ),
}


@pytest.mark.parametrize("fault", SITE_FAULTS)
def test_a_fault_of_a_site_is_found_and_named(fault, site):
    folder, faults = site
    plant, words = SITE_FAULTS[fault]
    plant(folder)
    assert re.search(words, faults(), re.DOTALL), faults()
    states = {finding.state for finding in examine(folder / SITE_FILE) if finding.fault}
    assert states == ({"WAIT"} if fault == "a closed port" else {"FIX"})


def test_a_coordinator_that_is_not_started_is_waited_for_and_a_certificate_that_holds_is_anothers_to_renew(site, capsys):
    folder, _ = site
    SITE_FAULTS["a closed port"][0](folder)
    soon(folder / "credentials", folder.parents[1] / "soon", days=9)
    found = {finding.what: finding.state for finding in examine(folder / SITE_FILE) if finding.fault}
    assert set(found.values()) == {"WAIT"} and "certificate authority.crt" in found
    with pytest.raises(SystemExit) as ended:
        main(["doctor", str(folder / SITE_FILE)])
    assert ended.value.code == 0 and "\nWAIT coordinator at localhost:" in capsys.readouterr().out
    soon(folder / "credentials", folder.parents[1] / "past", days=-1)
    assert any(finding.state == "FIX" and "expired" in finding.fault for finding in examine(folder / SITE_FILE))


def test_faults_of_a_coordinator_are_found_and_named(federation):
    file = federation / "coordinator" / "experiment.toml"

    def faults(state="FIX"):
        return "\n".join(f"{f.what}: {f.fault}" for f in examine(file) if f.state == state)

    assert faults() == "" and "this federation's coordinator is running there" in faults("WAIT")  # the fixture's
    edit(file, 'sites = ["north"]', 'sites = ["north", "east"]')
    assert "east have no key here" in faults()
    (federation / "coordinator/run").mkdir()
    (federation / "coordinator/run/checkpoint").touch()
    assert "it holds the run that is under way" in faults("WAIT") and "it holds" not in faults()
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        edit(file, file_port(file), f":{stranger.getsockname()[1]}")
        assert "is taken: another coordinator may be running" in faults()
        assert "it holds a run: go on with --resume" in faults() and faults("WAIT") == ""
    expired(federation / "authority")
    old = federation / "authority/coordinator/server.crt"
    (federation / "coordinator/credentials/server.crt").write_bytes(old.read_bytes())
    assert "certificate server.crt: the certificate server.crt has expired: have it renewed" in faults()
    edit(file, "[policy]", "[polocy]")
    assert "settings: " in faults()
    file.unlink()
    assert "experiment.toml can be read: " in faults()
