"""The SuperLink's door without a SuperLink: who gets in on which path, and how long a request may be, both sides of each."""

from __future__ import annotations

import asyncio
import datetime
from base64 import b64encode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the Flower engine needs flwr: pip install 'fedns[flower]'")

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message
from google.protobuf.wrappers_pb2 import BytesValue

from fedns.federation.transports.flower.connection import TURN_PATH, pack_parts
from fedns.federation.transports.flower.door import COORDINATOR_PATHS, ENVELOPE_BYTES, SITE_PATHS, Door

LARGEST, HOST, OUTSIDE = 1000, "10.0.0.5", "192.168.7.9"
LIMIT = LARGEST + ENVELOPE_BYTES
NORTH, OUTSIDER = generate_key_pairs(), generate_key_pairs()
NUMBER = 17  # of north's node
SITES, COORDINATOR = sorted(SITE_PATHS - {TURN_PATH}), sorted(COORDINATOR_PATHS)


class SuperLink:
    """Knows one key, and lists what got to it."""

    def __init__(self) -> None:
        known = {public_key_to_bytes(NORTH[1]): NUMBER}
        state = SimpleNamespace(get_node_id_by_public_key=known.get)
        self.state = SimpleNamespace(linkstate_factory=SimpleNamespace(state=lambda: state))
        self.reached: list[str] = []
        self.bodies_at_once, self.most_at_once = 0, 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append(scope.get("path", scope["type"]))
        self.bodies_at_once += 1
        self.most_at_once = max(self.most_at_once, self.bodies_at_once)
        await self.hold.wait()
        self.bodies_at_once -= 1
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})


def signed(keys: Any = NORTH, seconds: float = 0.0, **changes: str) -> dict[str, str]:
    """What a site puts into its headers, so many seconds ago."""
    now = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)).isoformat()
    headers = {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_key_to_bytes(keys[1])).decode(),
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(sign_message(keys[0], now.encode("ascii"))).decode(),
        TIMESTAMP_HEADER: now,
    }
    return headers | changes


def scope_of(path: str, headers: dict[str, str], length: int | str | None, method: str, client: str) -> dict[str, Any]:
    named = headers | ({} if length is None else {"Content-Length": str(length)})
    found = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
    return {"type": "http", "method": method, "path": path, "headers": found, "client": (client, 4711)}


async def asked(door: Door, scope: dict[str, Any], body: bytes = b"") -> int:
    """The status that a visitor gets."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            statuses.append(event["status"])

    await door(scope, receive, send)
    return statuses[0]


def visit(
    path: str,
    headers: dict[str, str] | None = None,
    *,
    length: int | str | None = 0,
    method: str = "POST",
    client: str = OUTSIDE,
    body: bytes = b"",
) -> tuple[int, list[str]]:
    """The status, and what got to the SuperLink behind the door."""

    async def once() -> tuple[int, list[str]]:
        superlink = SuperLink()
        status = await asked(Door(superlink, LARGEST, HOST), scope_of(path, headers or {}, length, method, client), body)
        return status, superlink.reached

    return asyncio.run(once())


@pytest.mark.parametrize("path", COORDINATOR)
def test_the_coordinators_paths_are_open_to_this_machine_alone(path: str) -> None:
    for outsider in (OUTSIDE, "10.0.0.50", "127.0.0.2", ""):
        assert visit(path, client=outsider) == (403, [])
        assert visit(path, signed(), client=outsider) == (403, [])  # a site is no coordinator
    for own in ("127.0.0.1", "::1", HOST):
        assert visit(path, client=own) == (200, [path])


@pytest.mark.parametrize("path", SITES)
def test_a_sites_paths_are_open_to_those_who_sign(path: str) -> None:
    assert visit(path) == (401, [])
    assert visit(path, client="127.0.0.1") == (401, [])
    assert visit(path, signed(OUTSIDER)) == (401, [])
    assert visit(path, signed()) == (200, [path])


def test_a_turn_is_open_to_those_who_sign_and_speaks_for_nobody_else() -> None:
    assert visit(TURN_PATH)[0] == visit(TURN_PATH, signed(OUTSIDER))[0] == 401
    assert visit(TURN_PATH, signed(), body=b"no turn") == (400, [])
    for other in (NUMBER + 1, 0):
        pull = PullMessagesRequest(node=Node(node_id=other)).SerializeToString()
        push = PushMessagesRequest(node=Node(node_id=other)).SerializeToString()
        for parts in ([b"", pull], [push, b""]):
            body = BytesValue(value=pack_parts(parts)).SerializeToString()
            assert visit(TURN_PATH, signed(), length=len(body), body=body) == (401, [])


KEY, SIGNATURE = FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER


@pytest.mark.parametrize(
    "changed",
    [
        lambda: {SIGNATURE: signed(OUTSIDER)[SIGNATURE]},
        lambda: {SIGNATURE: b64encode(sign_message(NORTH[0], b"another time")).decode()},
        lambda: {SIGNATURE: "not base64!"},
        lambda: {KEY: ""},
        lambda: {KEY: "?" + signed()[KEY]},
        lambda: {TIMESTAMP_HEADER: "yesterday"},
        lambda: {TIMESTAMP_HEADER: "2026-01-01T00:00:00"},
        lambda: {TIMESTAMP_HEADER: "\xe4"},
    ],
    ids=["another's", "of another text", "no base64", "no key", "odd key", "no time", "no zone", "no ascii"],
)
def test_a_signature_that_does_not_do(changed: Callable[[], dict[str, str]]) -> None:
    assert visit(SITES[0], signed(**changed())) == (401, [])


@pytest.mark.parametrize("left_out", [KEY, SIGNATURE, TIMESTAMP_HEADER])
def test_a_signature_has_three_parts(left_out: str) -> None:
    assert visit(SITES[0], {name: value for name, value in signed().items() if name != left_out}) == (401, [])


@pytest.mark.parametrize(
    ("age", "status"),
    [
        (SYSTEM_TIME_TOLERANCE - 1 + TIMESTAMP_TOLERANCE, 200),
        (SYSTEM_TIME_TOLERANCE + 1 + TIMESTAMP_TOLERANCE, 401),
        (1 - SYSTEM_TIME_TOLERANCE, 200),
        (-1 - SYSTEM_TIME_TOLERANCE, 401),
    ],
)
def test_a_signature_holds_for_a_while(age: float, status: int) -> None:
    assert visit(SITES[0], signed(seconds=age))[0] == status


@pytest.mark.parametrize("path", ["/docs", "/", "", "/health", "/v1/control/list-runs", "/v1/fleet/pull-messages"])
def test_what_is_not_listed_is_not_there(path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
        assert visit(path, signed(), method=method, client="127.0.0.1") == (404, [])


@pytest.mark.parametrize("path", [COORDINATOR[0], SITES[0], TURN_PATH])
def test_what_is_listed_is_there_for_one_method(path: str) -> None:
    for method in ("GET", "PUT", "DELETE", "HEAD", "OPTIONS"):
        assert visit(path, signed(), method=method, client="127.0.0.1") == (404, [])


@pytest.mark.parametrize("path", [COORDINATOR[0], SITES[0]])
@pytest.mark.parametrize(
    ("length", "status"),
    [(None, 411), ("", 411), ("-1", 411), ("1e3", 411), ("0x10", 411), (0, 200), (LIMIT, 200), (LIMIT + 1, 413)],
)
def test_a_length_is_announced_and_has_a_limit(path: str, length: int | str | None, status: int) -> None:
    assert visit(path, signed(), length=length, client="127.0.0.1") == (status, [path] * (status == 200))


def test_bodies_under_way_are_together_two_of_the_largest() -> None:
    async def many() -> tuple[int, list[int], list[int]]:
        superlink = SuperLink()
        superlink.hold.clear()
        door = Door(superlink, LARGEST, HOST)
        scope = scope_of(SITES[0], signed(), LIMIT, "POST", OUTSIDE)
        tasks = [asyncio.ensure_future(asked(door, scope)) for _ in range(5)]
        for _ in range(20):
            await asyncio.sleep(0)
        held = superlink.bodies_at_once
        superlink.hold.set()
        statuses = await asyncio.gather(*tasks)
        again = await asyncio.gather(*(asked(door, scope) for _ in range(3)))  # all the room is free again
        return held, statuses, again

    assert asyncio.run(many()) == (2, [200] * 5, [200] * 3)


def test_what_is_no_request_gets_no_answer() -> None:
    async def others() -> list[str]:
        superlink = SuperLink()
        door = Door(superlink, LARGEST, HOST)
        for kind in ("websocket", "lifespan"):
            await door({"type": kind, "path": SITES[0]}, _nothing, _nothing)
        return superlink.reached

    async def _nothing(*_: Any) -> dict[str, Any]:
        return {}

    assert len(asyncio.run(others())) == 1
