"""Where compiled kernels are kept: beside their sources or in the user's cache, as numba does, else in one of our own."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def choose_cache_folder(sources: Path) -> None:
    """Name a folder where numba would find none: an account without a home and with read-only packages is a usual one."""
    if os.environ.get(VARIABLE) or _can_write(sources / "__pycache__") or _can_write(_user_cache()):
        return
    newest = max(source.stat().st_mtime_ns for source in sources.rglob("*.py"))
    folder = Path(tempfile.gettempdir()) / f"fedns-kernels-{os.getuid()}" / str(newest)  # an upgrade begins a new one
    if not (_can_write(folder.parent) and _is_ours(folder.parent) and _can_write(folder)):
        sentence = f"no folder for compiled kernels can be written: set {VARIABLE} to one"
        raise PermissionError(errno.EACCES, sentence, str(folder.parent))
    os.environ[VARIABLE] = str(folder)


@contextmanager
def alone_with(kernel: str, folder: Path) -> Iterator[None]:
    """Wait until no other process compiles a kernel into a folder; the lock ends with its process, its file stays."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{kernel}.lock").open("w", encoding="utf-8") as file:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "numba"


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except (OSError, RuntimeError):  # the latter: "~" stands for nothing
        return False


def _is_ours(folder: Path) -> bool:
    """What lies there is run: nobody else may have put it there."""
    facts = folder.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o022
