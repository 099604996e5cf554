"""A site's connection to the SuperLink: an activated node that takes turns."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_MIN_INTERVAL, HEARTBEAT_PATIENCE, ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from google.protobuf.wrappers_pb2 import BytesValue

from fedns.federation.processes import LARGEST_MESSAGE, EngineError
from fedns.federation.protocol.transport import COORDINATOR
from fedns.federation.reachable import Contact

Answer = Callable[[bytes], bytes]

PAYLOAD = "payload"
TURN_PATH = "/v1/fleet/fedns-turn"
HOLD_SECONDS = 3.0  # how long a turn without a question lasts
AFTERLIFE_SECONDS = 5.0  # a message outlives its exchange by this: asking for one that has expired is an error at SuperLink
_LENGTH = struct.Struct(">Q")
TURN_SECONDS = HOLD_SECONDS + 30.0  # the longest silence of the other end during a turn, on a slow line
log = logging.getLogger("fedns.site")


def pack(payload: bytes) -> RecordDict:
    """Bytes as Flower carries them: one record, since every further object costs two requests each way."""
    return RecordDict({PAYLOAD: ConfigRecord({PAYLOAD: payload})})


def payload_of(record: ConfigRecord) -> bytes:
    """The bytes of the one record that `pack` makes."""
    return cast(bytes, record[PAYLOAD])


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


class Connection:
    """An activated node: what Flower's SuperNode is to the SuperLink."""

    def __init__(self, client: Courier, node: Node) -> None:
        self.client = client
        self.node = node

    @classmethod
    @contextmanager
    def open(cls, credentials: Contact, lease_seconds: float) -> Iterator[Connection]:
        assert credentials.key is not None
        key = load_ssh_private_key(credentials.key.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise EngineError(f"{credentials.key} is no elliptic-curve key; provision the site again")
        signing: list[ProtobufClientInterceptor] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ]
        with Courier.from_server_address(credentials.address, False, credentials.authority.read_bytes(), signing) as client:
            interval = max(float(HEARTBEAT_MIN_INTERVAL), lease_seconds / HEARTBEAT_PATIENCE)
            node = cls._activate(client, key, interval, credentials.key.with_suffix(".id"))
            over = threading.Event()
            heart = threading.Thread(target=cls._beat, args=(client, node, interval, over), daemon=True)
            heart.start()
            try:
                yield cls(client, node)
            finally:
                over.set()
                heart.join(1.0)
                with suppress(httpx.HTTPError):  # so that the coordinator need not wait for the lease to run out
                    client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))

    @staticmethod
    def _activate(client: FleetHttpClient, key: ec.EllipticCurvePrivateKey, interval: float, remembered: Path) -> Node:
        public = public_key_to_bytes(key.public_key())
        request = ActivateNodeRequest(public_key=public, heartbeat_interval=interval)
        try:
            number = client.ActivateNode(request).node_id
        except httpx.HTTPStatusError:
            if not remembered.exists() or not remembered.read_text().isdigit():
                raise
            # An earlier process of this site was killed, and Flower still holds its place: take it.
            number = int(remembered.read_text())
            beat = SendNodeHeartbeatRequest(node=Node(node_id=number), heartbeat_interval=interval)
            if not client.SendNodeHeartbeat(beat).success:
                raise
        with suppress(OSError):  # a folder that cannot be written costs a lease's time after a crash, no more
            remembered.write_text(str(number))
        return Node(node_id=number)

    @staticmethod
    def _beat(client: FleetHttpClient, node: Node, interval: float, over: threading.Event) -> None:
        request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=interval)
        while not over.wait(interval / 2):
            try:
                client.SendNodeHeartbeat(request)
            except httpx.HTTPError as error:  # the working thread meets the same trouble and deals with it
                log.debug("heartbeat: %s", error)

    def work(self, answer: Answer, stop: threading.Event) -> None:
        """Take turns: answer what was asked and wait for the next question."""
        reply: Message | None = None
        while reply is not None or not stop.is_set():
            found = self._turn(reply, wait=not stop.is_set())
            COORDINATOR.note(True)
            reply = reply_to(*found, answer) if found is not None else None

    def _turn(self, reply: Message | None, *, wait: bool) -> tuple[Message, bytes] | None:
        """Send a reply, if there is one, and get the next message with its payload, if one comes."""
        pull = PullMessagesRequest(node=self.node).SerializeToString() if wait else b""
        try:
            head, part = self.client.turn(pull, *self._pushed(reply))
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.GONE:
                raise
            log.info("the coordinator has given this request up")
            return None
        if not head:
            return None
        response = PullMessagesResponse.FromString(head)
        message = message_from_proto(response.messages_list[0])
        tree = response.message_object_trees[0]
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message, payload_of(ConfigRecord.inflate(part))

    def _pushed(self, reply: Message | None) -> tuple[bytes, list[bytes]]:
        """The requests that hand a reply over: one for the message, and one for each of its parts."""
        if reply is None:
            return b"", []
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            tree = get_object_tree(reply)
            messages = PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[tree],
                clientapp_runtime_list=[0.0],
            )
            contents = {number: part.deflate() for number, part in get_all_nested_objects(reply).items()}
        # SuperLink keeps an account of every message until it has all parts. The one that the coordinator reads is the last.
        order = sorted(contents, key=lambda number: number == leaf(tree))
        run = reply.metadata.run_id
        parts = [PushObjectRequest(node=self.node, run_id=run, object_id=n, object_content=contents[n]) for n in order]
        return messages.SerializeToString(), [part.SerializeToString() for part in parts]


class Courier(FleetHttpClient):
    """Flower's client, with one request more."""

    def turn(self, pull: bytes, push: bytes, parts: list[bytes]) -> list[bytes]:
        """Push a reply, if any, and wait for the next message: its head and its part, both empty if none came."""
        answer = self._unary_unary(
            path=TURN_PATH,
            rpc_method="/flwr.proto.Fleet/PullMessages",
            request=BytesValue(value=pack_parts([push, pull, *parts])),
            response_type=BytesValue,
            timeout=TURN_SECONDS,
        )
        return unpack_parts(answer.value, 2)


def reply_to(message: Message, payload: bytes, answer: Answer) -> Message:
    """The answer to a message, or that there is none: the class of what went wrong."""
    try:
        content = answer(payload)
        if len(content) > LARGEST_MESSAGE:
            raise EngineError(f"the answer has {len(content)} bytes, and a message at most {LARGEST_MESSAGE}")
        return Message(pack(content), reply_to=message)
    except Exception as error:
        log.exception("the service failed")
        # The text of an exception may hold data; its class does not.
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, type(error).__name__), reply_to=message)
