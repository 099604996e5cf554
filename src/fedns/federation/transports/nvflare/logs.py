"""What NVFlare's processes write: rotated, the same line once a minute, and a site's own words to whoever started it."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import IO, Any

OWNER = "FEDNS_OWNER"  # environment: the descriptor of the standard error of the process that started this one
REPEATED_SECONDS = 60.0
LARGEST_FILE, OLD_FILES = 2 << 20, 2  # bytes, and how many of them are kept
_FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"


class Sparse(logging.Filter):
    """Lets what a line of NVFlare's code says through once a minute: while it waits it says the same again and again."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("fedns"):
            return True
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._last.get(place, -REPEATED_SECONDS) < REPEATED_SECONDS:
            return False
        self._last[place] = now
        return True


def owner_handler() -> logging.Handler:
    """To the terminal or journal of whoever started this process, if that can be told."""
    descriptor = os.environ.get(OWNER, "")
    stream: IO[str] = os.fdopen(int(descriptor), "w", closefd=False) if descriptor.isdigit() else sys.stderr
    return logging.StreamHandler(stream)


def log_settings() -> dict[str, Any]:
    """NVFlare's `log_config.json`."""
    here = f"{__name__}."
    file = {"class": "logging.handlers.RotatingFileHandler", "filename": "log.txt", "maxBytes": LARGEST_FILE}
    shared = {"formatter": "plain", "filters": ["sparse"]}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": _FORMAT}},
        "filters": {"sparse": {"()": f"{here}Sparse"}},
        "handlers": {
            "console": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout", **shared},
            "file": {**file, "backupCount": OLD_FILES, **shared},
            "owner": {"()": f"{here}owner_handler", "formatter": "plain"},
        },
        "loggers": {"fedns.site": {"level": "INFO", "handlers": ["owner"]}},
        "root": {"level": "INFO", "handlers": ["console", "file"]},
    }
