"""Where an NVFlare server listens, as its cells see it when they start, and which answers it takes."""

from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_DATA_TOPIC, StreamHeaderKey

from fedns.transports.nvflare.incoming import CHANNEL, TOPIC, at_server, close_down


class Cell:
    """What `start` looks at, and nothing that opens a port."""

    create_internal_listener = True

    def __init__(self, *urls):
        self.root_url = list(urls)

    def set_message_interceptor(self, *_):
        self.closed = True

    def add_incoming_filter(self, *_):
        pass


@pytest.mark.parametrize(
    ("host", "written", "listens"),
    [
        ("10.1.2.3", "grpc://0:8002?admin=true", "grpc://10.1.2.3:8002?admin=true"),
        ("", "grpc://0:8002", "grpc://0:8002"),
        ("10.1.2.3", "grpc://127.0.0.1:8002", "grpc://127.0.0.1:8002"),  # credentials for this machine alone
    ],
)
def test_a_server_listens_where_it_is_told(host, written, listens, monkeypatch):
    started = []
    monkeypatch.setattr(CoreCell, "start", lambda cell: started.append(list(cell.root_url)))
    close_down(at_server, host)
    cell = Cell(written)
    CoreCell.start(cell)
    assert started == [[listens]]
    assert cell.closed and not cell.create_internal_listener


@pytest.mark.parametrize(
    ("changed", "taken"),
    [
        ({}, True),
        ({StreamHeaderKey.RELIABLE: True}, False),  # wants to be kept for as long as its sender says
        ({StreamHeaderKey.STREAM_REQ_ID: "another"}, False),
        ({MessageHeaderKey.ORIGIN: "bergen"}, False),
        ({StreamHeaderKey.TOPIC: "else"}, False),
    ],
)
def test_a_server_takes_the_frames_of_an_answer_that_it_waits_for(changed, taken):
    requests = {"question": SimpleNamespace(target="ankara")}
    cell = SimpleNamespace(get_fobs_context=lambda: {"cell": SimpleNamespace(requests_dict=requests)})
    headers = {
        MessageHeaderKey.CHANNEL: STREAM_CHANNEL,
        MessageHeaderKey.TOPIC: STREAM_DATA_TOPIC,
        MessageHeaderKey.ORIGIN: "ankara",
        StreamHeaderKey.CHANNEL: CellChannel.RETURN_ONLY,
        StreamHeaderKey.TOPIC: f"{CHANNEL}:{TOPIC}",
        StreamHeaderKey.STREAM_ID: 1,
        StreamHeaderKey.STREAM_REQ_ID: "question",
    }
    assert at_server(cell, Message({**headers, **changed})) is taken
