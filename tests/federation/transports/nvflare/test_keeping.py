"""The process that keeps an NVFlare site running, and what the site's own process says before it ends."""

import json
import signal
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="nvflare is not installed")

from fedns.federation.processes import EngineError
from fedns.federation.protocol.transport import COORDINATOR
from fedns.federation.reachable import Contact, DistrustError
from fedns.federation.transports.nvflare import client, processes
from fedns.federation.transports.nvflare.client import SiteAnswers
from fedns.federation.transports.nvflare.processes import CONSOLE, REASON, REFUSED, keep_site_running, last_line


def test_the_last_words_are_the_last_that_begin_so(tmp_path):
    assert last_line(tmp_path) == last_line(tmp_path, REASON) == f"nothing was printed, see the logs in {tmp_path}"
    (tmp_path / CONSOLE).write_text("\n \n")
    assert last_line(tmp_path) == f"nothing was printed, see the logs in {tmp_path}"
    (tmp_path / CONSOLE).write_text(f"one\n{REASON}no table\n{REASON}no column \n  the last \n\n")
    assert last_line(tmp_path) == "the last" and last_line(tmp_path, REASON) == "no column"


class Children:
    """Processes that end at once, with these statuses; the clock goes on by so much while each lives."""

    def __init__(self, monkeypatch, folder, statuses, lives=0.0, then=lambda: None):
        self.statuses, self.waits, self.now, self.lives, self.then = list(statuses), [], 0.0, lives, then
        self.folder, self.stopped = folder, 0
        monkeypatch.setattr(processes, "start_site", self.start)
        monkeypatch.setattr(processes, "stop", self.stop)
        monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: self.now))
        event = threading.Event
        children = self

        class Stopping(event):
            def wait(self, seconds=None):
                children.waits.append(seconds)
                return self.is_set()

        monkeypatch.setattr(processes, "threading", SimpleNamespace(**{**vars(threading), "Event": Stopping}))

    def start(self, credentials, service, config):
        assert (credentials, service, config) == (self.folder, "a:b", self.folder / "c")
        status = self.statuses.pop(0)
        if not self.statuses:
            self.then()
        return SimpleNamespace(poll=lambda: status, returncode=status)

    def stop(self, process):
        self.stopped += 1
        self.now += self.lives

    def keep(self):
        keep_site_running(self.folder, "a:b", self.folder / "c")


def test_a_site_that_says_why_it_ends_is_not_started_again(monkeypatch, tmp_path):
    (tmp_path / CONSOLE).write_text(f"{REASON}the table is not there\nand a line of a library's\n")
    children = Children(monkeypatch, tmp_path, [1, REFUSED])
    with pytest.raises(EngineError, match=r"^the table is not there$"):
        children.keep()
    assert children.stopped == 2 and children.waits == [2.0]


@pytest.mark.parametrize(("lives", "waits"), [(60.0, [2, 4, 8, 16, 32, 60, 60, 60]), (61.0, [1] * 8)])
def test_a_site_that_crashes_is_started_again_ever_more_patiently(lives, waits, monkeypatch, tmp_path, capsys):
    (tmp_path / CONSOLE).write_text(f"{REASON}enough\n")
    children = Children(monkeypatch, tmp_path, [-9, *[1] * 7, REFUSED], lives)
    with pytest.raises(EngineError, match="enough"):
        children.keep()
    assert children.waits == waits
    lines = capsys.readouterr().out.splitlines()
    console = tmp_path / CONSOLE
    assert lines[0] == f"the NVFlare client ended with status -9, see {console}; it is started again in {waits[0]:g} s"
    assert len(lines) == 8


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_as_it_ends_anything_else(number, monkeypatch, tmp_path):
    """Also where the child has just said why it ends, and whoever gave the signal before does so again afterwards."""
    heard, before = [], signal.getsignal(number)
    signal.signal(number, lambda given, frame: heard.append(given))
    try:
        children = Children(monkeypatch, tmp_path, [REFUSED], then=lambda: signal.raise_signal(number))
        children.keep()
        assert heard == [number] and children.stopped == 1 and children.waits == []
        signal.raise_signal(number)
        assert heard == [number, number]
    finally:
        signal.signal(number, before)


class Ended(Exception):
    """In place of the end of a process."""


@pytest.fixture
def exits(monkeypatch):
    def leave(status):
        raise Ended(status)

    monkeypatch.setattr(client, "os", SimpleNamespace(_exit=leave))


def test_a_service_that_cannot_be_made_is_a_reason_to_end(exits, monkeypatch, capfd):
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    monkeypatch.setattr(CoreCell, "start", CoreCell.start)
    for given, words in (
        ("nowhere:build", "the service must be given as package.module:factory"),
        ("json:loads", "TypeError"),
    ):
        with pytest.raises(Ended, match=str(REFUSED)):
            SiteAnswers(given, "site.toml")
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith(REASON) and words in line


def test_a_site_says_once_whether_it_is_connected_and_ends_where_it_cannot_trust(exits, monkeypatch, capfd, caplog):
    caplog.set_level("INFO", "fedns.site")
    where = Contact("host", 1, None)
    states = iter(
        [(False, "refused"), (False, "refused"), (False, ""), (True, ""), (True, ""), (False, "refused"), (False, None)]
    )
    current = [next(states)]

    def reason(contact):
        assert contact is where
        if current[0][1] is None:
            raise DistrustError("the certificate cannot\nbe trusted")
        return current[0][1]

    seen = []

    def look(seconds):
        assert seconds == client.LOOK_SECONDS
        seen.append(COORDINATOR.connected)
        current[0] = next(states)

    monkeypatch.setattr(client, "contact", lambda folder: where)
    monkeypatch.setattr(client, "why_not_there", reason)
    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=look))
    with pytest.raises(Ended, match=str(REFUSED)):
        client._tell_of_connection("north", SimpleNamespace(is_cell_connected=lambda name: current[0][0]))
    assert [record.getMessage() for record in caplog.records] == [
        "north waits for a coordinator at host:1: refused",
        "north waits for a coordinator at host:1: it is there, but does not take this site in yet",
        "north is connected to host:1",
        "north waits for a coordinator at host:1: refused",
    ]
    assert seen == [False, False, False, True, True, False]
    assert capfd.readouterr().err == f"{REASON}the certificate cannot be trusted\n"


def test_what_is_written_for_a_site_lists_one_component_and_the_limits(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(processes, "_start", lambda *given, **options: started.append((given, options)))
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "fed_client.json").write_text(json.dumps({"client": {"fqsn": "north"}}))
    processes.start_site(tmp_path, "a:b", tmp_path / "c")
    resources = json.loads((tmp_path / "local" / "resources.json").read_text())
    assert [one["args"] for one in resources["components"]] == [{"service": "a:b", "config": str(tmp_path / "c")}]
    limits = json.loads((tmp_path / "local" / "comm_config.json").read_text())
    assert limits["allow_adhoc_conns"] is False and limits["streaming_max_blob_size"] == 512 << 20
    assert limits["streaming_chunk_size"] == 256 << 10 and limits["streaming_ack_progress_timeout"] == 120.0
    lengths = dict(map(tuple, limits["grpc"]["options"]))
    assert lengths == dict.fromkeys(("grpc.max_receive_message_length", "grpc.max_send_message_length"), 16 << 20)
    (((folder, command, told), options),) = started
    assert folder == tmp_path and "uid=north" in command and "secure_train=true" in command
    assert options["stdin"] == -1 and [int(told["FEDNS_OWNER"])] == options["pass_fds"]
