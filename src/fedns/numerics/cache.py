"""Where compiled kernels are kept: beside their sources, as numba does, else in the user's cache or a temporary folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def choose_cache_folder(sources: Path) -> None:
    """Name a folder where numba may not write beside the sources: packages are read-only in many accounts and containers.

    Each state of the sources has a folder of its own, since numba would go on with a kernel whose own file is unchanged,
    whatever became of those it calls.
    """
    if os.environ.get(VARIABLE) or _can_write(sources / "__pycache__"):
        return
    version = _digest(sources)
    temporary = Path(tempfile.gettempdir()) / f"fedns-kernels-{os.getuid()}"
    for base in (*_user_cache(), temporary):
        if _can_write(base) and _is_ours(base) and _can_write(base / version):
            os.environ[VARIABLE] = str(base / version)
            return
    sentence = f"no folder for compiled kernels can be written: set {VARIABLE} to one"
    raise PermissionError(errno.EACCES, sentence, str(temporary))


@contextlib.contextmanager
def alone_with(kernel: str, folder: Path) -> Iterator[None]:
    """Wait until no other process compiles a kernel into a folder; the lock ends with its process, its file stays."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{kernel}.lock").open("w", encoding="utf-8") as file:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _user_cache() -> list[Path]:
    """The user's folder for such things, in a list that is empty without a home."""
    base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # "~" stands for nothing
        return [(Path(base) if base else Path("~/.cache").expanduser()) / "fedns-kernels"]
    return []


def _digest(sources: Path) -> str:
    """What tells the sources of kernels from those of another version; the times of files may be the same in all of them."""
    digest = hashlib.sha256()
    for source in sorted([*sources.parent.glob("*.py"), *sources.rglob("*.py")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_ours(folder: Path) -> bool:
    """What lies there is run: nobody else may have put it there."""
    facts = folder.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o022
