"""The coordinator's transport over NVFlare: one end in the coordinator's process, the other inside the NVFlare server.

The coordinator stays a process of its own, so that its terminal, its exceptions and its results are ordinary. It starts the
NVFlare server as a child and talks to the relay in it over an inherited socket pair: frames of a JSON header and raw bytes.
The relay sends each request with NVFlare's cell, the layer under its job controllers; bytes travel as bytes, without a
serialiser. Not chosen: job controllers, which poll (about two seconds an exchange untuned) and cannot take back a restarted
site; auxiliary messages, which do not tell the receiver who wrote; the Collab interface, a technical preview.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import secrets
import socket
import subprocess
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

from fedns.core.errors import ConfigError
from fedns.federation.processes import EngineLost, refuse_taken_port
from fedns.federation.protocol.transport import Arrival, Transport, not_connected, too_late
from fedns.federation.reachable import Visitors
from fedns.federation.transports.nvflare.client import EXCHANGE, SESSION
from fedns.federation.transports.nvflare.processes import CONSOLE, MOST_SITES, last_line, start_server, stop
from fedns.federation.transports.nvflare.traffic import (
    CHANNEL,
    TOPIC,
    at_server,
    close_down,
    collect_often,
    take_frames_with_few_threads,
)

RECONNECT_SECONDS = 3.0  # NVFlare reconnects after one second; what has not come so long after was lost with its connection

Header = dict[str, Any]


class _Frames:
    """Headers and payloads over a stream socket; any thread may send, one receives."""

    def __init__(self, stream: socket.socket) -> None:
        self._connection = Connection(stream.detach())
        self._sending = threading.Lock()

    def send(self, header: Header, payload: bytes = b"") -> None:
        with self._sending:
            self._connection.send_bytes(json.dumps(header).encode())
            self._connection.send_bytes(payload)

    def receive(self) -> tuple[Header, bytes] | None:
        """The next frame, or None when the other end is gone."""
        try:
            return json.loads(self._connection.recv_bytes()), self._connection.recv_bytes()
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        """Only when `receive` has returned None: it reads from what is closed here."""
        self._connection.close()


class NVFlareTransport(Transport):
    """Starts the NVFlare server of these credentials, and asks the sites that connect to it."""

    def __init__(self, credentials: Path, *, host: str = "", start_seconds: float = 60.0) -> None:
        """host: the address to listen at; without one it is for the credentials to say."""
        ours, theirs = socket.socketpair()
        self._credentials = credentials
        self._frames = _Frames(ours)
        with theirs:
            try:
                self._process = start_server(credentials, theirs.fileno(), host)
            except BaseException:
                self._frames.close()
                raise
        self._visitors = Visitors(credentials / CONSOLE)
        self._numbers = itertools.count(1)
        self._arrivals: tuple[int, queue.SimpleQueue[Arrival | None]] = (0, queue.SimpleQueue())
        self._rosters: queue.SimpleQueue[list[str] | None] = queue.SimpleQueue()
        self._lost = threading.Event()
        self._receiver = threading.Thread(target=self._receive, name="fedns-nvflare", daemon=True)
        self._receiver.start()
        try:
            if self._roster(start_seconds) is None:
                said = f"it says: {last_line(credentials)} (all of it in {credentials / CONSOLE})"
                raise ConfigError(f"the NVFlare server did not start, {said}")
        except BaseException:
            self.close()
            raise

    def connected(self) -> list[str]:
        while not self._rosters.empty():  # one that came too late for whom it was
            self._rosters.get()
        if not self._send({"roster": True}):
            raise self._ended()
        return self._roster(5.0) or []

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        deadline = time.monotonic() + timeout_seconds
        number, arrivals = next(self._numbers), queue.SimpleQueue[Arrival | None]()
        self._arrivals = (number, arrivals)
        for site, payload in requests.items():
            self._send({"exchange": number, "site": site, "seconds": timeout_seconds}, payload)
        waiting = dict.fromkeys(requests)
        while waiting:
            if self._lost.is_set() and arrivals.empty():
                raise self._ended()
            try:
                arrival = arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if arrival is not None and arrival.site in waiting:
                del waiting[arrival.site]
                absent = arrival.failure == not_connected()
                yield replace(arrival, failure=not_connected(self._visitors.turned_away())) if absent else arrival
        for site in waiting:
            yield Arrival(site, failure=too_late(timeout_seconds))

    def close(self) -> None:
        stop(self._process)
        self._receiver.join()  # the other end of the socket is gone with the process
        self._frames.close()

    def _ended(self) -> EngineLost:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        said = f"its last words: {last_line(self._credentials)} (all of them in {self._credentials / CONSOLE})"
        return EngineLost(f"the NVFlare server ended with status {self._process.returncode}, {said}")

    def _send(self, header: Header, payload: bytes = b"") -> bool:
        try:
            self._frames.send(header, payload)
        except OSError:
            self._lost.set()
        return not self._lost.is_set()

    def _roster(self, seconds: float) -> list[str] | None:
        try:
            return self._rosters.get(timeout=seconds)
        except queue.Empty:
            return None

    def _receive(self) -> None:
        while (frame := self._frames.receive()) is not None:
            header, payload = frame
            number, arrivals = self._arrivals
            if "roster" in header:
                self._rosters.put(header["roster"])
            elif header["exchange"] == number:  # otherwise it is late, and nobody waits for it
                arrivals.put(Arrival(header["site"], payload, header["failure"]))
        self._lost.set()
        self._rosters.put(None)
        self._arrivals[1].put(None)


@contextmanager
def open_engine(credentials: Path, listen: str, logs: Path) -> Iterator[Transport]:
    """The transport of these credentials, its server listening at this host:port, for as long as the block lasts."""
    host, _, port = listen.rpartition(":")
    refuse_taken_port(int(port))  # NVFlare would only say so in its log
    with closing(NVFlareTransport(credentials, host=host)) as transport:
        yield transport


class Relay(FLComponent):  # type: ignore[misc]
    """Inside the NVFlare server: passes requests on to sites and answers back, and ends when the coordinator does."""

    def __init__(self, channel: int, host: str = "") -> None:
        super().__init__()
        close_down(at_server, host)
        take_frames_with_few_threads()
        collect_often()
        # By this sites tell requests of this process from those of one before it: no clock is asked.
        self._session = secrets.token_hex(8)
        self._frames = _Frames(socket.socket(fileno=channel))
        self._asking = ThreadPoolExecutor(MOST_SITES, "fedns-ask")  # NVFlare's call blocks until the site has answered
        self._pending: dict[tuple[str, int], tuple[Any, Signal]] = {}  # (site, exchange): its client, what gives it up
        self._away: set[str] = set()  # cells that were disconnected, and whose client has not spoken since
        self._lock = threading.Lock()
        self._engine: Any = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            self._engine = fl_ctx.get_engine()
            self._engine.get_cell().core_cell.set_cell_disconnected_cb(self._disconnected)
            threading.Thread(target=self._serve, name="fedns-relay", daemon=True).start()
        elif event_type in (EventType.CLIENT_REGISTER_PROCESSED, EventType.CLIENT_HEARTBEAT_PROCESSED) and self._engine:
            client = self._engine.get_client_from_name(fl_ctx.get_peer_context().get_identity_name())
            if client is not None:
                self._away.discard(client.get_fqcn())
            self._give_up_lost()

    def _serve(self) -> None:
        try:
            self._frames.send({"roster": self._connected()})
            while (frame := self._frames.receive()) is not None:
                header, payload = frame
                if "roster" in header:
                    self._frames.send({"roster": self._connected()})
                else:
                    self._asking.submit(self._ask, header, payload)
        except BaseException:
            traceback.print_exc()  # os._exit would swallow it
            os._exit(1)
        finally:  # also where the coordinator was gone before the first word to it
            os._exit(0)

    def _connected(self) -> list[str]:
        return sorted(client.name for client in self._engine.get_clients() if self._can_be_asked(client))

    def _can_be_asked(self, client: Any) -> bool:
        # The registration of a killed process stays, and its successor connects before it is able to answer.
        return self._is_linked(client) and client.get_fqcn() not in self._away

    def _is_linked(self, client: Any) -> bool:
        return client is not None and bool(self._engine.get_cell().core_cell.is_cell_connected(client.get_fqcn()))

    def _ask(self, header: Header, payload: bytes) -> None:
        try:
            answer, failure = self._answer(header["site"], header["exchange"], payload, header["seconds"])
        except Exception as error:
            self.logger.exception("a request could not be sent")
            answer, failure = b"", f"it could not be asked: {type(error).__name__}"
        self._frames.send({"exchange": header["exchange"], "site": header["site"], "failure": failure}, answer)

    def _answer(self, site: str, number: int, payload: bytes, seconds: float) -> tuple[bytes, str]:
        client, given_up = self._engine.get_client_from_name(site), Signal()
        if not self._can_be_asked(client):
            return b"", not_connected()
        with self._lock:
            self._pending[site, number] = (client, given_up)
        try:
            reply = self._engine.get_cell().send_request(
                channel=CHANNEL,
                topic=TOPIC,
                target=client.get_fqcn(),
                request=Message({SESSION: self._session, EXCHANGE: number}, payload),
                timeout=seconds,
                optional=True,  # a site that cannot be reached is no error of the server's
                abort_signal=given_up,
            )
        finally:
            with self._lock:
                del self._pending[site, number]
        status = reply.get_header(MessageHeaderKey.RETURN_CODE)
        if status == ReturnCode.OK:
            return reply.payload or b"", ""
        if given_up.triggered:
            return b"", "the connection to it was lost"
        if status == ReturnCode.TIMEOUT:
            return b"", too_late(seconds)
        return b"", reply.get_header(MessageHeaderKey.ERROR) or f"NVFlare reports {status}"

    def _disconnected(self, agent: Any) -> None:
        """Whoever was asked over this connection is asked again, unless its answer comes over the next one in a moment."""
        name = agent.get_fqcn()
        self._away.add(name)
        with self._lock:
            lost = [given_up for client, given_up in self._pending.values() if client.get_fqcn() == name]
        timer = threading.Timer(RECONNECT_SECONDS, lambda: [given_up.trigger(True) for given_up in lost])
        timer.daemon = True
        timer.start()

    def _give_up_lost(self) -> None:
        """End the waiting for sites that registered anew and so know nothing of what they were asked."""
        with self._lock:
            pending = list(self._pending.items())
        for (site, _), (client, given_up) in pending:
            now = self._engine.get_client_from_name(site)
            if now is None or now.token != client.token:
                given_up.trigger(True)
