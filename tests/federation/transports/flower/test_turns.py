"""What the door does for a site in one turn, over a SuperLink whose handlers are written here."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the Flower engine needs flwr: pip install 'fedns[flower]'")

from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    Metadata,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import FlowerError
from flwr.supercore.error.catalog import API_ERROR_MAP
from google.protobuf.wrappers_pb2 import BytesValue

from fedns.federation.transports.flower import turns
from fedns.federation.transports.flower.connection import pack_parts, unpack_parts
from fedns.federation.transports.flower.turns import HANDLERS, NOTHING, Counter, Turns

NODE, RUN = 17, 5


class SuperLink:
    """Questions in a queue, each with one part; what sites push is kept."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.parts: dict[str, tuple[bool, bytes | None]] = {}  # whether it is known, and what of it is there
        self.confirmed: list[tuple[int, str]] = []
        self.pushed: list[tuple[str, str, bytes]] = []
        self.wanted: list[str] = []
        self.takes = True

    def ask(self, name: str, part: bytes | None) -> None:
        self.questions.append(name)
        self.parts[f"{name}/part"] = True, part

    def pull(self, request: PullMessagesRequest, state: Any) -> PullMessagesResponse:
        if not self.questions:
            return PullMessagesResponse()
        name = self.questions.pop(0)
        tree = ObjectTree(object_id=name, children=[ObjectTree(object_id=f"{name}/part")])
        return PullMessagesResponse(messages_list=[Message(metadata=Metadata(run_id=RUN))], message_object_trees=[tree])

    def pull_object(self, request: PullObjectRequest, state: Any) -> PullObjectResponse:
        assert request.run_id == RUN
        known, content = self.parts.get(request.object_id, (False, None))
        return PullObjectResponse(object_found=known, object_available=content is not None, object_content=content or b"")

    def confirm(self, request: ConfirmMessageReceivedRequest, state: Any) -> None:
        self.confirmed.append((request.run_id, request.message_object_id))

    def push(self, request: PushMessagesRequest, state: Any) -> PushMessagesResponse:
        return PushMessagesResponse(objects_to_push=self.wanted, session_id="session")

    def push_object(self, request: PushObjectRequest, state: Any) -> PushObjectResponse:
        self.pushed.append((request.object_id, request.session_id, request.object_content))
        return PushObjectResponse(stored=self.takes)


class Hall:
    """Turns over such a SuperLink."""

    def __init__(self) -> None:
        self.superlink = SuperLink()
        self.asked, self.answered = Counter(), Counter()
        self.turns = Turns(lambda: SimpleNamespace(), self.asked, self.answered)  # type: ignore[arg-type, return-value]
        self.gone = asyncio.Event()  # the site's connection

    async def turn(self, *parts: bytes, body: bytes | None = None) -> tuple[int, list[bytes]]:
        """The status of a turn, and what comes back."""
        sent = BytesValue(value=pack_parts(parts)).SerializeToString() if body is None else body
        events: list[dict[str, Any]] = [
            {"type": "http.request", "body": sent[:3], "more_body": True},
            {"type": "http.request", "body": sent[3:], "more_body": False},
        ]
        found: list[Any] = []

        async def receive() -> dict[str, Any]:
            if not events:
                await self.gone.wait()
                return {"type": "http.disconnect"}
            return events.pop(0)

        async def send(event: dict[str, Any]) -> None:
            found.append(event)

        await self.turns(NODE, receive, send)
        start, rest = found
        assert (b"content-length", str(len(rest["body"])).encode()) in start["headers"]
        return start["status"], unpack_parts(BytesValue.FromString(rest["body"]).value, 0) if start["status"] == 200 else []


@pytest.fixture
def hall(monkeypatch: pytest.MonkeyPatch) -> Hall:
    found = Hall()
    link = found.superlink
    handlers = (
        (ConfirmMessageReceivedRequest, link.confirm),
        (PullMessagesRequest, link.pull),
        (PullObjectRequest, link.pull_object),
        (PushMessagesRequest, link.push),
        (PushObjectRequest, link.push_object),
    )
    for kind, handler in handlers:
        monkeypatch.setitem(HANDLERS, kind, handler)
    monkeypatch.setattr(turns, "HOLD_SECONDS", 0.05)
    return found


def pull(node: int = NODE) -> bytes:
    return bytes(PullMessagesRequest(node=Node(node_id=node)).SerializeToString())


def push(node: int = NODE) -> bytes:
    return bytes(PushMessagesRequest(node=Node(node_id=node)).SerializeToString())


def part_of(name: str, node: int = NODE) -> bytes:
    return bytes(
        PushObjectRequest(node=Node(node_id=node), object_id=name, object_content=name.encode()).SerializeToString()
    )


def question_in(parts: list[bytes]) -> str:
    return str(PullMessagesResponse.FromString(parts[0]).message_object_trees[0].object_id)


def test_a_turn_without_a_question_lasts_a_while_and_brings_nothing(hall: Hall) -> None:
    async def run() -> None:
        began = asyncio.get_running_loop().time()
        assert await hall.turn(b"", pull()) == (200, list(NOTHING))
        assert asyncio.get_running_loop().time() - began >= 0.05
        assert await hall.turn(b"", b"") == (200, list(NOTHING))  # one that only pushes does not wait

    asyncio.run(run())


def test_a_question_is_handed_out_until_it_is_answered(hall: Hall) -> None:
    async def run() -> None:
        hall.superlink.ask("first", b"what?")
        for _ in range(3):  # a site that was killed comes again
            status, parts = await hall.turn(b"", pull())
            assert status == 200 and question_in(parts) == "first" and parts[1] == b"what?"
        assert hall.superlink.confirmed == []
        hall.superlink.ask("second", b"and?")
        status, parts = await hall.turn(push(), pull())
        assert hall.superlink.confirmed == [(RUN, "first")] and question_in(parts) == "second"
        assert await hall.turn(push(), pull()) == (200, list(NOTHING))
        assert await hall.turn(push(), pull()) == (200, list(NOTHING))  # nothing is confirmed twice
        assert hall.superlink.confirmed == [(RUN, "first"), (RUN, "second")]
        assert hall.answered.now == 3

    asyncio.run(run())


def test_a_new_question_takes_the_place_of_one_that_was_not_answered(hall: Hall) -> None:
    async def run() -> None:
        hall.superlink.ask("first", b"what?")
        await hall.turn(b"", pull())
        hall.superlink.ask("second", b"and?")
        _, parts = await hall.turn(b"", pull())
        assert question_in(parts) == "second"

    asyncio.run(run())


def test_a_question_that_comes_during_a_turn_is_handed_out_at_once(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "HOLD_SECONDS", 300.0)

    async def run() -> None:
        waiting = asyncio.ensure_future(hall.turn(b"", pull()))
        await asyncio.sleep(0.02)
        hall.superlink.ask("late", b"what?")
        assert not waiting.done()
        await hall.asked.add()
        _, parts = await waiting
        assert question_in(parts) == "late"
        leaving = asyncio.ensure_future(hall.turn(push(), pull()))
        await asyncio.sleep(0.02)
        hall.gone.set()  # nobody is there to be answered: the turn ends when it next looks
        await hall.asked.add()
        assert await leaving == (200, list(NOTHING))

    asyncio.run(run())


def test_a_part_that_is_on_its_way_is_waited_for_in_this_turn_and_in_later_ones(hall: Hall) -> None:
    async def run() -> None:
        hall.superlink.ask("slow", None)
        assert await hall.turn(b"", pull()) == (200, list(NOTHING))
        coming = asyncio.ensure_future(hall.turn(b"", pull()))
        await asyncio.sleep(0.02)
        hall.superlink.parts["slow/part"] = True, b"here"
        _, parts = await coming
        assert question_in(parts) == "slow" and parts[1] == b"here"

    asyncio.run(run())


def test_a_question_that_was_given_up_is_forgotten(hall: Hall) -> None:
    async def run() -> None:
        hall.superlink.ask("old", b"what?")
        await hall.turn(b"", pull())
        hall.superlink.parts.clear()
        assert await hall.turn(b"", pull()) == (200, list(NOTHING))
        assert await hall.turn(push(), b"") == (200, list(NOTHING))
        assert hall.superlink.confirmed == []

    asyncio.run(run())


def test_an_answer_brings_the_parts_that_are_wanted(hall: Hall) -> None:
    async def run() -> None:
        hall.superlink.wanted = ["b", "c"]
        parts = [part_of(name) for name in "abc"]
        assert await hall.turn(push(), b"", *parts) == (200, list(NOTHING))
        assert hall.superlink.pushed == [("b", "session", b"b"), ("c", "session", b"c")]
        hall.superlink.takes = False  # the coordinator has given the request up
        assert await hall.turn(push(), pull(), *parts) == (410, [])
        assert hall.answered.now == 1

    asyncio.run(run())


@pytest.mark.parametrize("other", [NODE + 1, 0])
def test_nobody_speaks_for_another_node(hall: Hall, other: int) -> None:
    async def run() -> None:
        hall.superlink.ask("first", b"what?")
        hall.superlink.wanted = ["a"]
        assert (await hall.turn(b"", pull(other)))[0] == 401
        assert (await hall.turn(push(other), b""))[0] == 401
        assert (await hall.turn(push(), b"", part_of("a", other)))[0] == 401
        assert hall.superlink.questions == ["first"] and hall.superlink.pushed == []
        assert question_in((await hall.turn(b"", pull()))[1]) == "first"

    asyncio.run(run())


@pytest.mark.parametrize("body", [b"", b"\xff\xff", BytesValue(value=b"short").SerializeToString()])
def test_what_is_no_turn_is_refused(hall: Hall, body: bytes) -> None:
    assert asyncio.run(hall.turn(body=body)) == (400, [])
    assert asyncio.run(hall.turn(b"\xff", b"")) == asyncio.run(hall.turn(b"", b"\xff")) == (400, [])


def test_what_superlink_says_of_a_request_is_the_sites_to_hear(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    code = next(iter(API_ERROR_MAP))

    def refuses(*_: Any) -> None:
        raise FlowerError(code, "no")

    monkeypatch.setitem(HANDLERS, PullMessagesRequest, refuses)
    assert asyncio.run(hall.turn(b"", pull())) == (API_ERROR_MAP[code].http_status_code, [])
    monkeypatch.setitem(HANDLERS, PullMessagesRequest, lambda *_: 1 / 0)
    assert asyncio.run(hall.turn(b"", pull())) == (500, [])


def test_a_counter_wakes_whoever_waits_for_the_next_time() -> None:
    async def run() -> None:
        counter, loop = Counter(), asyncio.get_running_loop()
        assert counter.now == 0
        waiting = asyncio.ensure_future(counter.beyond(0, 300.0))
        await asyncio.sleep(0)
        await counter.add()
        await waiting
        assert counter.now == 1
        await counter.beyond(0, 300.0)  # it is beyond that already
        began = loop.time()
        await counter.beyond(1, 0.02)
        assert loop.time() - began >= 0.019

    asyncio.run(run())
