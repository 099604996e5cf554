"""What can be watched at the coordinator while it runs: the last round, and how every site is doing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fedns.core.history import Record
from fedns.federation.coordinator.session import Watcher
from fedns.federation.metrics import family, serve_text

_ROUND = {
    "round": ("gauge", "rounds finished"),
    "objective": ("gauge", "objective after the last round"),
    "gradient_norm": ("gauge", "gradient norm after the last round"),
    "seconds": ("counter", "seconds spent in rounds"),
    "uplink_bytes": ("counter", "bytes of messages sent by all sites"),
    "downlink_bytes": ("counter", "bytes of messages sent to all sites"),
    "evaluation_bytes": ("counter", "bytes both ways for the objective over all sites"),
    "exchanges": ("counter", "exchanges with sites"),
}
_SITE = {
    "answers": ("counter", "answers accepted"),
    "rejected": ("counter", "answers rejected"),
    "uplink_bytes": ("counter", "bytes of messages that left the site"),
    "downlink_bytes": ("counter", "bytes of messages that reached the site"),
    "envelope_bytes": ("counter", "bytes that packets and the engine added"),
    "seconds": ("gauge", "how long the last answer took"),
    "up": ("gauge", "1 while the site answers, 0 while it is away or has been silent for ten seconds"),
    "heard": ("gauge", "when the site last spoke, in seconds since 1970"),
    "waiting_seconds": ("gauge", "for how long the site has been asked without a word"),
}


class Metrics(Watcher):
    """Remembers the last round and the sites, and writes them down when asked."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self.port = 0  # where it is served

    def on_round(self, record: Record, state: Any) -> None:
        self._record = record

    def text(self) -> str:
        families = []
        if self._record is not None:
            families += [
                family(f"fedns_{name}", *about, {"": getattr(self._record, name)}) for name, about in _ROUND.items()
            ]
        for name, about in _SITE.items():
            families.append(family(f"fedns_site_{name}", *about, {s.name: getattr(s, name) for s in self.statuses}))
        return "".join(families)


@contextlib.contextmanager
def serve_metrics(port: int) -> Iterator[Metrics]:
    """Answer GET /metrics on this loopback port, any free one for 0, for as long as the block lasts."""
    metrics = Metrics()
    server = serve_text(metrics.text, port)
    metrics.port = server.server_port
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
