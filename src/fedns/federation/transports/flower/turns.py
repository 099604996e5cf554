"""A site's turn: its answer and its wait for the next question as one request, where Flower's own protocol takes five.

    site    POST /v1/fleet/fedns-turn    [messages to push | what to pull | parts to push ...]
    door    confirms the message, pushes the answer and its parts; then pulls until there is a message, and its part
    site    gets                         [the messages pulled | the part pulled], or two empty parts after a while;

The door calls SuperLink's own handlers, one by one, for the site whose key has signed the turn and for no other: nothing is
stored or let in otherwise. As requests of their own they would pass nine layers of SuperLink's: most of its work.
The door looks again when the coordinator has pushed something, not many times a second.
SuperLink hands a question out once. The door confirms it when its answer comes, and until then hands it out again: a site
that comes without an answer was killed, or its line broke, and is asked at once what it was asked before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any

from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.error import FlowerError
from flwr.supercore.error.catalog import API_ERROR_MAP
from flwr.superlink.servicer.fleet import fleet_handlers
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue

from fedns.federation.transports.flower.connection import HOLD_SECONDS, leaf, pack_parts, unpack_parts

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.01  # a message can be seen a moment before all of it is there
HANDLERS: dict[type, Callable[[Any, LinkState], Any]] = {
    ConfirmMessageReceivedRequest: lambda request, state: fleet_handlers.confirm_message_received(
        request, state, state.object_store
    ),
    PullMessagesRequest: lambda request, state: fleet_handlers.pull_messages(request, state, state.object_store),
    PullObjectRequest: fleet_handlers.pull_object,
    PushMessagesRequest: fleet_handlers.push_messages,
    PushObjectRequest: fleet_handlers.push_object,
}
NOTHING = (b"", b"")


class Refused(Exception):
    """SuperLink's own refusal of one of the requests of a turn."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Counter:
    """Counts what happened, and wakes who waits for the next time."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Condition()

    @property
    def now(self) -> int:
        return self._count

    async def add(self) -> None:
        async with self._changed:
            self._count += 1
            self._changed.notify_all()

    async def beyond(self, seen: int, seconds: float) -> None:
        """Return when the count is no longer what was seen, or after a while."""
        with suppress(TimeoutError):
            async with self._changed:
                await asyncio.wait_for(self._changed.wait_for(lambda: self._count != seen), seconds)


class Turns:
    """What the door does for a site in one turn."""

    def __init__(self, state: Callable[[], LinkState], asked: Counter, answered: Counter) -> None:
        self._state = state
        self._asked, self._answered = asked, answered
        self._handed_out: dict[int, PullMessagesResponse] = {}  # by node: the question that it has not answered

    async def __call__(self, node_id: int, receive: Receive, send: Send) -> None:
        """The turn of this node: it was found out by its key, whatever it says of itself."""
        try:
            body = await read_body(receive)
            push, pull, *parts = unpack_parts(BytesValue.FromString(body).value, 2)
            if push:
                await self._push(node_id, PushMessagesRequest.FromString(push), map(PushObjectRequest.FromString, parts))
            gone = asyncio.ensure_future(receive())  # nothing more comes but the end of the connection
            try:
                found = await self._pull(node_id, PullMessagesRequest.FromString(pull), gone) if pull else NOTHING
            finally:
                gone.cancel()
        except Refused as refused:
            await _answer(send, refused.status, b"")
        except (DecodeError, ValueError):
            await _answer(send, 400, b"")
        else:
            await _answer(send, 200, BytesValue(value=pack_parts(found)).SerializeToString())

    async def _push(self, node_id: int, push: PushMessagesRequest, parts: Iterable[PushObjectRequest]) -> None:
        if answered := self._handed_out.get(node_id):
            run, number = answered.messages_list[0].metadata.run_id, answered.message_object_trees[0].object_id
            self._ask(node_id, ConfirmMessageReceivedRequest(node=push.node, run_id=run, message_object_id=number))
            self._handed_out.pop(node_id, None)
        response = self._ask(node_id, push)
        for request in parts:
            if request.object_id in response.objects_to_push:
                request.session_id = response.session_id
                if not self._ask(node_id, request).stored:
                    raise Refused(410)  # the coordinator has given the request up
        await self._answered.add()

    async def _pull(self, node_id: int, pull: PullMessagesRequest, gone: asyncio.Future[Any]) -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HOLD_SECONDS
        while not gone.done():
            seen = self._asked.now
            # Asked before the question that was handed out is looked at: a site that speaks for another gets neither.
            response = self._ask(node_id, pull)
            if response.messages_list:
                self._handed_out[node_id] = response
            coming = False
            if question := self._handed_out.get(node_id):
                run, part = question.messages_list[0].metadata.run_id, leaf(question.message_object_trees[0])
                found = self._ask(node_id, PullObjectRequest(node=pull.node, run_id=run, object_id=part))
                if found.object_available:
                    return question.SerializeToString(), bytes(found.object_content)
                coming = found.object_found
                if not coming:
                    self._handed_out.pop(node_id, None)  # the coordinator has given it up
            if (left := deadline - loop.time()) <= 0:
                break  # a question that is still on its way is asked for in the next turn
            await self._asked.beyond(seen, min(left, LOOK_SECONDS) if coming else left)
        return NOTHING

    def _ask(self, node_id: int, request: Any) -> Any:
        """What SuperLink answers to one of its own requests, made by this node for itself."""
        if request.node.node_id != node_id:
            raise Refused(401)
        try:
            return HANDLERS[type(request)](request, self._state())
        except FlowerError as error:
            log.warning("SuperLink refuses a site's %s: %s", type(request).__name__, error)
            raise Refused(API_ERROR_MAP[error.code].http_status_code) from error
        except Exception as error:  # a site's bytes can be anything: SuperLink's trouble with them is that site's
            log.exception("SuperLink failed over a site's %s", type(request).__name__)
            raise Refused(500) from error


async def read_body(receive: Receive) -> bytes:
    """All of a request's body; what there was of it where the connection has ended."""
    body, more = bytearray(), True
    while more:
        event = await receive()
        body.extend(event.get("body", b""))
        more = event["type"] == "http.request" and event.get("more_body", False)
    return bytes(body)


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/protobuf"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
