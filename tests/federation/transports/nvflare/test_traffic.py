"""Where an NVFlare server listens, what its cells and those of sites take, from whom and encoded how, and send."""

from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    Encoding,
    MessageHeaderKey,
    MessagePropKey,
    MessageType,
    ReturnCode,
)
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.stream_cell import StreamCell
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)

from fedns.federation.transports.nvflare.traffic import CHANNEL, REFUSAL, TOPIC, at_server, close_down, send_once, site_takes

SERVER, SITE, NEIGHBOUR = "server", "ankara", "bergen"


class Cell:
    """What `start` and the rules look at, and nothing that opens a port."""

    create_internal_listener = True

    def __init__(self, *urls, name=SERVER):
        self.root_url, self.name = list(urls), name
        self.requests_dict, self.waiters = {}, {}

    def get_fqcn(self):
        return self.name

    def get_fobs_context(self):
        return {"cell": self}

    def set_message_interceptor(self, interceptor, *arguments):
        self.interceptor = lambda message: interceptor(message, *arguments)

    def add_incoming_filter(self, channel, topic, incoming, *arguments):
        assert (channel, topic) == ("*", "*")
        self.filter = lambda message: incoming(message, *arguments)


def closed(monkeypatch, rule, host="", **settings):
    """A cell that was started after the process had been closed down."""
    monkeypatch.setattr(CoreCell, "start", lambda cell: setattr(cell, "started_at", list(cell.root_url)))
    close_down(rule, host)
    cell = Cell(**settings) if not settings.get("urls") else Cell(*settings["urls"])
    CoreCell.start(cell)
    return cell


@pytest.mark.parametrize(
    ("host", "written", "listens"),
    [
        ("10.1.2.3", "grpc://0:8002?admin=true", "grpc://10.1.2.3:8002?admin=true"),
        ("", "grpc://0:8002", "grpc://0:8002"),
        ("10.1.2.3", "grpc://127.0.0.1:8002", "grpc://127.0.0.1:8002"),  # credentials for this machine alone
    ],
)
def test_a_server_listens_where_it_is_told(host, written, listens, monkeypatch):
    cell = closed(monkeypatch, at_server, host, urls=[written])
    assert cell.started_at == [listens]
    assert cell.filter and cell.interceptor and not cell.create_internal_listener


def message(channel, topic, origin, to, endpoint=None, kind=MessageType.REQ, **headers):
    """What a neighbour sends; `endpoint` is the name in its certificate, where it is not the one that it gives."""
    own = {
        MessageHeaderKey.CHANNEL: channel,
        MessageHeaderKey.TOPIC: topic,
        MessageHeaderKey.ORIGIN: origin,
        MessageHeaderKey.DESTINATION: to,
        MessageHeaderKey.MSG_TYPE: kind,
    }
    found = Message(own | headers, b"")
    if endpoint != "":
        found.set_prop(MessagePropKey.ENDPOINT, SimpleNamespace(name=endpoint or origin))
    return found


def request_at_site(origin=SERVER, to=SITE, endpoint=None, **changes):
    """A frame of a question, as the server sends it."""
    stream = {StreamHeaderKey.CHANNEL: CHANNEL, StreamHeaderKey.TOPIC: TOPIC}
    return message(STREAM_CHANNEL, STREAM_DATA_TOPIC, origin, to, endpoint, **(stream | changes))


def answer_at_server(origin=SITE, to=SERVER, endpoint=None, **changes):
    """A frame of an answer to the question that the server has put to ankara."""
    stream = {
        StreamHeaderKey.CHANNEL: CellChannel.RETURN_ONLY,
        StreamHeaderKey.TOPIC: f"{CHANNEL}:{TOPIC}",
        StreamHeaderKey.STREAM_ID: 1,
        StreamHeaderKey.STREAM_REQ_ID: "question",
    }
    return message(STREAM_CHANNEL, STREAM_DATA_TOPIC, origin, to, endpoint, **(stream | changes))


@pytest.fixture
def site(monkeypatch):
    return closed(monkeypatch, site_takes, name=SITE)


@pytest.fixture
def server(monkeypatch):
    cell = closed(monkeypatch, at_server, name=SERVER)
    cell.requests_dict["question"] = SimpleNamespace(target=SITE)
    return cell


def taken(cell, sent):
    """Whether it gets past the door; what does not gets a refusal in words of ours."""
    refusal = cell.interceptor(sent)
    if refusal is not None:
        assert refusal.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.UNAUTHENTICATED
        assert refusal.get_header(MessageHeaderKey.ERROR) == REFUSAL
    return refusal is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"endpoint": NEIGHBOUR}, False),  # a neighbour that gives the server as origin
        ({"endpoint": ""}, False),  # nobody knows whose connection it came over
        ({"origin": NEIGHBOUR}, False),
        ({"origin": NEIGHBOUR, "endpoint": SERVER}, False),  # passed on between sites
        ({"origin": "server.job"}, False),
        ({"to": NEIGHBOUR}, False),
        ({StreamHeaderKey.CHANNEL: "shell"}, False),
        ({StreamHeaderKey.TOPIC: "else"}, False),
        ({StreamHeaderKey.PAYLOAD_ENCODING: Encoding.BYTES}, True),
        ({StreamHeaderKey.PAYLOAD_ENCODING: Encoding.FOBS}, False),
        ({MessageHeaderKey.PAYLOAD_ENCODING: Encoding.BYTES}, True),
        ({MessageHeaderKey.PAYLOAD_ENCODING: Encoding.FOBS}, False),
    ],
)
def test_a_site_takes_requests_of_its_server_alone(changed, expected, site):
    assert taken(site, request_at_site(**changed)) is expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"endpoint": NEIGHBOUR}, False),  # a neighbour that gives ankara as origin
        ({"endpoint": ""}, False),
        ({"origin": NEIGHBOUR}, False),  # who was not asked
        ({"to": SITE}, False),  # to be passed on
        ({StreamHeaderKey.RELIABLE: True}, False),  # wants to be kept for as long as its sender says
        ({StreamHeaderKey.STREAM_REQ_ID: "another"}, False),
        ({StreamHeaderKey.CHANNEL: CHANNEL}, False),
        ({StreamHeaderKey.TOPIC: "else"}, False),
        ({StreamHeaderKey.PAYLOAD_ENCODING: Encoding.FOBS}, False),
        ({MessageHeaderKey.PAYLOAD_ENCODING: Encoding.FOBS}, False),
    ],
)
def test_a_server_takes_the_frames_of_an_answer_that_it_waits_for(changed, expected, server):
    assert taken(server, answer_at_server(**changed)) is expected


def test_a_frame_of_a_stream_that_was_accepted_is_taken_from_its_sender_alone(server, monkeypatch):
    monkeypatch.setattr(RxTask, "rx_task_map", {(SITE, 1): None})
    server.requests_dict.clear()
    assert taken(server, answer_at_server())
    assert not taken(server, answer_at_server(origin=NEIGHBOUR))
    assert not taken(server, answer_at_server(**{StreamHeaderKey.STREAM_ID: 2}))


REGISTRATION = {CellChannelTopic.Challenge, CellChannelTopic.Register, CellChannelTopic.Quit, CellChannelTopic.HEART_BEAT}
FLOW = {(STREAM_CHANNEL, STREAM_ACK_TOPIC), (STREAM_CHANNEL, STREAM_ERROR_TOPIC)}
CHANNELS = sorted({value for name, value in vars(CellChannel).items() if not name.startswith("_")} | {STREAM_CHANNEL, "*"})
TOPICS = sorted({value for name, value in vars(CellChannelTopic).items() if not name.startswith("_")} | {"shell", "*"})


@pytest.mark.parametrize("topic", [*TOPICS, STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC])
def test_every_other_topic_of_nvflare_is_refused_at_both_ends(topic, site, server):
    for channel in CHANNELS:
        registers = channel == CellChannel.SERVER_MAIN and topic in REGISTRATION
        flows = (channel, topic) in FLOW
        assert taken(server, message(channel, topic, SITE, SERVER)) is (registers or flows), channel
        assert taken(site, message(channel, topic, SERVER, SITE)) is flows, channel
        for claimed in (SITE, SERVER):  # by a neighbour with a certificate of its own
            assert not taken(server, message(channel, topic, claimed, SERVER, NEIGHBOUR))
            assert not taken(site, message(channel, topic, claimed, SITE, NEIGHBOUR))


def reply(numbers, origin=SITE, to=SERVER, endpoint=None):
    return message("", "", origin, to, endpoint, MessageType.REPLY, **{MessageHeaderKey.REQ_ID: numbers})


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (reply("asked"), True),
        (reply(["asked", "asked too"]), True),
        (reply("asked", endpoint=NEIGHBOUR), False),  # a neighbour that gives ankara as origin
        (reply("asked", endpoint=""), False),
        (reply("asked", origin=NEIGHBOUR), False),  # who was not asked
        (reply("asked", to=NEIGHBOUR), False),
        (reply("never asked"), False),
        (reply(["asked", "never asked"]), False),
        (reply(["asked", "another's"]), False),
        (reply([]), False),
        (reply(None), False),
    ],
)
def test_a_reply_is_taken_from_whom_was_asked(sent, expected, server):
    waiters = {"asked": [SITE], "asked too": [SITE, NEIGHBOUR], "another's": [NEIGHBOUR]}
    server.waiters |= {number: SimpleNamespace(targets=targets) for number, targets in waiters.items()}
    assert (server.filter(sent) is None) is expected


def test_requests_are_no_matter_of_the_filter_for_replies(server):
    assert server.filter(message(CHANNEL, TOPIC, NEIGHBOUR, SERVER)) is None


def test_every_message_is_sent_once_also_where_nvflare_wants_a_receipt(monkeypatch):
    sent = []
    monkeypatch.setattr(StreamCell, "send_blob", lambda cell, *arguments, **named: sent.append((arguments, named)))
    send_once()
    StreamCell.send_blob(None, "channel", "topic", "server", "answer", False, optional=True, reliable=True)
    StreamCell.send_blob(None, "channel", "topic", target="server", message="answer")
    (positional, named), (_, others) = sent
    assert positional == ("channel", "topic", "server", "answer", False) and named == {"optional": True, "reliable": False}
    assert others["reliable"] is False
