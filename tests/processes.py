"""Starting processes and waiting for them, on machines that may be busy."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

PATIENCE_SECONDS = 300.0  # only ends what hangs: a loaded machine takes ten times as long as an idle one


def start(command: Sequence[Any], **settings: Any) -> subprocess.Popen[Any]:
    """A child that Ctrl-C ends. One whose shell runs in the background would inherit that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, **settings)
    finally:
        signal.signal(signal.SIGINT, before)


def wait_until(true: Callable[[], Any], what: str, every_seconds: float = 0.02) -> None:
    """Return once it is true; fail and say what did not happen after long enough."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"it did not happen within {PATIENCE_SECONDS:g} s that {what}"
        time.sleep(every_seconds)
