"""Which lines of some files are run, in this process and in those that it starts."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

FILES, CHILDREN = "MUTATION_FILES", "MUTATION_CHILDREN"  # environment: the files to watch, and where children write


def watch(files: list[str], seen: Callable[[str, int], None]) -> None:
    """Call `seen` with every line of these files that runs, in whichever thread."""
    watched = frozenset(files)

    def lines(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            seen(frame.f_code.co_filename, frame.f_lineno)
        return lines

    def calls(frame: FrameType, _event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in watched:
            return None
        seen(frame.f_code.co_filename, frame.f_lineno)
        return lines

    threading.settrace(calls)
    sys.settrace(calls)


def watch_child() -> None:
    """In a process that a test started: write each line the first time, at once, because such processes are killed."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    where = os.environ.get(CHILDREN, "")
    if not test or not where:
        return
    output = os.open(where, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    known: set[tuple[str, int]] = set()

    def seen(file: str, line: int) -> None:
        if (file, line) not in known:
            known.add((file, line))
            os.write(output, f"{test}\t{file}\t{line}\n".encode())

    watch(Path(os.environ[FILES]).read_text(encoding="utf-8").splitlines(), seen)
