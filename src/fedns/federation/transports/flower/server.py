"""The coordinator's end of a Flower federation: a transport over the message API of a SuperLink that it runs itself.

The coordinator's own process is what Flower calls a ServerApp process: it submits a run, claims the run's task from the
SuperLink as Flower's SuperExec would, and with the token it gets sends messages and collects replies. Flower's usual
way, a SuperExec that starts `flwr-serverapp`, which unpacks an app and imports it, would run the coordinator as a
grandchild with its output swallowed; `Grid.pull_messages` waits whole seconds for the parts of a reply, and for hours
if a site stops in the middle of sending one. Here a half-sent reply is just a reply that has not come yet.
"""

from __future__ import annotations

import hashlib
import io
import ssl
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpx
from flwr.app import ConfigRecord, Message, Metadata
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import message_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    GetNodesRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_push_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError, inflate_object_from_contents, push_objects
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufClientInterceptor, ProtobufRequestContext
from flwr.supercore.runtime import RuntimeHttpClient

from fedns.federation.processes import LARGEST_MESSAGE, EngineError
from fedns.federation.protocol.transport import Arrival, Transport, failed_with, not_connected, too_late
from fedns.federation.transports.flower.client import MESSAGE_TYPE
from fedns.federation.transports.flower.connection import AFTERLIFE_SECONDS, leaf, pack, payload_of
from fedns.federation.transports.flower.credentials import contact
from fedns.federation.transports.flower.processes import Child, SuperLink, start_superlink

HEARTBEAT_SECONDS = 10.0  # Flower gives a task up after 60
PAUSE_SECONDS = 0.02
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
FAILURES = {
    ErrorCode.NODE_UNAVAILABLE: not_connected(),
    ErrorCode.MESSAGE_UNAVAILABLE: "it did not answer in time",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "it did not answer in time",
}
APP = """
[project]
name = "fedns-transport"
version = "1.0.0"
description = "Carries bytes between coordinator and sites"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedns"

[tool.flwr.app.components]
serverapp = "fedns.federation.transports.flower.server:FlowerTransport"
clientapp = "fedns.federation.transports.flower.client:serve"
"""


@dataclass
class _Reply:
    """A reply that was announced, and may still be on its way."""

    site: str
    question_id: str
    message_id: str
    part: str  # the one that holds something
    envelope_bytes: int


class FlowerTransport(Transport):
    """Carries bytes to the sites of a federation and back, through the SuperLink."""

    def __init__(
        self, client: RuntimeHttpClient, run_id: int, node_id: int, nodes: Mapping[str, int], superlink: Child
    ) -> None:
        self._superlink = superlink
        self._here: set[str] = set()  # sites that took the last request
        self._client = client
        self._run_id = run_id
        self._node = Node(node_id=node_id)
        self._nodes = dict(nodes)  # site -> Flower's number for its key
        self._over = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def connected(self) -> list[str]:
        try:
            online = {node.node_id for node in self._client.GetNodes(GetNodesRequest()).nodes}
        except httpx.HTTPError:
            self._superlink.check()
            raise
        return [site for site, node in self._nodes.items() if node in online]

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        deadline = time.monotonic() + timeout_seconds
        for site in requests.keys() - self._nodes.keys():
            yield Arrival(site, failure="it has no key here: run `fedns init-federation` again with all names")
        sent = {site: payload for site, payload in requests.items() if site in self._nodes}
        try:
            here = sent.keys() if self._here >= sent.keys() else set(self.connected())  # SuperLink calls the others an error
            for site in sent.keys() - here:
                yield Arrival(site, failure=not_connected(self._superlink.visitors.turned_away()))
            sent = {site: payload for site, payload in sent.items() if site in here}
            waiting, sizes = self._push(sent, timeout_seconds + AFTERLIFE_SECONDS)
        except (httpx.HTTPError, ObjectPushError) as error:
            self._superlink.check()
            yield from (Arrival(site, failure=f"it could not be asked: {error}") for site in sent)
            return
        self._here = (self._here - sent.keys()) | set(waiting.values())
        for site in sent.keys() - self._here:
            yield Arrival(site, failure=not_connected())
        replies: list[_Reply] = []
        try:
            while waiting or replies:
                arrivals = self._poll(waiting, replies, sizes)
                yield from arrivals
                self._superlink.check()
                if not arrivals and time.monotonic() >= deadline:
                    break
                if not arrivals:  # the door has kept us waiting already, but for parts that are still on their way
                    time.sleep(PAUSE_SECONDS)
        finally:  # also when the caller has seen enough
            self._forget([*waiting, *(reply.message_id for reply in replies)])
        for site in [*waiting.values(), *(reply.site for reply in replies)]:
            yield Arrival(site, failure=too_late(timeout_seconds), envelope_bytes=sizes[site])

    def close(self) -> None:
        """Tell the SuperLink that the run is over."""
        if not self._over.is_set():
            self._over.set()
            with suppress(httpx.HTTPError):  # it is about to be ended anyway
                self._client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED))
            self._client.close()

    def _push(self, requests: Mapping[str, bytes], ttl_seconds: float) -> tuple[dict[str, str], dict[str, int]]:
        """Hand the messages to the SuperLink; what is waited for, by message, and what Flower added, by site."""
        if not requests:
            return {}, {}
        records = {payload: pack(payload) for payload in requests.values()}  # what is sent to all is hashed and stored once
        messages = {
            site: make_message(self._metadata(self._nodes[site], ttl_seconds), records[payload])
            for site, payload in requests.items()
        }
        parts, lengths, sizes, heads, trees = {}, {}, {}, [], []
        with no_object_id_recompute():
            for site, message in messages.items():
                message.metadata.__dict__["_message_id"] = message.object_id
                own = get_all_nested_objects(message)
                lengths.update({number: len(part.deflate()) for number, part in own.items() if number not in lengths})
                head = message_to_proto(remove_content_from_message(message))
                sizes[site] = head.ByteSize() + sum(lengths[number] for number in own) - len(requests[site])
                parts.update(own)
                heads.append(head)
                trees.append(get_object_tree(message))
            response = self._client.PushMessages(PushAppMessagesRequest(messages_list=heads, message_object_trees=trees))
            push = make_push_object_fn_protobuf(self._client.PushObject, self._node, self._run_id, response.session_id)
            wanted, leaves = set(response.objects_to_push), {leaf(tree) for tree in trees}
            # A site confirms a message as soon as it has read the leaf, and what is confirmed takes no more parts.
            for batch in (wanted - leaves, wanted & leaves):
                push_objects(parts, push, object_ids_to_push=batch)
        return {number: site for number, site in zip(response.message_ids, messages, strict=True) if number}, sizes

    def _metadata(self, node_id: int, ttl_seconds: float) -> Metadata:
        # Flower's constructor takes run and task from the process, which may have more than one transport.
        return Metadata(
            run_id=self._run_id,
            message_id="",
            src_node_id=self._node.node_id,
            dst_node_id=node_id,
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=ttl_seconds,
            message_type=MESSAGE_TYPE,
        )

    def _poll(self, waiting: dict[str, str], replies: list[_Reply], sizes: Mapping[str, int]) -> list[Arrival]:
        """Collect what is there now; answered messages leave `waiting`, complete replies leave `replies`."""
        arrivals = []
        try:
            if waiting:
                response = self._client.PullMessages(PullAppMessagesRequest(message_ids=list(waiting)))
                for head, tree in zip(response.messages_list, response.message_object_trees, strict=True):
                    # An error that SuperLink makes up itself says nothing of the site but this.
                    question = head.metadata.reply_to_message_id
                    site = waiting.pop(question, None)
                    if site is not None:
                        replies.append(_Reply(site, question, tree.object_id, leaf(tree), sizes[site] + head.ByteSize()))
            for reply in list(replies):
                request = PullObjectRequest(node=self._node, run_id=self._run_id, object_id=reply.part)
                response = self._client.PullObject(request)
                if response.object_available:
                    replies.remove(reply)
                    arrivals.append(self._arrival(reply, response.object_content))
        except httpx.HTTPError as error:
            if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500:
                raise EngineError(f"the SuperLink refuses the coordinator: {error}") from error
        return arrivals

    def _arrival(self, reply: _Reply, content: bytes) -> Arrival:
        self._forget([reply.message_id])
        site, size = reply.site, reply.envelope_bytes + len(content)
        try:
            answer = inflate_object_from_contents(reply.part, {reply.part: content})
            if isinstance(answer, Message):
                self._forget([reply.question_id])  # which the site may not even have been asked
                what = FAILURES.get(answer.error.code) or failed_with(answer.error.reason or "an error")
                return Arrival(site, failure=what, envelope_bytes=size)
            payload = payload_of(cast(ConfigRecord, answer))
        except (KeyError, ValueError, TypeError) as error:
            return Arrival(site, failure=f"it sent what is no answer: {type(error).__name__}", envelope_bytes=size)
        return Arrival(site, payload, envelope_bytes=size - len(payload))

    def _forget(self, message_ids: list[str]) -> None:
        """Have the SuperLink drop messages: a site that comes back must not work on what nobody waits for."""
        for number in message_ids:
            with suppress(httpx.HTTPError):
                self._client.ConfirmMessageReceived(
                    ConfirmMessageReceivedRequest(node=self._node, run_id=self._run_id, message_object_id=number)
                )

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS):
            with suppress(httpx.HTTPError):  # an exchange meets the same trouble and reports it
                self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest())


@contextmanager
def open_engine(
    credentials: Path, listen: str, logs: Path, largest_message: int = LARGEST_MESSAGE
) -> Iterator[FlowerTransport]:
    """Run a SuperLink that listens at this host:port, and a run in it, until the block ends."""
    own, (host, _, port) = contact(credentials), listen.rpartition(":")
    if not own.known:
        raise EngineError("the federation has no sites; provision some")
    with start_superlink(own, logs, int(port), host=host, largest_message=largest_message) as link:
        nodes = register(link, own.known)
        submit_run(link)
        transport = claim_run(link, nodes)
        try:
            yield transport
        finally:
            transport.close()


def register(link: SuperLink, known: Mapping[str, Path]) -> dict[str, int]:
    """Tell the SuperLink which keys may connect; Flower's numbers for the sites."""
    with _control(link) as control:
        return {
            site: control.RegisterNode(RegisterNodeRequest(public_key=key.read_bytes(), name=site)).node_id
            for site, key in known.items()
        }


def _control(link: SuperLink) -> ControlHttpClient:
    return ControlHttpClient(f"https://{link.address}", interceptors=[_Bearer(link.secret)], verify=_trust(link))


def submit_run(link: SuperLink) -> int:
    """Start a run of an app that names our two ends; its number."""
    # Flower's function for this brings half of its command line along. An app is an archive with a list of contents.
    settings, archive = APP.encode(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("pyproject.toml", settings)
        files.writestr(".info/CONTENT", f"pyproject.toml,{hashlib.sha256(settings).hexdigest()},{8 * len(settings)}")
    with _control(link) as control:
        return int(control.StartRun(StartRunRequest(fab=Fab(content=archive.getvalue()))).run_id)


def claim_run(link: SuperLink, nodes: Mapping[str, int]) -> FlowerTransport:
    """Become the process of the run that was submitted."""
    version = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
    door = SuperExecAuthHttpInterceptor(master_secret=link.secret.encode(), protected_methods=frozenset({ACQUIRE}))
    with RuntimeHttpClient(f"https://{link.address}", interceptors=[version, door], verify=_trust(link)) as executor:
        claim = executor.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
    if not claim.token:
        raise EngineError("the SuperLink has no run for this coordinator")
    interceptors: list[ProtobufClientInterceptor] = [version, RuntimeTokenHttpInterceptor(claim.token)]
    client = RuntimeHttpClient(f"https://{link.address}", interceptors=interceptors, verify=_trust(link))
    task = client.PullTaskInput(PullTaskInputRequest())
    return FlowerTransport(client, task.run.run_id, task.context.node_id, nodes, link.child)


class _Bearer:
    """Shows the Control API the session's secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers["authorization"] = f"Bearer {self._secret}"
        return call_next(context)


def _trust(link: SuperLink) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=str(link.authority))
    return context
