"""Loaded into real NVFlare processes: an attacker's service, and servers and sites whose doors are left open."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nvflare.fuel.f3.cellnet.core_cell import CoreCell, TargetMessage
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import encode_payload
from nvflare.fuel.f3.message import Message
from nvflare.fuel.utils.buffer_list import BufferList
from nvflare.fuel.utils.fobs import FOBSContextKey
from nvflare.private.admin_defs import Message as AdminMessage
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from fedns.federation.transports.nvflare import client, server

ATTACK = b"attack "
PATIENCE_SECONDS = 5.0


def cell():
    """The cell of this process, with its streams."""
    (core,) = CoreCell.ALL_CELLS.values()
    return core.get_fobs_context()[FOBSContextKey.CELL]


def attack(way: str, target: str, channel: str, topic: str, payload: object) -> dict:
    """Send one message in one of the ways that cells know, and report what came back."""
    if way == "bulk":
        message = Message(payload=_payload(payload))
        encode_payload(message)
        message.payload = (
            bytes(BufferList(message.payload).flatten()) if isinstance(message.payload, list) else message.payload
        )
        item = TargetMessage(target, channel, topic, message).to_dict()
        refused = cell().core_cell.fire_and_forget(CellChannel.CELLNET, "bulk", target, Message(payload=[item]))
        return {"code": "sent", "error": str(refused or ""), "body": ""}
    send = cell()._send_request if way == "stream" else cell().core_cell.send_request
    reply = send(
        channel=channel, topic=topic, target=target, request=Message(payload=_payload(payload)), timeout=PATIENCE_SECONDS
    )
    body = reply.payload
    code, error = (reply.get_header(key, "") for key in (MessageHeaderKey.RETURN_CODE, MessageHeaderKey.ERROR))
    return {"code": code, "error": error, "body": str(body.body if isinstance(body, AdminMessage) else body)}


def attacks(described: bytes) -> bytes:
    """Many of them at once, since one that nobody answers takes all of our patience."""
    with ThreadPoolExecutor(32) as pool:
        return json.dumps(list(pool.map(lambda one: attack(*one), json.loads(described)))).encode()


def _payload(described: object) -> object:
    """An administrator's message, described by its topic, body and headers; anything else as it is."""
    if not isinstance(described, dict) or "admin" not in described:
        return described
    message = AdminMessage(described["admin"], described.get("body", ""))
    message.set_headers(described.get("headers", {}))
    return message


def registered() -> list[tuple[str, str]]:
    """Every channel and topic that this process answers."""
    keys = [*cell().core_cell.req_reg.reg, *cell().byte_receiver.registry.reg]
    return sorted({tuple(key.rsplit(":", 1)) for key in keys})


def administered() -> bool:
    """Whether NVFlare's administration has started, with all its processors: the server knows the site before that."""
    callback = cell().core_cell.req_reg.find(CellChannel.CLIENT_MAIN, "*")
    if callback is None:
        return False
    topics = {t for processor in ClientRequestProcessors.request_processors for t in processor.get_topics()}
    return topics <= set(callback.cb.__self__.processors)


def build(config: Path):
    def answer(request: bytes) -> bytes:
        if request.startswith(ATTACK):
            return attacks(request[len(ATTACK) :])
        if request == b"administered":
            return json.dumps(administered()).encode()
        return json.dumps(registered()).encode() if request == b"registered" else request[::-1]

    return answer


class OpenSite(client.SiteAnswers):
    """A site as it would be without what `SiteAnswers` closes."""

    def __init__(self, service: str, config: str) -> None:
        client.close_down = lambda rule: None
        processors = list(ClientRequestProcessors.request_processors)
        super().__init__(service, config)
        ClientRequestProcessors.request_processors.extend(processors)


class OpenServer(server.Relay):
    """A hostile coordinator's server: it passes anything on, and sends what it is told to."""

    def __init__(self, channel: int, host: str = "") -> None:
        server.close_down = lambda rule, host: None
        super().__init__(channel, host)

    def _answer(self, site: str, number: int, payload: bytes, seconds: float) -> tuple[bytes, str]:
        if site == "server" and payload == b"registered":
            return json.dumps(registered()).encode(), ""
        if site == "server":
            return attacks(payload[len(ATTACK) :]), ""
        return super()._answer(site, number, payload, seconds)
