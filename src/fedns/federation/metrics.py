"""Numbers for a monitoring system, in the text format of Prometheus, on request and on the loopback address only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedns.core.errors import ConfigError
from fedns.federation.processes import LOOPBACK


def family(name: str, kind: str, words: str, values: Mapping[str, float]) -> str:
    """One number and what it is, for every site by its name, or under "" where it is no site's."""
    if kind == "counter":
        name += "_total"  # as Prometheus wants it
    lines = [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
    for site, value in values.items():
        lines.append(f'{name}{{site="{site}"}} {float(value):.15g}' if site else f"{name} {float(value):.17g}")
    return "\n".join(lines) + "\n"


def serve_text(text: Callable[[], str], port: int) -> ThreadingHTTPServer:
    """Answer GET /metrics on this loopback port, any free one for 0, until told to shut down or the process ends."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            if self.path == "/metrics":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Requests are not worth a line each."""

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), Answer)
    except OSError as error:
        raise ConfigError(f"metrics cannot be served on port {port}: {error.strerror}; choose another") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
