"""The component that an NVFlare client loads: it hands what the server asks to the site's service."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from fedns.core.errors import FednsError
from fedns.federation.processes import load_service
from fedns.federation.protocol.transport import COORDINATOR, failed_with
from fedns.federation.reachable import DistrustError, why_not_there
from fedns.federation.transports.nvflare.processes import REASON, REFUSED, contact
from fedns.federation.transports.nvflare.traffic import CHANNEL, TOPIC, close_down, collect_often, send_once, site_takes

SESSION = "fedns_session"  # header: a random word that the server's process has chosen
EXCHANGE = "fedns_exchange"  # header: the number of the exchange, larger for later ones of the same session

LOOK_SECONDS = 2.0  # between two looks at whether the server is there
log = logging.getLogger("fedns.site")


class SiteAnswers(FLComponent):  # type: ignore[misc]
    """Answers one request after the other, for as long as the process that started this client lives."""

    def __init__(self, service: str, config: str) -> None:
        super().__init__()
        # NVFlare's administration (shell commands, deployment, shutdown, ...) asks for authorisation only if the sender
        # wants it to, and takes requests from fellow sites too: without this anyone could read any file of this account.
        # Two locks: no such request gets in, and nobody would be there to serve it. Emptied in place, since the admin
        # agent, which starts later, holds this very list.
        close_down(site_takes)
        ClientRequestProcessors.request_processors.clear()
        try:
            self._service = load_service(service, Path(config))
        except Exception as error:
            # Raised, it would be one line in NVFlare's log and a restart.
            _give_up(str(error) if isinstance(error, FednsError) else f"{type(error).__name__}: {error}")
        collect_often()
        send_once()
        self._one_at_a_time, self._counting = threading.Lock(), threading.Lock()
        self._newest: tuple[str, int] = ("", 0)  # session and exchange of the last request that arrived

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        # Before registering: a site that the server knows must be able to answer.
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            threading.Thread(target=_end_with_parent, name="fedns-parent", daemon=True).start()
            name, cell = fl_ctx.get_identity_name(), fl_ctx.get_engine().get_cell().core_cell
            threading.Thread(target=_tell_of_connection, args=(name, cell), name="fedns-watch", daemon=True).start()
            fl_ctx.get_engine().get_cell().register_request_cb(channel=CHANNEL, topic=TOPIC, cb=self.answer)

    def answer(self, request: Message) -> Message:
        """The reply to one request of the server, and of nobody else: sites can write to each other through it."""
        # The server checks that a message passed on between sites carries its sender's own name as origin.
        if request.get_header(MessageHeaderKey.ORIGIN) != FQCN.ROOT_SERVER:
            return make_reply(ReturnCode.UNAUTHENTICATED, "only the server may ask")
        session, number, payload = request.get_header(SESSION), request.get_header(EXCHANGE), request.payload
        numbered = isinstance(session, str) and isinstance(number, int)
        if not numbered or not isinstance(payload, (bytes, bytearray, memoryview)):
            return make_reply(ReturnCode.INVALID_REQUEST, "a request is bytes with the number of its exchange")
        COORDINATOR.note(True)
        with self._counting:
            # Nothing of a server arrives after the first word of the next one: its connection is gone.
            if session != self._newest[0] or number > self._newest[1]:
                self._newest = (session, number)
        with self._one_at_a_time:
            # After a pause, requests have piled up whose exchanges are over: answering them would only delay the last one.
            if (session, number) != self._newest:
                return make_reply(ReturnCode.ABORT_RUN, "a later request has arrived")
            try:
                return make_reply(ReturnCode.OK, body=self._service(bytes(payload)))
            except Exception as error:
                # The text may hold data: it stays here, in the log.
                self.logger.exception("the service failed")
                return make_reply(ReturnCode.PROCESS_EXCEPTION, failed_with(type(error).__name__))


def _give_up(reason: str) -> None:
    """End where starting again would not help; the parent says why, and ends too."""
    print(f"{REASON}{' '.join(reason.split())}", file=sys.stderr, flush=True)
    os._exit(REFUSED)


def _tell_of_connection(name: str, cell: Any) -> None:
    """Say when this site is connected and when it is not, and why; NVFlare itself tries again for as long as it takes.

    A coordinator that cannot be trusted ends the site, as it does over every engine.
    """
    where = contact(Path())  # a client runs in the folder of its credentials
    connected, said = False, ""
    while True:
        COORDINATOR.note(there := cell.is_cell_connected(FQCN.ROOT_SERVER))
        if there:
            if not connected:
                log.info("%s is connected to %s:%d", name, where.host, where.port)
            connected, said = True, ""
        else:
            try:
                reason = why_not_there(where) or "it is there, but does not take this site in yet"
            except DistrustError as error:
                _give_up(str(error))
            if connected or reason != said:
                log.info("%s waits for a coordinator at %s:%d: %s", name, where.host, where.port, reason)
            connected, said = False, reason
        time.sleep(LOOK_SECONDS)


def _end_with_parent() -> None:
    stdin: Any = sys.stdin
    stdin.buffer.read()  # returns when the parent has closed its end of the pipe or is gone
    os._exit(0)
