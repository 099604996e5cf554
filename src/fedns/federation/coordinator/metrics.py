"""Numbers for a monitoring system, in the text format of Prometheus, on request and on the loopback address only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedns.core.history import Record
from fedns.federation.coordinator.coordinate import Watcher
from fedns.federation.coordinator.status import SiteStatus

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
        self._statuses: Sequence[SiteStatus] = ()
        self.port = 0  # where it is served

    def on_start(self, statuses: Sequence[SiteStatus]) -> None:
        self._statuses = statuses

    def on_round(self, record: Record, state: Any) -> None:
        self._record = record

    def text(self) -> str:
        lines = []
        if self._record is not None:
            for name, (kind, words) in _ROUND.items():
                lines += _heading(f"fedns_{name}", kind, words)
                lines.append(f"fedns_{name} {getattr(self._record, name)!r}")
        for name, (kind, words) in _SITE.items():
            lines += _heading(f"fedns_site_{name}", kind, words)
            lines += [f'fedns_site_{name}{{site="{s.name}"}} {float(getattr(s, name)):.15g}' for s in self._statuses]
        return "\n".join(lines) + "\n"


def _heading(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]


@contextlib.contextmanager
def serve_metrics(port: int) -> Iterator[Metrics]:
    """Answer GET /metrics on this loopback port, any free one for 0, for as long as the block lasts."""
    metrics = Metrics()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = metrics.text().encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            if self.path == "/metrics":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Requests are not worth a line each."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Answer)
    metrics.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
