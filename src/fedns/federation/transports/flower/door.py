"""The door of the SuperLink: what may be asked by whom, and how long a request may be, decided before its body is read.

SuperLink reads the whole body of a request before it looks at who sent it, serves pages that describe its interface, and
offers much that fedns does not use. In front of it stands this: an ASGI application that knows the paths that are used.

    /v1/fleet/...              sites, by the signature in the headers: one of the registered keys, or nothing is read
                               among them one of our own: a turn, which does the work of five of SuperLink's (turns.py)
    /v1/control, /v1/runtime   the coordinator, from this machine; SuperLink asks for its secret
"""

from __future__ import annotations

import asyncio
import binascii
import datetime
from base64 import b64decode
from typing import Any

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

from fedns.federation.transports.flower.connection import TURN_PATH
from fedns.federation.transports.flower.turns import Counter, Receive, Scope, Send, Turns

ENVELOPE_BYTES = 1 << 16  # what Flower puts around a message
_MESSAGES = ("push-messages", "pull-messages", "push-object", "pull-object", "confirm-message-received")
_FLEET = ("activate-node", "deactivate-node", "send-node-heartbeat")  # messages come in turns
_RUNTIME = ("acquire-task", "send-task-heartbeat", "pull-task-input", "push-task-output", "get-nodes", *_MESSAGES)
SITE_PATHS = {f"/v1/fleet/{name}" for name in _FLEET} | {TURN_PATH}
COORDINATOR_PATHS = {f"/v1/runtime/{name}" for name in _RUNTIME} | {"/v1/control/register-node", "/v1/control/start-run"}
COLLECT_SECONDS = 0.5  # how long the coordinator is kept waiting for a new answer before it looks again


class Door:
    """Lets through what fedns asks of a SuperLink; bodies under way at once are together at most two of the largest."""

    def __init__(self, superlink: Any, largest_message: int, host: str) -> None:
        self._superlink = superlink
        self._largest = largest_message + ENVELOPE_BYTES
        self._own_addresses = {"127.0.0.1", "::1", host}
        self._room = 2 * self._largest
        self._freed = asyncio.Condition()
        self._asked, self._answered = Counter(), Counter()  # times that the coordinator, or a site, has pushed something
        self._pushed, self._collected = False, 0  # since the coordinator last looked for answers; how many there were then
        self._turns = Turns(superlink.state.linkstate_factory.state, self._asked, self._answered)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._superlink(scope, receive, send)
            return
        refusal, length, node_id = self._look(scope)
        if refusal:
            await _answer(send, refusal)
            return
        async with self._freed:
            await self._freed.wait_for(lambda: self._room >= length)
            self._room -= length
        try:
            await self._pass_on(node_id, scope, receive, send)
        finally:
            async with self._freed:
                self._room += length
                self._freed.notify_all()

    async def _pass_on(self, node_id: int, scope: Scope, receive: Receive, send: Send) -> None:
        """To SuperLink; those who wait for each other's messages are told when to look."""
        path = scope["path"]
        if path == TURN_PATH:
            await self._turns(node_id, receive, send)
            return
        if path == "/v1/runtime/pull-messages":
            if self._pushed:  # all that the coordinator had to say is there: it looks for answers now
                self._pushed = False
                await self._asked.add()
            await self._answered.beyond(self._collected, COLLECT_SECONDS)
            self._collected = self._answered.now
        await self._superlink(scope, receive, send)
        self._pushed |= path == "/v1/runtime/push-messages"

    def _look(self, scope: Scope) -> tuple[int, int, int]:
        """The HTTP status of a refusal, or nothing, the announced length, and the site's node."""
        path, headers = scope["path"], {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["method"] != "POST" or path not in SITE_PATHS | COORDINATOR_PATHS:
            return 404, 0, 0
        announced = headers.get("content-length", "")
        if not announced.isdecimal():
            return 411, 0, 0  # a body of unknown length could be endless
        if path in COORDINATOR_PATHS:
            return (
                (403 if scope["client"][0] not in self._own_addresses else self._too_long(int(announced))),
                int(announced),
                0,
            )
        node_id = self._signed_by(headers)
        return (401 if node_id is None else self._too_long(int(announced))), int(announced), node_id or 0

    def _too_long(self, length: int) -> int:
        return 413 if length > self._largest else 0

    def _signed_by(self, headers: dict[str, str]) -> int | None:
        """The node of the registered site that has signed the time, if one has."""
        try:
            key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER.lower()], validate=True)
            signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER.lower()], validate=True)
            timestamp = headers[TIMESTAMP_HEADER.lower()]
            age = (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(timestamp)).total_seconds()
            if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
                return None
            node_id: int | None = self._superlink.state.linkstate_factory.state().get_node_id_by_public_key(key)
            if node_id is None or not verify_signature(bytes_to_public_key(key), timestamp.encode("ascii"), signature):
                return None
            return node_id
        except (KeyError, ValueError, TypeError, UnicodeError, binascii.Error):
            return None


async def _answer(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b""})
