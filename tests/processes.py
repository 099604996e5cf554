"""Starting processes and waiting for them, on machines that may be busy."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
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


def family_of(pid: int) -> list[int]:
    """A process and all that it started, and they in turn."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parents.setdefault(int(status.read_text().rpartition(")")[2].split()[1]), []).append(int(status.parent.name))
    family = [pid]
    for member in family:  # grows while it is walked through
        family += parents.get(member, [])
    return family
