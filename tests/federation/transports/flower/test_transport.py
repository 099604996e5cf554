"""The Flower transport on real processes and sockets of this machine, with TLS and keys."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.federation.transports.clock import Clock
from tests.processes import PATIENCE_SECONDS, start, wait_until

pytest.importorskip("flwr", reason="the Flower engine needs flwr: pip install 'fedns[flower]'")

import httpx
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StartRunRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.runtime import RuntimeHttpClient

from fedns.core.errors import ConfigError
from fedns.federation.processes import EngineError, free_port, listening
from fedns.federation.protocol.transport import Arrival
from fedns.federation.transports.flower import client
from fedns.federation.transports.flower.client import serve
from fedns.federation.transports.flower.credentials import contact, provision
from fedns.federation.transports.flower.processes import start_superlink
from fedns.federation.transports.flower.server import FlowerTransport, open_engine

HERE = Path(__file__).parent
SITES = ("north", "south", "west")


class Federation:
    """A coordinator's transport in this process, and a process for each site."""

    transport: FlowerTransport

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, site: str) -> None:
        credentials = self.folder / "sites" / site
        with (self.folder / f"{site}.log").open("ab") as log:
            command = [sys.executable, str(HERE / "echo_site.py"), str(credentials)]
            self.processes[site] = subprocess.Popen(command, stdout=log, stderr=log)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def await_sites(self, sites: Set[str] = frozenset(SITES)) -> None:
        wait_until(lambda: sites <= set(self.transport.connected()), f"{', '.join(sorted(sites))} are connected")

    def ask(self, requests: Mapping[str, bytes]) -> dict[str, Arrival]:
        arrivals = list(self.transport.exchange(requests, PATIENCE_SECONDS))
        assert len({arrival.site for arrival in arrivals}) == len(arrivals)
        return {arrival.site: arrival for arrival in arrivals}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder, port = tmp_path_factory.mktemp("federation"), free_port()
    provision(folder, [*SITES, "absent"], "127.0.0.1", port)
    whole = Federation(folder, port)
    try:
        for site in SITES:
            whole.start(site)  # before there is a coordinator: sites wait for it
        with open_engine(folder / "coordinator", f"127.0.0.1:{port}", folder / "run") as transport:
            whole.transport = transport
            whole.await_sites()
            yield whole
    finally:
        whole.end()


def test_every_site_answers(federation: Federation) -> None:
    arrivals = federation.ask({site: f"to {site}".encode() for site in SITES})
    assert {site: arrival.payload for site, arrival in arrivals.items()} == {
        site: f"to {site}".encode()[::-1] for site in SITES
    }
    assert all(0 < arrival.envelope_bytes < 2000 for arrival in arrivals.values())


def test_the_same_to_all_and_to_some(federation: Federation) -> None:
    assert {arrival.payload for arrival in federation.ask(dict.fromkeys(SITES, b"same")).values()} == {b"emas"}
    assert federation.ask({"west": b""})["west"].payload == b""
    assert federation.ask({}) == {}


def test_twenty_megabytes(federation: Federation) -> None:
    payload = os.urandom(20_000_000)
    assert federation.ask({"north": payload})["north"].payload == payload[::-1]


def test_an_exception_at_a_site_is_a_failure_that_tells_its_class_only(federation: Federation) -> None:
    arrivals = federation.ask({"north": b"fail", "south": b"fine"})
    assert arrivals["north"].failure == "its service failed with RuntimeError"
    assert arrivals["south"].payload == b"enif"


def test_sites_that_are_not_there_are_named(federation: Federation) -> None:
    arrivals = federation.ask({"absent": b"?", "nobody": b"?"})
    assert arrivals["absent"].failure == "it is not connected"
    assert arrivals["nobody"].failure.startswith("it has no key here")


def test_a_killed_site_fails_alone_and_answers_when_it_is_back(federation: Federation, clock: Clock) -> None:
    arrivals, requests = {}, {"north": b"sleep 600", "south": b"ab", "west": b"cd"}
    for arrival in federation.transport.exchange(requests, PATIENCE_SECONDS):
        arrivals[arrival.site] = arrival
        federation.processes["north"].kill()
        if arrivals.keys() == {"south", "west"}:
            clock.skip(PATIENCE_SECONDS)
    assert arrivals["north"].failure == f"no answer within {PATIENCE_SECONDS:g} s"
    assert (arrivals["south"].payload, arrivals["west"].payload) == (b"ba", b"dc")
    federation.processes["north"].wait()
    federation.start("north")
    federation.await_sites({"north"})  # on a busy machine SuperLink has given it up before it is back
    arrival = federation.ask({"north": b"again"})["north"]
    assert (arrival.payload, arrival.failure) == (b"niaga", "")


def test_what_a_killed_process_was_handed_is_handed_to_the_next(federation: Federation) -> None:
    federation.ask({"north": b"first"})  # and now its turn waits for the next question
    process = federation.processes["north"]
    process.send_signal(signal.SIGSTOP)  # so that it is handed the question and cannot look at it

    def replace() -> None:
        process.kill()
        process.wait()
        federation.start("north")

    with after(1.0, replace):
        arrival = federation.ask({"north": b"second"})["north"]
    assert (arrival.payload, arrival.failure) == (b"dnoces", "")


@contextmanager
def after(seconds: float, deed: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, deed)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_a_stopped_site_fails_alone_and_its_late_answer_is_dropped(federation: Federation, clock: Clock) -> None:
    federation.await_sites()
    process = federation.processes["south"]
    process.send_signal(signal.SIGSTOP)
    arrivals = []
    try:
        for arrival in federation.transport.exchange({"south": b"old", "west": b"ef"}, PATIENCE_SECONDS):
            arrivals.append(arrival)
            clock.skip(PATIENCE_SECONDS)
    finally:
        process.send_signal(signal.SIGCONT)
    west, south = arrivals
    assert (west.site, west.payload) == ("west", b"fe")
    assert (south.site, south.failure) == ("south", f"no answer within {PATIENCE_SECONDS:g} s")
    assert federation.ask({"south": b"new"})["south"].payload == b"wen"


def test_plaintext_is_refused(federation: Federation) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", federation.port, timeout=60)
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.request("GET", "/")
        connection.getresponse()
    connection.close()


def test_a_site_with_another_key_is_refused(federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LEASE_SECONDS", 0.1)
    provision(tmp_path, ["north"], "127.0.0.1", federation.port)
    credentials = contact(tmp_path / "sites" / "north")
    credentials.authority.write_bytes((federation.folder / "coordinator" / "authority.crt").read_bytes())
    with pytest.raises(EngineError, match="refuses site north: its key is not registered"):
        serve(credentials, bytes)


def test_nobody_but_the_coordinator_controls_the_superlink(federation: Federation) -> None:
    trust = ssl.create_default_context(cafile=str(federation.folder / "coordinator" / "authority.crt"))
    address = f"https://127.0.0.1:{federation.port}"
    with ControlHttpClient(address, verify=trust) as control:
        for call, request, status in (
            (control.ListNodes, ListNodesRequest(), "404"),  # the coordinator has no use for it either
            (control.RegisterNode, RegisterNodeRequest(), "401"),
            (control.StartRun, StartRunRequest(), "401"),
        ):
            with pytest.raises(httpx.HTTPStatusError, match=status):
                call(request)
    with RuntimeHttpClient(address, verify=trust) as runtime, pytest.raises(httpx.HTTPStatusError, match="401"):
        runtime.AcquireTask(AcquireTaskRequest())


def test_an_expired_certificate_is_refused_by_site_and_coordinator(tmp_path: Path) -> None:
    port = free_port()
    start = datetime.now(UTC) - timedelta(days=10)
    provision(tmp_path, ["north"], "127.0.0.1", port, valid_for=timedelta(days=5), starting=start)
    coordinator = contact(tmp_path / "coordinator")
    with pytest.raises(EngineError, match="expired"), start_superlink(coordinator, tmp_path / "run", port):
        pass
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(coordinator.certificates[0], coordinator.key)

    def shake_hands(connection: socket.socket) -> None:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    with impostor(port, shake_hands), pytest.raises(EngineError, match=r"cannot be trusted.*expired"):
        serve(contact(tmp_path / "sites" / "north"), bytes)


def test_a_coordinator_without_tls_is_refused(tmp_path: Path) -> None:
    port = free_port()
    provision(tmp_path, ["north"], "127.0.0.1", port)

    def speak_plainly(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with impostor(port, speak_plainly), pytest.raises(EngineError, match="cannot be trusted"):
        serve(contact(tmp_path / "sites" / "north"), bytes)


@contextmanager
def impostor(port: int, handle: Callable[[socket.socket], None]) -> Iterator[None]:
    """Somebody else on the coordinator's port, who talks to the first that comes."""

    def listen() -> None:
        connection, _ = listener.accept()
        with connection:
            handle(connection)

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=listen)
        thread.start()
        yield
        thread.join()


def test_a_site_finds_the_next_coordinator(tmp_path: Path) -> None:
    port = free_port()
    provision(tmp_path, ["north"], "127.0.0.1", port)
    federation = Federation(tmp_path, port)
    federation.start("north")
    try:
        for number in (b"first", b"next"):
            with open_engine(tmp_path / "coordinator", f"127.0.0.1:{port}", tmp_path / "run") as transport:
                federation.transport = transport
                federation.await_sites({"north"})
                assert federation.ask({"north": number})["north"].payload == number[::-1]
    finally:
        federation.end()


def test_a_site_loads_nothing_of_the_superlink() -> None:
    loaded = "import fedns.federation.transports.flower.client, sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert "flwr" in found and not {"sqlalchemy", "flwr.superlink", "uvicorn"} & set(found)


def test_a_caller_may_stop_listening(federation: Federation, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    arrivals = federation.transport.exchange({"north": b"quick", "south": b"await " + bytes(heard)}, PATIENCE_SECONDS)
    first = next(arrivals)
    assert (first.site, first.payload, first.failure) == ("north", b"kciuq", "")
    arrivals.close()  # type: ignore[attr-defined]
    heard.touch()
    assert federation.ask({"north": b"one", "south": b"two"})["south"].payload == b"owt"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_coordinator(tmp_path: Path, how: signal.Signals) -> None:
    port = free_port()
    provision(tmp_path, ["north"], "127.0.0.1", port)
    command = [sys.executable, str(HERE / "coordinator.py"), str(tmp_path / "coordinator"), str(tmp_path / "run"), str(port)]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        process.send_signal(how)
        process.wait(PATIENCE_SECONDS)
    wait_until(lambda: not listening("127.0.0.1", port), "the SuperLink listens no more")
    assert how is signal.SIGKILL or not (tmp_path / "run" / "superlink.secret").exists()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    provision(tmp_path, ["north"], "127.0.0.1", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with (
            pytest.raises(EngineError, match=f"port {port} of 127.0.0.1 is taken"),
            start_superlink(contact(tmp_path / "coordinator"), tmp_path / "run", port),
        ):
            pass


@pytest.mark.parametrize("site", ["../up", "a b"])
def test_names_that_do_not_do(tmp_path: Path, site: str) -> None:
    with pytest.raises(ConfigError):
        provision(tmp_path, [site], "host", 1)
