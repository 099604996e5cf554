"""How a Flower site looks for its coordinator: whom it waits for, for how long, and what ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="the Flower engine needs flwr: pip install 'fedns[flower]'")

import httpx

from fedns.federation.processes import EngineError
from fedns.federation.protocol.transport import COORDINATOR
from fedns.federation.reachable import Contact
from fedns.federation.transports.flower import client
from fedns.federation.transports.flower.client import serve
from fedns.federation.transports.flower.connection import Connection

NORTH = Contact("host", 1, Path("authority.crt"), key=Path("node.key"), name="north")


class Coordinator:
    """What the site finds, try by try; the last of it for good. A clock that only tries move."""

    last: Coordinator  # that a site looked for

    def __init__(self, *found: Exception | str) -> None:
        self.found, self.now, self.tries = list(found), 1000.0, 0
        self.stop = threading.Event()
        self.worked: list[bool] = []

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds

    @contextmanager
    def open(self, credentials: Contact, lease_seconds: float) -> Iterator[SimpleNamespace]:
        assert credentials is NORTH and lease_seconds == 20.0
        self.tries += 1
        assert self.tries < 1000
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        yield SimpleNamespace(work=lambda answer, stop: self.work(found))

    def work(self, found: str) -> None:
        self.worked.append(COORDINATOR.connected)
        if found == "ends":
            self.stop.set()
        elif found == "breaks":
            self.now += 100.0  # it lasts for a while
            raise httpx.ReadError("broken")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Coordinator]:
    def run(*found: Exception | str) -> Coordinator:
        there = Coordinator(*found)
        monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=there.monotonic, time=lambda: 0.0))
        monkeypatch.setattr(Connection, "open", there.open)
        waiting = SimpleNamespace(is_set=there.stop.is_set, wait=there.wait)
        Coordinator.last = there
        serve(NORTH, bytes, stop=waiting)  # type: ignore[arg-type]
        return there

    return run


def refusal(status: int = 401) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "https://host:1")
    return httpx.HTTPStatusError("", request=request, response=httpx.Response(status, request=request))


REFUSED = httpx.ConnectError("[Errno 111] Connection refused")


def test_it_waits_for_as_long_as_it_takes_and_says_so_once(
    run: Callable[..., Coordinator], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fedns.site")
    there = run(*[REFUSED] * 100, "breaks", REFUSED, REFUSED, "ends")
    said = [record.getMessage() for record in caplog.records]
    waits, connected = f"north waits for a coordinator at host:1: {REFUSED}", "north is connected to host:1"
    assert said == [waits, connected, "north waits for a coordinator at host:1: broken", connected]
    assert there.worked == [True, True] and not COORDINATOR.connected


@pytest.mark.parametrize(
    "words", ["[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "[SSL: WRONG_VERSION_NUMBER] wrong version"]
)
def test_a_coordinator_that_cannot_be_trusted_ends_it_at_once(words: str, run: Callable[..., Coordinator]) -> None:
    with pytest.raises(EngineError, match=r"host:1 cannot be trusted: \[SSL"):
        run(httpx.ConnectError(words))
    assert Coordinator.last.tries == 1


def test_a_refusal_is_believed_after_a_lease(run: Callable[..., Coordinator], caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(EngineError, match="host:1 refuses site north: its key is not registered there, or is in use by"):
        run(refusal())
    assert Coordinator.last.tries == 2 + 25.0 / 0.5
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.endswith("its key is not registered there, or is in use by another process; trying on for 25 s")


def test_refusals_begin_anew_once_it_was_let_in(run: Callable[..., Coordinator]) -> None:
    assert run(*[refusal()] * 40, "breaks", *[refusal()] * 40, "ends").tries == 82


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "its key is not registered there"),
        (412, "its key is not registered there"),
        (413, "the answer is longer than it takes"),
        (500, "HTTP 500"),
    ],
)
def test_every_refusal_has_its_words(status: int, words: str) -> None:
    assert client._reason(refusal(status)).startswith(words)
