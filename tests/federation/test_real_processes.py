"""Whole federations as a user starts them: a coordinator, sites as processes of their own, TLS and keys, on loopback."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from tests.processes import PATIENCE_SECONDS, family_of, start, wait_until

from fedns.core.history import History
from fedns.federation.config import EXPERIMENT_FILE, SITE_FILE, read_experiment
from fedns.federation.coordinator.session import coordinate
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.coordinator.watching import Watcher
from fedns.federation.processes import free_port
from fedns.lab.comparison.federation_demo import Demo, _simulated, prepare, run_demo, site_processes, start_demo_site
from fedns.runs.over_sites import Policy


@contextlib.contextmanager
def nobody(method):
    yield []


def test_the_demonstration_gives_the_simulators_bits_and_bytes(engine, tmp_path):
    demo = Demo(engine, tmp_path / "federation", methods=("fedns", "fedndes", "fednl", "fedavg", "auto"), rounds=6)
    shown = list(run_demo(demo, nobody))
    assert [one.method for one in shown] == list(demo.methods)
    assert all(one.same_bits and one.same_bytes for one in shown)
    assert all(one.report.is_file() for one in shown)
    for site in ("site-1", "site-2", "site-3"):
        state = tmp_path / "federation" / "sites" / site / "state"
        assert state.stat().st_mode & 0o777 == 0o700
        written = [path for path in state.rglob("*") if path.is_file() and "rows" not in path.parts]
        assert written and all(path.stat().st_mode & 0o077 == 0 for path in written), written
        lines = (state / "ledger.jsonl").read_text().splitlines()
        sent = sum(line["bytes"] for line in map(json.loads, lines) if line["kind"] == "SketchedCurvature")
        admitted = [json.loads(line) for line in (shown[0].report.parent / "ledger.jsonl").read_text().splitlines()]
        admitted += [json.loads(line) for line in (shown[1].report.parent / "ledger.jsonl").read_text().splitlines()]
        assert sent == sum(m["bytes"] for m in admitted if m["kind"] == "SketchedCurvature" and m["site"] == site)


class Gremlin(Watcher):
    """Kills, stops and restarts sites at chosen moments of a run."""

    def __init__(self, folder, processes):
        self.folder, self.processes = folder, processes
        self.statuses, self.deeds, self.threads = [], {}, []  # deeds are done while their round runs
        self.before_round = {}  # and these before it begins
        self.ended = False

    def on_start(self, statuses):
        self.statuses = statuses

    def on_round(self, record, state):
        self.before_round.get(record.round + 1, lambda: None)()
        if record.round + 1 in self.deeds:
            thread = threading.Thread(target=self.deeds[record.round + 1])
            thread.start()
            self.threads.append(thread)

    def on_end(self, history):
        self.ended = True
        for thread in self.threads:
            thread.join()

    def until(self, site, state):
        """Wait until the coordinator sees the site in a state."""
        status = self.statuses[int(site[-1]) - 1]
        wait_until(lambda: status.state == state or self.ended, f"{site} is {state}", 0.0005)

    def kill(self, site):
        os.killpg(self.processes[site].pid, signal.SIGKILL)
        self.processes[site].wait()

    def restart(self, site):
        """Start it anew once it is missed, so that it cannot be back before anybody noticed."""
        self.until(site, "away")
        self.processes[site] = start_demo_site(self.folder / "sites" / site)

    def stop(self, site):
        self._signal(site, signal.SIGSTOP)

    def go_on(self, site):
        self._signal(site, signal.SIGCONT)

    def _signal(self, site, number):
        """To all of a site: what answers may be a process that it started, in a session of its own."""
        for pid in family_of(self.processes[site].pid):
            os.kill(pid, number)

    def kill_while_asked(self, site):
        """A stopped site cannot answer: it is killed with the question in its hands."""
        self.until(site, "asked")
        children = family_of(self.processes[site].pid)[1:]
        self.kill(site)
        for child in children:  # stopped as it is, it would not notice
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.restart(site)

    def kill_once_answered(self, site, other):
        """The other one is stopped, so that the round cannot end meanwhile."""
        self.until(other, "asked")
        self.until(site, "answered")
        self.kill(site)
        self.go_on(other)
        self.restart(site)


def federation(engine, folder, **settings):
    shards = prepare(Demo(engine, folder))
    experiment = replace(read_experiment(folder / "coordinator" / EXPERIMENT_FILE), gradient_tol=None, **settings)
    return experiment, shards


@pytest.mark.parametrize("method", ["fednl", pytest.param("auto", marks=pytest.mark.nightly)])
def test_killed_stopped_and_restarted_sites_change_nothing(engine, method, tmp_path):
    """Both keep at every site what the server believes of it: a lost or doubled update would show."""
    policy = Policy(timeout_seconds=4.0, absent="wait", patience_seconds=PATIENCE_SECONDS)
    experiment, shards = federation(engine, tmp_path / "f", method=method, rounds=10, policy=policy)
    logs = tmp_path / "logs"
    with site_processes(tmp_path / "f") as processes, open_transport(experiment, logs=logs) as transport:
        gremlin = Gremlin(tmp_path / "f", processes)
        gremlin.before_round = {
            2: lambda: gremlin.kill("site-2"),
            4: lambda: gremlin.stop("site-3"),
            5: lambda: gremlin.stop("site-1"),
            7: lambda: gremlin.stop("site-1"),
        }
        gremlin.deeds = {
            2: lambda: gremlin.restart("site-2"),  # killed before it was asked,
            4: lambda: gremlin.kill_while_asked("site-3"),
            5: lambda: gremlin.kill_once_answered("site-2", other="site-1"),
            7: lambda: (gremlin.until("site-1", "away"), gremlin.go_on("site-1")),
        }
        result = coordinate(experiment, transport, watchers=[gremlin])
    here = _simulated(experiment, shards)
    assert result.history.coefficients.tobytes() == here.coefficients.tobytes()
    assert [r.uplink_bytes for r in result.history.records] == [r.uplink_bytes for r in here.records]
    events = [json.loads(line) for line in (experiment.folder / "log.jsonl").read_text().splitlines()]
    away = {event["site"] for event in events if event["event"] == "away"}
    assert away == {"site-1", "site-2", "site-3"}


def test_a_site_that_stays_away_is_left_out_and_named(engine, tmp_path):
    policy = Policy(timeout_seconds=10.0, quorum=2, absent="renormalise")
    experiment, _ = federation(engine, tmp_path / "f", method="fedns", rounds=5, sketch_size=64, policy=policy)
    with site_processes(tmp_path / "f") as processes, open_transport(experiment, logs=tmp_path / "logs") as transport:
        gremlin = Gremlin(tmp_path / "f", processes)
        gremlin.before_round = {3: lambda: gremlin.kill("site-3")}
        result = coordinate(experiment, transport, watchers=[gremlin])
    records = result.history.records
    assert [record.diagnostics.get("sites_present") for record in records[3:]] == [2.0] * 3
    assert result.statuses[2].state == "away"


def engine_child():
    """The process of SuperLink, or of NVFlare's server, that this process has started."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            command = (process / "cmdline").read_bytes()
            if parent == os.getpid() and (b"flower.superlink" in command or b"server_train" in command):
                return int(process.name)
    return None


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="processes are looked for in /proc")
def test_a_killed_engine_is_started_again_and_changes_nothing(engine, tmp_path, caplog):
    policy = Policy(timeout_seconds=60.0, absent="wait", patience_seconds=PATIENCE_SECONDS)
    experiment, shards = federation(engine, tmp_path / "f", method="fednl", rounds=5, policy=policy)
    port, seen, file = free_port(), {}, tmp_path / "f" / "sites" / "site-2" / SITE_FILE
    file.write_text(f"metrics_port = {port}\n" + file.read_text())
    with site_processes(tmp_path / "f") as processes, open_transport(experiment, logs=tmp_path / "logs") as transport:
        gremlin = Gremlin(tmp_path / "f", processes)
        gremlin.before_round = {
            3: lambda: os.kill(engine_child(), signal.SIGKILL),
            5: lambda: seen.update(numbers_of(port)),  # a site's own, which has not ended
        }
        result = coordinate(experiment, transport, watchers=[gremlin])
    assert result.history.coefficients.tobytes() == _simulated(experiment, shards).coefficients.tobytes()
    assert "it is started again" in caplog.text
    assert seen["fedns_connected"] == 1 and seen["fedns_heard"] > 0 and seen["fedns_requests_refused_total"] == 0
    assert seen["fedns_requests_answered_total"] >= 11  # opened, registered, and twice for each of four rounds and the start
    events = [json.loads(line) for line in (experiment.folder / "log.jsonl").read_text().splitlines()]
    assert any("it was started again" in event.get("reason", "") for event in events)


def numbers_of(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split("{")[0]: float(line.split()[-1]) for line in lines if not line.startswith("#")}


MANY = 30  # rounds: more than a coordinator makes before it is killed, where whoever does so gets no core for a while


def lines_of(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


def start_coordinator(experiment_file, *flags):
    command = [sys.executable, "-m", "fedns.cli", "coordinate", str(experiment_file), *flags]
    return start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("method", ["fednl", pytest.param("auto", marks=pytest.mark.nightly)])
def test_a_killed_coordinator_resumes_to_the_same_bits(engine, method, tmp_path):
    folder = tmp_path / "f"
    experiment, shards = federation(engine, folder, method=method, rounds=MANY)
    file = folder / "coordinator" / EXPERIMENT_FILE
    text = file.read_text().replace('method = "auto"', f'method = "{method}"').replace("rounds = 100", f"rounds = {MANY}")
    file.write_text(text.replace("gradient_tol = 1e-8", "gradient_tol = 0.0"))
    rounds = experiment.folder / "rounds.jsonl"
    with site_processes(folder):
        for flags in ((), ("--resume",)):
            process = start_coordinator(file, *flags)
            enough = lines_of(rounds) + 3
            wait_until(lambda: lines_of(rounds) >= enough or process.poll() is not None, "three rounds are made")  # noqa: B023
            process.kill()
            output, _ = process.communicate()
            assert process.returncode == -signal.SIGKILL, output
        process = start_coordinator(file, "--resume")
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    history = History.load(experiment.folder / "history.jsonl")
    here = _simulated(experiment, shards)
    assert history.coefficients.tobytes() == here.coefficients.tobytes(), output
    assert history.ledger == here.ledger


def processes_naming(text):
    """Command lines of living processes that hold this text, or whose folder does."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            said = (process / "cmdline").read_bytes().decode(errors="replace") + str((process / "cwd").readlink())
            if text in said and int(process.name) != os.getpid():
                found.append(said)
    return found


def without_a_network(command):
    """The command where there is no network but loopback, or as it is where namespaces are not permitted."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rn", "true"], check=False).returncode != 0:
        return command
    raise_flag = "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 0x49))"  # SIOCSIFFLAGS: lo is up
    up = f'{sys.executable} -c "import fcntl, socket, struct; {raise_flag}"'
    return ["unshare", "-rn", "sh", "-c", f"{up} && exec {shlex.join(command)}"]


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="processes are looked for in /proc")
def test_with_loopback_alone_it_works_and_ctrl_c_ends_it_and_everything_it_started(engine, tmp_path):
    folder = tmp_path / "f"
    command = [sys.executable, "-m", "fedns.cli", "demo-federation", "--engine", engine]
    command += ["--methods", "all", "--rounds", "2", "--out", str(folder)]
    process = start(without_a_network(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seen = []
    for line in process.stdout:
        seen.append(line)
        if len([one for one in seen if one.startswith("round 1 ")]) == 2:  # the second method's: the first is done
            break
    assert len(processes_naming(str(folder))) > 3, seen
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert processes_naming(str(folder)) == []
    assert any(line.startswith("round 2 ") for line in seen)
