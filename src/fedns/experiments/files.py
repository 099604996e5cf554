"""Files that another process may look at, or that are being written when this one is killed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

LOCK_FILE = ".lock"


def write_whole(path: Path, text: str) -> None:
    """Write a file that is either complete or not there."""
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is at work in a folder; a lock ends with its process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w", encoding="utf-8") as file:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
