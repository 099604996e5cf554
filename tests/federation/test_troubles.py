"""Troubles of operation on real processes, each with the words and the time in which it must be told.

What they took is printed (`pytest -m nightly -s`); docs/operations.md lists it.
"""

import json
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks.wire import Wire
from tests.federation.test_real_processes import numbers_of, start_coordinator
from tests.processes import PATIENCE_SECONDS, wait_until

from fedns import __version__
from fedns.core.history import History
from fedns.federation.config import CREDENTIALS_FOLDER, EXPERIMENT_FILE, read_experiment
from fedns.federation.processes import free_port
from fedns.lab.comparison.federation_demo import Demo, _simulated, prepare, site_processes

pytestmark = pytest.mark.nightly


@pytest.fixture
def folder(engine, tmp_path):
    prepare(Demo(engine, tmp_path / "f", sites=2))
    return tmp_path / "f"


def experiment(folder, **settings):
    """The file of the experiment, with settings of its own."""
    file = folder / "coordinator" / EXPERIMENT_FILE
    text = file.read_text()
    for name, value in settings.items():
        text = re.sub(rf"^{name} = .*\n", "", text, flags=re.MULTILINE)
        text = f"{name} = {json.dumps(value)}\n{text}"  # above the first table
    file.write_text(text)
    return file


def ended(process):
    """The exit status of a coordinator and what it said."""
    said, _ = process.communicate(timeout=2 * PATIENCE_SECONDS)
    return process.returncode, said


def said_at(path, words):
    """What a site has said once these words are among it."""
    wait_until(lambda: path.exists() and words in path.read_text(), f"{path.parent.name} says: {words}")
    return path.read_text()


def test_a_run_that_diverges_says_so_and_ends(engine, folder):
    file = experiment(folder, method="fedns", sketch="srht", sketch_size=4, rounds=30)
    with site_processes(folder):
        status, said = ended(start_coordinator(file))
    assert status == 4 and "diverged in round" in said, said
    rounds = [json.loads(line) for line in (file.parent / "run" / "rounds.jsonl").read_text().splitlines()]
    print(f"{engine}: diverged, exit status 4, {rounds[-1]['seconds']:.1f} s after its first round")
    assert "diverged in round" in (file.parent / "run" / "report.html").read_text()
    assert (file.parent / "run" / "coefficients.csv").is_file()


def test_a_line_that_is_down_is_told_of_at_the_coordinator_and_in_its_numbers(engine, folder):
    file, port = experiment(folder, method="fednl", rounds=200, gradient_tol=0.0), free_port()
    own = int(re.search(r'listen = ".*:(\d+)"', file.read_text())[1])
    with Wire(own) as wire:
        for name in ("startup/fed_client.json", "site.toml"):
            for settings in folder.glob(f"sites/*/{CREDENTIALS_FOLDER}/{name}"):
                settings.write_text(settings.read_text().replace(f":{own}", f":{wire.port}"))
        with site_processes(folder):
            process = start_coordinator(file, "--metrics-port", str(port))
            rounds = file.parent / "run" / "rounds.jsonl"
            wait_until(lambda: rounds.exists() and rounds.read_text().count("\n") > 2, "rounds are made")
            assert numbers_of(port)["fedns_site_up"] == 1
            wire.quality.down, began = True, time.monotonic()
            wait_until(lambda: numbers_of(port)["fedns_site_up"] == 0, "the site is not up")
            told = time.monotonic() - began
            wire.quality.down = False
            wait_until(lambda: numbers_of(port)["fedns_site_up"] == 1, "the site is up again")
            process.terminate()
            status, said = ended(process)
    waiting = re.findall(r"waiting for (\d+) s: .*", said)
    print(f"{engine}: fedns_site_up 0 after {told:.0f} s, the coordinator's first line after {waiting[0]} s")
    assert status == 143 and told < 15 and int(waiting[0]) <= 6, said


def test_another_version_is_refused_at_once_and_both_are_named(engine, folder, tmp_path, monkeypatch):
    file = experiment(folder)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sitecustomize.py").write_text("import fedns\nfedns.__version__ = '0.0.9'\n")
    with monkeypatch.context() as older:
        older.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "old"), os.environ.get("PYTHONPATH", "")]))
        sites = site_processes(folder)
        sites.__enter__()
    try:
        began = time.monotonic()
        status, said = ended(start_coordinator(file))
    finally:
        sites.__exit__(None, None, None)
    print(f"{engine}: another version is refused after {time.monotonic() - began:.0f} s, start included")
    assert status in (2, 7) and "0.0.9" in said and __version__ in said and "same version at both ends" in said, said


def test_sites_with_another_kind_of_processor_move_the_last_digits_at_most(engine, tmp_path, monkeypatch):
    shards = prepare(Demo(engine, tmp_path / "f", sites=2))
    file = experiment(tmp_path / "f", method="fednewton", rounds=5, gradient_tol=0.0)
    with monkeypatch.context() as older:  # instructions of 2008, for the compiler and for BLAS
        older.setenv("NUMBA_CPU_NAME", "nehalem")
        older.setenv("OPENBLAS_CORETYPE", "Nehalem")
        sites = site_processes(tmp_path / "f")
        sites.__enter__()
    try:
        status, said = ended(start_coordinator(file))
    finally:
        sites.__exit__(None, None, None)
    assert status == 1, said
    there, here = History.load(file.parent / "run" / "history.jsonl"), _simulated(read_experiment(file), shards)
    moved = float(np.abs(there.coefficients - here.coefficients).max())
    print(f"{engine}: sites with another kind of processor move the coefficients by {moved:.1e} at most")
    assert moved < 1e-12


def test_what_is_written_while_waiting_and_in_a_run_without_trouble_is_little(engine, folder):
    file = experiment(folder)
    outputs = [folder / "sites" / f"site-{number}" / "output.txt" for number in (1, 2)]
    logs = lambda: sum(size_of(path) for site in folder.glob("sites/*") for path in written(site))  # noqa: E731
    with site_processes(folder):
        for output in outputs:
            said_at(output, "waits for a coordinator")
        before, seconds = logs(), 30.0
        time.sleep(seconds)
        daily = (logs() - before) / 2 * 86400 / seconds / 1e6
        status, said = ended(start_coordinator(file))
    assert status in (0, 3), said
    events = [json.loads(line) for line in (file.parent / "run" / "log.jsonl").read_text().splitlines()]
    troubles = [event for event in events if event["event"] in ("away", "rejected", "round_lost", "refused")]
    assert not troubles and "is not connected" not in (file.parent / "run" / "report.html").read_text()
    link = file.parent / "logs" / "superlink.log"
    errors = link.read_text().count("ERROR") if link.exists() else 0
    print(f"{engine}: a waiting site writes {daily:.1f} MB a day; {errors} errors in the engine's log of a run")
    assert daily < 5.0 and errors == 0


def written(site: Path) -> list[Path]:
    """The logs of a site."""
    return [site / "output.txt", *(site / CREDENTIALS_FOLDER).glob("*.txt")]


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
