"""Files that another process may look at, or that are being written when this one is killed."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import math
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fedns.core.errors import ConfigError

LOCK_FILE = ".lock"
# What spreadsheets compute instead of showing it, however many marks of text are before it; a sign alone is shown.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20].", re.DOTALL)
# Full, over quota, beyond a limit of the account or the file system, broken, read-only (as the system makes a broken one).
_DISK_TROUBLES = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def checked_name(what: str, name: str) -> str:
    """The name, fit to be part of a file's name, of a label and of a page; any other is refused."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{what} is up to 63 letters, digits, '.', '_' and '-', the first a letter or digit, got {name!r}")
    return name


def disk_trouble(error: BaseException) -> str:
    """Say what is wrong with the disk, in words without data, where an error tells that; it may pass, or be mended."""
    return os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno in _DISK_TROUBLES else ""


def write_whole(path: Path, content: bytes | str, *, durable: bool = True) -> None:
    """Write a file so that whoever reads it, even after a crash in mid-write, sees the old or the new one entirely.

    durable: it survives a power cut too, which costs some milliseconds; without, it survives the death of the process.
    """
    with written_beside(path, content, durable=durable):
        pass


@contextlib.contextmanager
def written_beside(path: Path, content: bytes | str, *, durable: bool = True) -> Iterator[None]:
    """The same, but the old file stays until the block has ended well: what is done in it knows that there was room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with _named(path), partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield
        with _named(path):
            partial.replace(path)
    except Exception:  # a full disk, above all: half a file would only keep it full
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    if durable and sys.platform != "win32":  # the new name is an entry of the folder, which has to reach the disk too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the operating system name this file, not the one beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read '{path}': {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is not TOML: {error}") from None


def as_toml(value: Any) -> str:
    """The value as a settings file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(as_toml(item) for item in value)}]"
    if isinstance(value, str):  # JSON's escapes are TOML's, but for the delete character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, all of it or, where there is no room, nothing."""
    content = f"{line}\n".encode()
    with _named(path), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            written = file.write(content)
            if written != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """A table as a file, the headings in its first row."""
    write_whole(path, csv_text(rows), durable=False)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """A table as text. Numbers have all digits, and a cell without one is empty; no text is a formula to a spreadsheet."""
    return "".join(map(_line, rows))


def _line(row: Iterable[Any]) -> str:
    """Lines end as on Unix; the writer is not told, since it quotes only those marks of an end that it knows of."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(map(_cell, row))
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(float(value))  # float: numpy's say what they are
    text = "" if value is None else str(value)
    return f"'{text}" if isinstance(value, str) and _FORMULA.match(text) else text


def text_of_cell(cell: str) -> str:
    """A text as it was before it became a cell."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell


@contextlib.contextmanager
def alone_in(folder: Path, name: str = LOCK_FILE, *, wait: bool = True) -> Iterator[None]:
    """Wait until no other process is at work in a folder, or raise BlockingIOError; a lock ends with its process.

    The lock's file stays: removing it would let a third process in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w", encoding="utf-8") as file, locked(file.fileno(), wait=wait):
        yield


@contextlib.contextmanager
def locked(file: int, *, wait: bool = True) -> Iterator[None]:
    """Wait until nobody else who has opened this file holds its lock, or raise BlockingIOError; then hold it."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_UN)
