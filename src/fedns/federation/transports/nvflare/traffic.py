"""Traffic of NVFlare's processes: they take the few messages that fedns needs, send each once, and keep none.

NVFlare clients and servers answer some forty topics: shell commands, deployment, shutdown, log settings, reports of every
kind, messages packed in bulk, streams of files, and whatever one site wants the server to pass on to another. None of it is
needed here, and little of it asks who is calling. So every message is looked at before it is decoded:

    a site takes    requests of fedns from its server, as frames of a stream, and acknowledgements
    a server takes  registration and heartbeats of sites, and answers that it waits for
    both take       replies to requests of their own, from whom they asked

Nothing is passed on between sites, and no port is opened for child processes, which there are none of.

As installed a site sends an answer again and again until it has a receipt, and after a while gives it up; meanwhile it keeps
a copy, and the server every answer and a thread. On a line on which an answer takes longer than the while, it never arrives.
Here it is sent once: what is lost with a connection the server asks for again (`Relay`), and the site has it on its disk.

At both ends what sends a message is part of a cycle, with the message and a buffer: it waits for Python's collector,
which counts objects, not bytes, and so comes after hundreds of megabytes.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

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
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.sfm import conn_manager
from nvflare.fuel.f3.stream_cell import StreamCell
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)
from nvflare.fuel.f3.streaming.stream_types import StreamFuture

CHANNEL, TOPIC = "fedns", "ask"
REFUSAL = "fedns takes no such message"
COLLECT_SECONDS = 1.0
FRAME_THREADS = 4

log = logging.getLogger("fedns.nvflare")

Rule = Callable[[CoreCell, Message], bool]

_REGISTRATION = {CellChannelTopic.Challenge, CellChannelTopic.Register, CellChannelTopic.Quit, CellChannelTopic.HEART_BEAT}
_FLOW = {(STREAM_CHANNEL, STREAM_ACK_TOPIC), (STREAM_CHANNEL, STREAM_ERROR_TOPIC)}
_FRAME = (STREAM_CHANNEL, STREAM_DATA_TOPIC)
_PLAIN = {Encoding.BYTES, Encoding.NONE, None}  # what is decoded as anything else could name classes to be built


def close_down(rule: Rule, host: str = "") -> None:
    """Let the cells of this process, which are yet to be started, take only requests that `rule` admits.

    host: the address to listen at, unless the credentials are for this machine alone; all of its addresses if none is given.
    """
    start = CoreCell.start

    def start_closed(cell: CoreCell) -> None:
        cell.create_internal_listener = False
        if host and isinstance(cell.root_url, list):  # NVFlare writes 0 for all addresses
            cell.root_url = [url.replace("://0:", f"://{host}:", 1) for url in cell.root_url]
        cell.set_message_interceptor(_refuse_request, cell, rule)
        cell.add_incoming_filter("*", "*", _drop_reply, cell)
        start(cell)

    CoreCell.start = start_closed


def site_takes(cell: CoreCell, message: Message) -> bool:
    """Whether a site takes this request: fedns's own, from the server."""
    kind = _kind(message)
    if message.get_header(MessageHeaderKey.ORIGIN) != FQCN.ROOT_SERVER:
        return False
    if kind == _FRAME:
        return _is_plain(message, StreamHeaderKey.PAYLOAD_ENCODING) and _stream(message) == (CHANNEL, TOPIC)
    return kind in _FLOW


def at_server(cell: CoreCell, message: Message) -> bool:
    """Whether the server takes this request: registration, heartbeats, and the frames of an answer it waits for."""
    channel, topic = kind = _kind(message)
    if kind == _FRAME:
        is_answer = _stream(message) == (CellChannel.RETURN_ONLY, f"{CHANNEL}:{TOPIC}")
        if message.get_header(StreamHeaderKey.RELIABLE):  # it would be kept, and a thread with it, for as long as they ask
            return False
        return is_answer and _is_plain(message, StreamHeaderKey.PAYLOAD_ENCODING) and _is_awaited(cell, message)
    return kind in _FLOW or (channel == CellChannel.SERVER_MAIN and topic in _REGISTRATION)


def _refuse_request(message: Message, cell: CoreCell, rule: Rule) -> Message | None:
    """NVFlare's interceptor: called with every request, also those for others, before anything is decoded."""
    takes_frames = _kind(message)[0] == STREAM_CHANNEL
    plain = not takes_frames or _is_plain(message, MessageHeaderKey.PAYLOAD_ENCODING)
    if _is_direct(cell, message) and plain and rule(cell, message):
        return None
    channel, topic = _kind(message)
    log.warning("refused %.80r of channel %.80r from %.80r", topic, channel, message.get_header(MessageHeaderKey.ORIGIN))
    return make_reply(ReturnCode.UNAUTHENTICATED, REFUSAL)


def _drop_reply(message: Message, cell: CoreCell) -> Message | None:
    """NVFlare's filter, called before the interceptor: for replies, which it would decode before looking for who asked."""
    if message.get_header(MessageHeaderKey.MSG_TYPE) == MessageType.REQ:
        return None
    numbers = message.get_header(MessageHeaderKey.REQ_ID)
    waiters = [cell.waiters.get(number) for number in ([numbers] if isinstance(numbers, str) else numbers or [])]
    origin = message.get_header(MessageHeaderKey.ORIGIN)
    if _is_direct(cell, message) and waiters and all(waiter is not None and origin in waiter.targets for waiter in waiters):
        return None
    return make_reply(ReturnCode.UNAUTHENTICATED, REFUSAL)  # anything that is not None drops it


def _is_direct(cell: CoreCell, message: Message) -> bool:
    """Whether the neighbour, whose name is that of its certificate, speaks for itself and to us."""
    endpoint = message.get_prop(MessagePropKey.ENDPOINT)
    origin, destination = (message.get_header(key) for key in (MessageHeaderKey.ORIGIN, MessageHeaderKey.DESTINATION))
    return endpoint is not None and endpoint.name == origin and destination == cell.get_fqcn()


def _is_awaited(cell: CoreCell, message: Message) -> bool:
    """Whether this frame answers a request under way, or repeats one of a stream that we have accepted."""
    origin, stream = message.get_header(MessageHeaderKey.ORIGIN), message.get_header(StreamHeaderKey.STREAM_ID)
    pending: dict[str, Any] = cell.get_fobs_context()["cell"].requests_dict
    waiter = pending.get(message.get_header(StreamHeaderKey.STREAM_REQ_ID))
    return (waiter is not None and waiter.target == origin) or (origin, stream) in RxTask.rx_task_map


def _is_plain(message: Message, key: str) -> bool:
    return message.get_header(key) in _PLAIN


def _kind(message: Message) -> tuple[str, str]:
    return message.get_header(MessageHeaderKey.CHANNEL, ""), message.get_header(MessageHeaderKey.TOPIC, "")


def _stream(message: Message) -> tuple[str, str]:
    return message.get_header(StreamHeaderKey.CHANNEL, ""), message.get_header(StreamHeaderKey.TOPIC, "")


def collect_often() -> None:
    """Have what was sent collected every second: little work, since what is there already is not looked at again."""

    def collect() -> None:
        while True:
            time.sleep(COLLECT_SECONDS)
            gc.collect()

    gc.freeze()
    threading.Thread(target=collect, name="fedns-collect", daemon=True).start()


def take_frames_with_few_threads() -> None:
    """Bound the threads that take in frames: there would be one more whenever none is idle, up to a hundred."""
    conn_manager.FRAME_THREAD_POOL_SIZE = FRAME_THREADS


def send_once() -> None:
    """Let this process send every message once, whatever NVFlare's code asks for."""
    send = StreamCell.send_blob

    def send_blob(cell: StreamCell, *arguments: Any, **named: Any) -> StreamFuture:
        return send(cell, *arguments, **{**named, "reliable": False})

    StreamCell.send_blob = send_blob
