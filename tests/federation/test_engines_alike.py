"""How sites end, and what is said of those that are not there: the same over every engine."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.processes import PATIENCE_SECONDS, family_of, start, wait_until

from fedns.cli.app import main
from fedns.federation import reachable
from fedns.federation.config import CREDENTIALS_FOLDER, EXPERIMENT_FILE, SITE_FILE, engine_named
from fedns.federation.processes import free_port, listening, only_process
from fedns.federation.provision import init_federation

ROWS = np.random.default_rng(0).normal(size=(200, 3))


@pytest.fixture
def federation(engine, tmp_path):
    """A folder of two sites whose rows are there, and the port that they come to."""
    port = free_port()
    provisioned(engine, tmp_path / "f", port)
    return tmp_path / "f", port


def provisioned(engine, folder, port):
    init_federation(folder, engine, ["north", "south"], f"localhost:{port}")
    for name in ("north", "south"):
        home = folder / "sites" / name
        np.savez(home / "rows.npz", X=ROWS, y=np.where(ROWS[:, 0] > 0, 1.0, -1.0))
        (home / SITE_FILE).write_text(f'name = "{name}"\nengine = "{engine}"\n[data]\ndataset = "rows.npz"\n')


@contextlib.contextmanager
def site(folder, name="north"):
    """A site as its owner starts it; what it says is in a file beside its settings."""
    home = folder / "sites" / name
    with (home / "said.txt").open("wb") as said:
        command = [sys.executable, "-m", "fedns.cli", "site", str(home / SITE_FILE)]
        process = start(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield process, home / "said.txt"
    finally:
        process.kill()
        process.wait()


def refused(file, capfd, command="site"):
    """What a command says that ends at once."""
    with pytest.raises(SystemExit) as ended:
        main([command, str(file)])
    assert ended.value.code == 2
    return capfd.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.nightly)]
)
def test_a_site_runs_once_and_ends_as_it_is_told_to(number, status, federation, capfd):
    folder, _ = federation
    with site(folder) as (process, said):
        wait_until(lambda: "waits for a coordinator" in said.read_text(), "the site waits for its coordinator")
        assert "another process on this machine is site north already; end it first" in refused(
            folder / "sites" / "north" / SITE_FILE, capfd
        )
        family = family_of(process.pid)
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == status
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family), "all of the site has ended")
    with only_process(folder / "sites" / "north" / CREDENTIALS_FOLDER, "north"):  # its place is free again
        pass


def test_credentials_of_another_authority_end_a_site_and_are_named_at_the_coordinator(engine, federation, tmp_path, capfd):
    folder, port = federation
    provisioned(engine, tmp_path / "other", port)
    coordinator = folder / "coordinator" / CREDENTIALS_FOLDER
    with engine_named(engine).open(coordinator, f"127.0.0.1:{port}", tmp_path / "logs") as transport:

        def said_of_north() -> str:
            (arrival,) = transport.exchange({"north": b"?"}, PATIENCE_SECONDS)
            return arrival.failure

        assert said_of_north() == "it is not connected"
        wait_until(lambda: listening("127.0.0.1", port), "somebody listens")
        words = refused(tmp_path / "other" / "sites" / "north" / SITE_FILE, capfd)
        assert words.startswith("fedns: error: ") and "cannot be trusted" in words, words
        assert "unable to get local issuer certificate" in words
        expected = "it is not connected, and a visitor does not know this coordinator's authority"
        wait_until(lambda: said_of_north().startswith(expected), f"the coordinator says: {expected}", 0.1)


def test_a_certificate_that_has_ended_is_named_before_anything_is_started(federation, monkeypatch, capfd):
    folder, _ = federation
    now = time.time()
    monkeypatch.setattr(reachable.time, "time", lambda: now + 2 * 365 * 86400)
    words = refused(folder / "coordinator" / EXPERIMENT_FILE, capfd, "coordinate")
    assert words == "fedns: error: the certificate server.crt has expired: have it renewed with `fedns renew`"
