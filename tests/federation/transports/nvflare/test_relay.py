"""Both ends of the NVFlare transport in one process: the coordinator's, and the relay over an NVFlare written here."""

import contextlib
import os
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from tests.processes import PATIENCE_SECONDS, wait_until

pytest.importorskip("nvflare", reason="nvflare is not installed")

from nvflare.apis.event_type import EventType
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.sfm import conn_manager

from fedns.core.errors import ConfigError
from fedns.federation.processes import EngineLost
from fedns.federation.transports.nvflare import server
from fedns.federation.transports.nvflare.client import EXCHANGE, SESSION
from fedns.federation.transports.nvflare.processes import CONSOLE
from fedns.federation.transports.nvflare.server import NVFlareTransport, Relay
from fedns.federation.transports.nvflare.traffic import CHANNEL, TOPIC

SITES = ("ankara", "bergen", "cusco")


class Client:
    """A registered site, as NVFlare's server knows it."""

    def __init__(self, name, token="first"):
        self.name, self.token = name, token

    def get_fqcn(self):
        return f"{self.name}.cell"


class NVFlare:
    """The engine and the cell of a server: what the relay asks of them."""

    def __init__(self):
        self.clients = {name: Client(name) for name in SITES}
        self.linked = {client.get_fqcn() for client in self.clients.values()}
        self.sent, self.disconnected = [], None
        self.answer = lambda site, request, abort: make_reply(ReturnCode.OK, body=request.payload[::-1])
        self.core_cell = SimpleNamespace(
            is_cell_connected=self.linked.__contains__,
            set_cell_disconnected_cb=lambda callback: setattr(self, "disconnected", callback),
        )

    def get_engine(self):
        return self

    def get_cell(self):
        return self

    def get_clients(self):
        return list(self.clients.values())

    def get_client_from_name(self, name):
        return self.clients.get(name)

    def get_peer_context(self):
        return SimpleNamespace(get_identity_name=lambda: self.speaking)

    def send_request(self, *, channel, topic, target, request, timeout, optional, abort_signal):
        self.sent.append((target, request.get_header(SESSION), request.get_header(EXCHANGE), timeout))
        assert (channel, topic, optional) == (CHANNEL, TOPIC, True)
        return self.answer(target.removesuffix(".cell"), request, abort_signal)

    def hears(self, relay, event, site):
        self.speaking = site
        relay.handle_event(event, self)


def hang_up(flare):
    """The end of the server's process."""
    connection = flare.relay._frames._connection
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as stream:  # it has ended already
        stream.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: flare.exits, "the relay has ended")


@pytest.fixture
def nvflare(monkeypatch, tmp_path):
    """The relay's thread in place of NVFlare's process; it ends when the coordinator's end of the socket is closed."""
    flare = NVFlare()
    flare.exits = []
    monkeypatch.setattr(CoreCell, "start", CoreCell.start)  # which the relay replaces
    monkeypatch.setattr(conn_manager, "FRAME_THREAD_POOL_SIZE", conn_manager.FRAME_THREAD_POOL_SIZE)
    monkeypatch.setattr(server, "collect_often", lambda: None)
    monkeypatch.setattr(server, "RECONNECT_SECONDS", 0.0)

    def leave(status):
        flare.exits.append(status)
        hang_up(flare)

    monkeypatch.setattr(server, "os", SimpleNamespace(_exit=leave))

    def start_server(credentials, channel, host):
        (credentials / CONSOLE).write_text("Server started\n")
        flare.exits.clear()
        flare.relay = Relay(os.dup(channel), host)
        flare.relay.handle_event(EventType.SYSTEM_START, flare)
        return SimpleNamespace(returncode=9, wait=lambda seconds: 9)

    def stop(process):
        hang_up(flare)
        flare.relay._frames.close()

    monkeypatch.setattr(server, "start_server", start_server)
    monkeypatch.setattr(server, "stop", stop)
    return flare


@pytest.fixture
def transport(nvflare, tmp_path):
    opened = NVFlareTransport(tmp_path)
    yield opened
    opened.close()


def ask(transport, requests, seconds=PATIENCE_SECONDS):
    return {arrival.site: arrival for arrival in transport.exchange(requests, seconds)}


def failure_of(transport, site="ankara", seconds=PATIENCE_SECONDS):
    arrival = ask(transport, {site: b"?"}, seconds)[site]
    assert arrival.payload == b"" and arrival.site == site
    return arrival.failure


def test_each_site_gets_its_own_request_and_answers_it(nvflare, transport):
    for number in (1, 2):
        arrivals = ask(transport, {site: f"{number} to {site}".encode() for site in SITES}, 77.0)
        expected = {site: f"{number} to {site}".encode()[::-1] for site in SITES}
        assert {site: arrival.payload for site, arrival in arrivals.items()} == expected
        assert not any(arrival.failure for arrival in arrivals.values())
    assert {(target, number, seconds) for target, _, number, seconds in nvflare.sent} == {
        (f"{site}.cell", number, 77.0) for site in SITES for number in (1, 2)
    }
    (session,) = {session for _, session, _, _ in nvflare.sent}
    assert len(session) == 16 and ask(transport, {}) == {}


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (lambda: make_reply(ReturnCode.PROCESS_EXCEPTION, "its service failed with X"), "its service failed with X"),
        (lambda: make_reply(ReturnCode.TIMEOUT), "no answer within 300 s"),
        (lambda: make_reply(ReturnCode.TARGET_UNREACHABLE), "NVFlare reports target_unreachable"),
        (lambda: 1 / 0, "it could not be asked: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_what_goes_wrong_at_one_site_is_a_sentence_about_it_alone(reply, failure, nvflare, transport):
    usual = nvflare.answer
    nvflare.answer = lambda site, request, abort: reply() if site == "ankara" else usual(site, request, abort)
    arrivals = ask(transport, dict.fromkeys(SITES, b"ab"))
    assert (arrivals["ankara"].payload, arrivals["ankara"].failure) == (b"", failure)
    assert arrivals["bergen"].payload == arrivals["cusco"].payload == b"ba"
    nvflare.answer = lambda site, request, abort: make_reply(ReturnCode.OK)
    assert ask(transport, {"cusco": b"ab"})["cusco"].payload == b""  # nothing is an answer, too


def test_who_is_not_there_is_not_asked(nvflare, transport):
    assert transport.connected() == list(SITES)
    nvflare.linked.discard("ankara.cell")
    assert transport.connected() == ["bergen", "cusco"]
    assert failure_of(transport) == failure_of(transport, "delhi") == "it is not connected"
    assert nvflare.sent == []


def test_who_was_turned_away_is_named_where_a_site_is_missing(nvflare, transport, tmp_path):
    with (tmp_path / CONSOLE).open("a") as console:
        console.write("ssl_transport_security.cc:2563] Handshake failed with error: certificate has expired\n")
    words = "it is not connected, and a visitor's certificate has expired: its credentials are not of this federation"
    assert failure_of(transport, "delhi") == words
    assert ask(transport, {"ankara": b"ab"})["ankara"].payload == b"ba"  # who is there has nothing to do with it


def test_a_site_that_was_disconnected_is_asked_again_once_it_has_spoken(nvflare, transport):
    asked = threading.Event()

    def never(site, request, abort):
        asked.set()
        wait_until(lambda: abort.triggered, "the request is given up")
        return make_reply(ReturnCode.ABORT_RUN)

    usual, nvflare.answer = nvflare.answer, never
    failures = []
    asking = threading.Thread(target=lambda: failures.append(failure_of(transport)))
    asking.start()
    assert asked.wait(PATIENCE_SECONDS)
    nvflare.disconnected(Client("ankara"))
    asking.join(PATIENCE_SECONDS)
    assert failures == ["the connection to it was lost"]
    nvflare.answer = usual
    assert transport.connected() == ["bergen", "cusco"] and failure_of(transport) == "it is not connected"
    nvflare.hears(nvflare.relay, EventType.CLIENT_HEARTBEAT_PROCESSED, "bergen")
    nvflare.hears(nvflare.relay, EventType.BEFORE_PULL_TASK, "ankara")
    nvflare.hears(nvflare.relay, EventType.CLIENT_REGISTER_PROCESSED, "unknown")
    assert transport.connected() == ["bergen", "cusco"]
    nvflare.hears(nvflare.relay, EventType.CLIENT_REGISTER_PROCESSED, "ankara")
    assert transport.connected() == list(SITES)


@pytest.mark.parametrize("event", [EventType.CLIENT_REGISTER_PROCESSED, EventType.CLIENT_HEARTBEAT_PROCESSED])
def test_a_site_that_registered_anew_knows_nothing_of_what_it_was_asked(event, nvflare, transport):
    asked = threading.Barrier(3)

    def slow(site, request, abort):
        asked.wait(PATIENCE_SECONDS)
        wait_until(lambda: abort.triggered or done.is_set(), "the request is given up, or over")
        return make_reply(ReturnCode.ABORT_RUN) if abort.triggered else make_reply(ReturnCode.OK, body=b"ba")

    nvflare.answer, done, arrivals = slow, threading.Event(), {}
    asking = threading.Thread(target=lambda: arrivals.update(ask(transport, {"ankara": b"ab", "bergen": b"ab"})))
    asking.start()
    asked.wait(PATIENCE_SECONDS)
    nvflare.clients["ankara"] = Client("ankara", "second")
    nvflare.hears(nvflare.relay, event, "cusco")  # whoever speaks
    wait_until(lambda: len(nvflare.relay._pending) == 1, "one is given up")
    done.set()
    asking.join(PATIENCE_SECONDS)
    assert arrivals["ankara"].failure == "the connection to it was lost" and arrivals["bergen"].payload == b"ba"
    assert nvflare.relay._pending == {}


def test_a_late_answer_is_dropped_and_an_exchange_ends_in_time(nvflare, transport):
    late = threading.Event()

    def answer(site, request, abort):
        if request.payload == b"slow":
            assert late.wait(PATIENCE_SECONDS)
        return make_reply(ReturnCode.OK, body=request.payload[::-1])

    nvflare.answer, before = answer, time.monotonic()
    arrivals = ask(transport, {"ankara": b"slow", "bergen": b"fast"}, 0.2)
    assert arrivals["bergen"].payload == b"tsaf" and arrivals["ankara"].failure == "no answer within 0.2 s"
    assert 0.2 <= time.monotonic() - before < PATIENCE_SECONDS
    late.set()
    for _ in range(3):
        assert ask(transport, {"ankara": b"new"})["ankara"].payload == b"wen"


def test_a_server_that_ends_is_told_of_with_its_last_words(nvflare, transport, tmp_path):
    (tmp_path / CONSOLE).write_text("first\nSegmentation fault\n\n")
    hang_up(nvflare)
    words = r"the NVFlare server ended with status 9, its last words: Segmentation fault \(all of them in .*console.txt\)"
    wait_until(lambda: transport._lost.is_set(), "it is noticed")
    with pytest.raises(EngineLost, match=words):
        ask(transport, {"ankara": b"?"})
    with pytest.raises(EngineLost, match=words):
        transport.connected()
    assert nvflare.exits and set(nvflare.exits) == {0}  # the relay's process ends with its coordinator


def test_a_server_that_does_not_start_says_why(nvflare, monkeypatch, tmp_path):
    monkeypatch.setattr(NVFlare, "get_clients", lambda self: 1 / 0)
    with pytest.raises(ConfigError, match=r"the NVFlare server did not start, it says: Server started \(all of it in"):
        NVFlareTransport(tmp_path, start_seconds=PATIENCE_SECONDS)
    assert nvflare.exits[0] == 1


def test_a_relay_asks_with_a_session_of_its_own_each_time(nvflare, tmp_path):
    sessions = set()
    for _ in range(2):
        opened = NVFlareTransport(tmp_path)
        ask(opened, {"ankara": b"?"})
        opened.close()
        sessions |= {session for _, session, _, _ in nvflare.sent}
    assert len(sessions) == 2
