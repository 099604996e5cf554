"""A thousand rounds over five sites: the engine's process holds at the end what it held after a hundred."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.federation.test_real_processes import engine_child
from tests.processes import PATIENCE_SECONDS

from fedns.federation.config import EXPERIMENT_FILE, SITE_FILE, read_experiment
from fedns.federation.coordinator.session import coordinate
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.coordinator.watching import Watcher
from fedns.lab.comparison.federation_demo import Demo, prepare, site_processes
from fedns.runs.over_sites import Policy

ROUNDS, SITES = 1000, 5


class Gauge(Watcher):
    """Threads, open files and resident bytes of the engine's process, the most of the rounds around a chosen one."""

    def __init__(self, at):
        self.at, self.found = at, {}

    def on_round(self, record, state):
        for middle in self.at:
            if abs(record.round - middle) <= 10:
                self.found[middle] = tuple(map(max, self.found.get(middle, (0, 0, 0)), held(engine_child())))


def held(process):
    facts = Path(f"/proc/{process}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in facts)
    return int(values["Threads"]), len(list(Path(f"/proc/{process}/fd").iterdir())), int(values["VmRSS"].split()[0])


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="what a process holds is read from /proc")
def test_an_engine_holds_no_more_after_a_thousand_rounds(engine, tmp_path):
    prepare(Demo(engine, tmp_path / "f", sites=SITES))
    for file in (tmp_path / "f" / "sites").glob(f"*/{SITE_FILE}"):
        file.write_text(file.read_text() + f"rounds = {ROUNDS}\n")
    policy = Policy(timeout_seconds=60.0, patience_seconds=PATIENCE_SECONDS)
    experiment = replace(
        read_experiment(tmp_path / "f" / "coordinator" / EXPERIMENT_FILE),
        method="gd",
        rounds=ROUNDS,
        gradient_tol=None,
        policy=policy,
    )
    gauge = Gauge(at=(100, ROUNDS - 10))
    with site_processes(tmp_path / "f"), open_transport(experiment, logs=tmp_path / "logs") as transport:
        coordinate(experiment, transport, watchers=[gauge])
    (threads, files, kilobytes), (later_threads, later_files, later_kilobytes) = gauge.found.values()
    assert later_threads <= 1.05 * threads + 10 and later_files <= 1.05 * files + 10, gauge.found
    assert later_kilobytes <= 1.05 * kilobytes + 20_000, gauge.found
