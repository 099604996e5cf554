"""The SuperLink's door on real processes: what is not used is not there, and nobody makes it store what is too long."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.federation.transports.clock import Clock
from tests.processes import PATIENCE_SECONDS, wait_until

pytest.importorskip("flwr", reason="the Flower engine needs flwr: pip install 'fedns[flower]'")

import httpx

from fedns.federation.processes import free_port
from fedns.federation.transports.flower import client, connection
from fedns.federation.transports.flower.client import serve
from fedns.federation.transports.flower.credentials import contact, provision
from fedns.federation.transports.flower.door import COORDINATOR_PATHS, ENVELOPE_BYTES, SITE_PATHS
from fedns.federation.transports.flower.processes import SuperLink, start_superlink
from fedns.federation.transports.flower.server import claim_run, open_engine, register, submit_run

LARGEST = 1 << 20


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    folder = tmp_path_factory.mktemp("superlink")
    provision(folder, ["north"], "127.0.0.1", (port := free_port()))
    credentials = contact(folder / "coordinator")
    with start_superlink(credentials, folder / "run", port, largest_message=LARGEST) as link:
        yield link


def resident_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def visit(link: SuperLink, method: str, path: str, **options: object) -> httpx.Response:
    trust = ssl.create_default_context(cafile=str(link.authority))
    return httpx.request(
        method, f"https://{link.address}{path}", verify=trust, trust_env=False, timeout=PATIENCE_SECONDS, **options
    )


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/redoc", "/", "/health", "/v1/control/list-runs"])
def test_what_is_not_used_is_not_there(link: SuperLink, path: str) -> None:
    assert [visit(link, method, path).status_code for method in ("GET", "POST")] == [404, 404]


def announce(link: SuperLink, path: str, length: int) -> bytes:
    """The first line of the answer to a request that announces a body and begins to send it."""
    host, port = link.address.split(":")
    trust = ssl.create_default_context(cafile=str(link.authority))
    with (
        socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as plain,
        trust.wrap_socket(plain, server_hostname=host) as stream,
    ):
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n"
        stream.sendall(head.encode() + bytes(1000))
        return stream.recv(1000).split(b"\r\n")[0]


def test_without_a_key_nothing_is_read(link: SuperLink) -> None:
    before = resident_bytes(link.child.process.pid)
    for path in sorted(SITE_PATHS):
        assert announce(link, path, 300_000_000) == b"HTTP/1.1 401 Unauthorized"
    threads = [threading.Thread(target=_post_much, args=(link,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert resident_bytes(link.child.process.pid) - before < 30_000_000


def _post_much(link: SuperLink) -> None:
    """Ninety megabytes, whether they are wanted or not."""
    with contextlib.suppress(httpx.TransportError):  # the connection is closed on us
        visit(link, "POST", "/v1/fleet/fedns-turn", content=bytes(90_000_000))


def test_the_coordinators_own_requests_have_a_limit_too(link: SuperLink) -> None:
    for path in sorted(COORDINATOR_PATHS):
        assert announce(link, path, LARGEST + ENVELOPE_BYTES + 1).split()[1] == b"413"
        assert visit(link, "POST", path, content=iter([b"of unknown length"])).status_code == 411


def test_it_listens_on_one_port(link: SuperLink) -> None:
    process, ports = link.child.process.pid, set()
    sockets = {str(file.readlink()) for file in Path(f"/proc/{process}/fd").iterdir() if file.is_symlink()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                ports.add((words[1].split(":")[0], int(words[1].split(":")[1], 16)))
    assert ports == {("0100007F", int(link.address.split(":")[1]))}


def test_an_answer_that_is_too_long_costs_its_site_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    def refused() -> bool:
        return any("the answer is longer than it takes" in record.getMessage() for record in caplog.records)

    port, stop = free_port(), threading.Event()
    provision(tmp_path, ["north", "south"], "127.0.0.1", port)
    monkeypatch.setattr(connection, "LARGEST_MESSAGE", 2 * LARGEST)  # so that what is longer still is caught at the site
    lengths = {"north": 0, "south": 100}
    sites = [
        threading.Thread(
            target=serve,
            args=(contact(tmp_path / "sites" / name), lambda request, name=name: bytes(lengths[name])),
            kwargs={"stop": stop},
        )
        for name in lengths
    ]
    with open_engine(tmp_path / "coordinator", f"127.0.0.1:{port}", tmp_path / "run", LARGEST) as transport:
        for site in sites:
            site.start()
        try:
            wait_until(lambda: set(transport.connected()) == set(lengths), "both are connected")
            requests = dict.fromkeys(lengths, b"?")
            lengths["north"] = 3 * LARGEST
            arrivals = {arrival.site: arrival for arrival in transport.exchange(requests, PATIENCE_SECONDS)}
            assert (
                arrivals["north"].failure == "its service failed with EngineError" and len(arrivals["south"].payload) == 100
            )
            lengths["north"] = LARGEST + LARGEST // 2  # one that does not look at its length, and is refused
            exchange, arrivals = transport.exchange(requests, PATIENCE_SECONDS), {}
            while "south" not in arrivals:  # north leaves after the refusal, which may be seen first
                arrival = next(exchange)
                arrivals[arrival.site] = arrival
            assert len(arrivals["south"].payload) == 100
            wait_until(refused, "the answer of north is refused")
            clock.skip(PATIENCE_SECONDS)
            arrivals |= {arrival.site: arrival for arrival in exchange}
            assert arrivals["north"].failure in (f"no answer within {PATIENCE_SECONDS:g} s", "it is not connected")
            lengths["north"] = LARGEST
            deadline = time.monotonic() + PATIENCE_SECONDS
            while "connected" in (arrival := next(transport.exchange({"north": b"?"}, PATIENCE_SECONDS))).failure:
                assert time.monotonic() < deadline  # it leaves and comes back after the refusal
                time.sleep(0.05)
            assert len(arrival.payload) == LARGEST
        finally:
            stop.set()
            for site in sites:
                site.join()


def test_a_clock_that_differs_is_said_to(link: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    response = visit(link, "POST", "/v1/fleet/send-node-heartbeat", content=b"")
    error = httpx.HTTPStatusError("", request=response.request, response=response)
    assert "its key is not registered there" in client._reason(error)
    now = client.time.time()
    monkeypatch.setattr(client.time, "time", lambda: now - 3600)
    assert re.fullmatch(r"this machine's clock is 3(5\d\d|600) s behind the coordinator's; set it", client._reason(error))


def test_the_way_of_a_run_is_open(link: SuperLink, tmp_path: Path) -> None:
    made = provision(tmp_path, ["south"], "127.0.0.1", 1)
    nodes = register(link, contact(made.coordinator).known or {})
    submit_run(link)
    transport = claim_run(link, nodes)
    assert transport.connected() == []
    transport.close()
