"""Flower as an engine: a SuperLink under the coordinator, and sites that speak its Fleet API.

What Flower is told through the environment stands here: it reads some of it while it is imported.
"""

from __future__ import annotations

import logging
import os

# No telemetry, no question for newer versions, no installing of packages at run time: nothing leaves but our messages.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")

os.environ.update(QUIET)
os.environ.setdefault("FLWR_LOG_LEVEL", "WARNING")
# Flower's HTTP client follows proxy settings even to the own machine.
for name in ("NO_PROXY", "no_proxy"):
    known = [host for host in os.environ.get(name, "").split(",") if host]
    os.environ[name] = ",".join(dict.fromkeys([*known, *LOOPBACK_NAMES]))
logging.getLogger("httpx").setLevel(logging.WARNING)  # which tells of every request otherwise
