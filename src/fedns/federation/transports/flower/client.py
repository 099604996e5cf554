"""A site in a Flower federation: takes requests from the coordinator's SuperLink and answers them with a function of bytes.

`serve` is the site: one process that speaks Flower's Fleet API with Flower's own client. It never runs code that the
coordinator sends, keeps the service (and with it the data) in memory, and takes turns (`turns.py`): one request hands over
an answer and waits for the next question. Flower's own SuperNode would wait three seconds between questions, half a second
for each answer, and start for every message a process that runs what the coordinator has sent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from fedns.federation.processes import EngineError, RunningError, Service, only_process
from fedns.federation.protocol.transport import COORDINATOR
from fedns.federation.reachable import Contact
from fedns.federation.transports.flower.connection import Answer, Connection
from fedns.federation.transports.flower.credentials import contact

LEASE_SECONDS = 20.0  # how long a silent site counts as connected and a killed one's place is held; Flower's least
DISTRUST = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")  # OpenSSL's words; the second is for plain text
MESSAGE_TYPE = "query"
CLOCK_SECONDS = 5.0  # Flower signs the time, and refuses what is signed so much later than now

log = logging.getLogger("fedns.site")


def serve_rows(credentials: Path, service: Callable[[Path], Service], config: Path) -> None:
    """Answer with what service makes of the configuration."""
    serve(contact(credentials), service(config))


def serve(credentials: Contact, answer: Answer, *, stop: threading.Event | None = None) -> None:
    """Answer the coordinator until told to stop, looking for it whenever, and for as long as, it is not there.

    Raises EngineError when the coordinator's certificate does not do, and when it does not know this site's key.
    """
    stop, refusals_seconds = stop or threading.Event(), 1.25 * LEASE_SECONDS
    refused_since: float | None = None
    waiting = False
    while not stop.is_set():
        try:
            with Connection.open(credentials, LEASE_SECONDS) as connection:
                log.info("%s is connected to %s", credentials.name, credentials.address)
                waiting = False
                COORDINATOR.note(True)
                try:
                    connection.work(answer, stop)
                finally:
                    COORDINATOR.note(False)
                    refused_since = None
        except httpx.HTTPStatusError as error:
            refusal = f"{credentials.address} refuses site {credentials.name}: {_reason(error)}"
            if refused_since is None:
                refused_since = time.monotonic()
                log.warning("%s; trying on for %g s", refusal, refusals_seconds)
            elif time.monotonic() - refused_since > refusals_seconds:
                raise EngineError(refusal) from error
        except httpx.TransportError as error:
            if any(word in str(error) for word in DISTRUST):
                raise EngineError(f"{credentials.address} cannot be trusted: {error}") from error
            if not waiting:
                log.info("%s waits for a coordinator at %s: %s", credentials.name, credentials.address, error)
            waiting = True
        stop.wait(0.5)


def why_not_admitted(folder: Path) -> str:
    """Why the coordinator does not take this site in; nothing where it does, or where the site is running already."""
    credentials = contact(folder)
    try:
        with only_process(folder, credentials.name), Connection.open(credentials, LEASE_SECONDS):
            return ""
    except RunningError:
        return ""
    except httpx.HTTPStatusError as error:
        return _reason(error)
    except httpx.TransportError as error:
        return str(error)


def _clock_difference(response: httpx.Response) -> float:
    """By how many seconds this machine's clock is ahead of that of whoever answered."""
    try:
        theirs = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError):
        return 0.0
    return time.time() - theirs.timestamp()


def _reason(error: httpx.HTTPStatusError) -> str:
    if error.response.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
        return "the answer is longer than it takes"
    if abs(apart := _clock_difference(error.response)) > CLOCK_SECONDS:
        return (
            f"this machine's clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the coordinator's; set it"
        )
    if error.response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.PRECONDITION_FAILED):
        return "its key is not registered there, or is in use by another process"
    return f"HTTP {error.response.status_code}"
