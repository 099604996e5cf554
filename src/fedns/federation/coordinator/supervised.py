"""An engine that is started again when its process ends: a few times, and with its last words each time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

from fedns.federation.config import CREDENTIALS_FOLDER, check_expiry, engine_named
from fedns.federation.processes import EngineError, EngineLost
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.runs.over_sites import SiteRun

MOST_RESTARTS, WINDOW_SECONDS = 3, 600.0  # so many within so long; one more, and the run ends
log = logging.getLogger("fedns.coordinator")


class Supervised(Transport):
    """What `start` gives, and what it gives anew once that has ended; sites are asked again by whoever asked them."""

    def __init__(self, start: Callable[[], AbstractContextManager[Transport]]) -> None:
        self._start = start
        self._running = ExitStack()
        self._ends: list[float] = []  # times
        self._engine = self._running.enter_context(start())

    def connected(self) -> list[str]:
        try:
            return self._engine.connected()
        except EngineLost as lost:
            self._restart(lost)
            return []

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        waiting = dict.fromkeys(requests)
        try:
            for arrival in self._engine.exchange(requests, timeout_seconds):
                waiting.pop(arrival.site, None)
                yield arrival
        except EngineLost as lost:
            self._restart(lost)
            yield from (Arrival(site, failure=f"{lost}: it was started again") for site in waiting)

    def close(self) -> None:
        self._running.close()

    def _restart(self, lost: EngineLost) -> None:
        """Start the engine anew, or give up where it ends too often or cannot be started."""
        now = time.monotonic()
        self._ends = [end for end in self._ends if now - end < WINDOW_SECONDS] + [now]
        self._running.close()
        if len(self._ends) > MOST_RESTARTS:
            raise EngineLost(f"{lost}: the {len(self._ends)}th time in {WINDOW_SECONDS / 60:g} minutes") from lost
        log.warning("%s: it is started again", lost)
        try:
            self._engine = self._running.enter_context(self._start())
        except EngineError as error:
            raise EngineLost(f"{lost}, and could not be started again: {error}") from error


def open_transport(spec: SiteRun, *, logs: Path) -> AbstractContextManager[Transport]:
    """The experiment's engine, started from the coordinator's credentials, for as long as the block lasts."""
    engine = engine_named(spec.engine)
    check_expiry(engine, spec.home / CREDENTIALS_FOLDER)
    return closing(Supervised(lambda: engine.open(spec.home / CREDENTIALS_FOLDER, spec.listen, logs)))
