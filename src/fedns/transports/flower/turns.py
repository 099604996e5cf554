"""A site's turn: its answer and its wait for the next question as one request, where Flower's own protocol takes five.

    site    POST /v1/fleet/fedns-turn    [messages to push | what to pull | parts to push ...]
    door    confirm-message-received, push-messages, push-object; then pull-messages until there is one, pull-object
    site    gets                         [the messages pulled | the part pulled], or two empty parts after a while;
                                         a part that the coordinator has not sent whole yet the site pulls itself

The door makes SuperLink's own requests, one by one, with the site's own signature: nothing is stored or let in otherwise.
It looks again when the coordinator has pushed something, not many times a second.
SuperLink hands a question out once. The door confirms it when its answer comes, and until then hands it out again: a site
that comes without an answer was killed, or its line broke, and is asked at once what it was asked before.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

from fedns.transports.flower import settings as flower_settings  # noqa: F401  (before flwr)

from flwr.proto.fleet_pb2 import (  # isort: skip
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

TURN_PATH = "/v1/fleet/fedns-turn"
HOLD_SECONDS = 3.0  # how long a turn without a question lasts
PART_SECONDS, LOOK_SECONDS = 5.0, 0.01  # a message can be seen a moment before all of it is there
AFTERLIFE_SECONDS = 5.0  # a message outlives its exchange by this: asking for one that has expired is an error at SuperLink
_LENGTH = struct.Struct(">Q")


def pack_parts(parts: Sequence[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def unpack_parts(data: bytes, count: int) -> list[bytes]:
    """So many parts or more; raises ValueError where the bytes hold anything else."""
    parts: list[bytes] = []
    start = 0
    while start < len(data) or len(parts) < count:
        if start + _LENGTH.size > len(data):
            raise ValueError("parts are missing")
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size
        parts.append(data[start : start + length])
        start += length
    if start != len(data):
        raise ValueError("the lengths of the parts do not add up")
    return parts


def leaf(tree: ObjectTree) -> str:
    """The one part of a message that holds something: the record, or the message itself if it is an error."""
    while tree.children:
        tree = tree.children[0]
    return tree.object_id


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

    def __init__(self, superlink: Application, asked: Counter, answered: Counter) -> None:
        self._superlink = superlink
        self._asked, self._answered = asked, answered
        self._handed_out: dict[int, PullMessagesResponse] = {}  # by node: the question that it has not answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive)
            push, pull, *parts = unpack_parts(BytesValue.FromString(body).value, 2)
            if push:
                await self._push(scope, push, parts)
            gone = asyncio.ensure_future(receive())  # nothing more comes but the end of the connection
            try:
                found = await self._pull(scope, pull, gone)
            finally:
                gone.cancel()
        except Refused as refused:
            await _answer(send, refused.status, b"")
        except (DecodeError, ValueError):
            await _answer(send, 400, b"")
        else:
            await _answer(send, 200, BytesValue(value=pack_parts(found)).SerializeToString())

    async def _push(self, scope: Scope, push: bytes, parts: Sequence[bytes]) -> None:
        node = PushMessagesRequest.FromString(push).node
        if answered := self._handed_out.get(node.node_id):
            await self._confirm(scope, answered, node)  # and with it that the site speaks for itself
            self._handed_out.pop(node.node_id, None)
        response = PushMessagesResponse.FromString(await self._ask(scope, "push-messages", push))
        for request in map(PushObjectRequest.FromString, parts):
            if request.object_id in response.objects_to_push:
                request.session_id = response.session_id
                stored = PushObjectResponse.FromString(await self._ask(scope, "push-object", request.SerializeToString()))
                if not stored.stored:
                    raise Refused(410)  # the coordinator has given the request up
        await self._answered.add()

    async def _confirm(self, scope: Scope, question: PullMessagesResponse, node: Node) -> None:
        run, number = question.messages_list[0].metadata.run_id, question.message_object_trees[0].object_id
        request = ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=number)
        await self._ask(scope, "confirm-message-received", request.SerializeToString())

    async def _pull(self, scope: Scope, pull: bytes, gone: asyncio.Future[Any]) -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HOLD_SECONDS
        node = PullMessagesRequest.FromString(pull).node
        while pull and not gone.done():
            seen = self._asked.now
            # SuperLink is asked first: it also finds out whether the site speaks for itself.
            response = PullMessagesResponse.FromString(await self._ask(scope, "pull-messages", pull))
            if response.messages_list:
                self._handed_out[node.node_id] = response
            if question := self._handed_out.get(node.node_id):
                part = await self._part(scope, question, node)
                if part is not None:
                    return question.SerializeToString(), part
                self._handed_out.pop(node.node_id, None)  # the coordinator has given it up
            if (left := deadline - loop.time()) <= 0:
                break
            await self._asked.beyond(seen, left)
        return b"", b""

    async def _part(self, scope: Scope, question: PullMessagesResponse, node: Node) -> bytes | None:
        """The part of a question that holds something: empty where it is still on its way, None where there is none."""
        run, part = question.messages_list[0].metadata.run_id, leaf(question.message_object_trees[0])
        request = PullObjectRequest(node=node, run_id=run, object_id=part).SerializeToString()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PART_SECONDS
        while True:
            found = PullObjectResponse.FromString(await self._ask(scope, "pull-object", request))
            if found.object_available:
                return bytes(found.object_content)
            if not found.object_found:
                return None
            if loop.time() > deadline:
                return b""
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self, scope: Scope, name: str, body: bytes) -> bytes:
        """One of SuperLink's own requests, with the headers that the site has signed."""
        path = f"/v1/fleet/{name}"
        headers = [(key, value) for key, value in scope["headers"] if key != b"content-length"]
        inner = {**scope, "path": path, "raw_path": path.encode()}
        inner["headers"] = [*headers, (b"content-length", str(len(body)).encode())]
        sent, status, content = False, 500, bytearray()

        async def receive() -> MutableMapping[str, Any]:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: MutableMapping[str, Any]) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            else:
                content.extend(event.get("body", b""))

        await self._superlink(inner, receive, send)
        if status != 200:
            raise Refused(status)
        return bytes(content)


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
