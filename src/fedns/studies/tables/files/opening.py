"""Opening data files, compressed or not, with errors that name the file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fedns.core.errors import DataError

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSED = frozenset(_OPENERS)


def check_file(path: Path) -> None:
    """Refuse a path that is not a file with something in it."""
    if path.is_dir():
        raise DataError(f"{path} is a folder: name a file in it")
    if not path.is_file():
        raise DataError(f"{path} does not exist: check the path, which starts from the current folder unless absolute")
    if path.stat().st_size == 0:
        raise DataError(f"{path.name} is empty: expected one row of data per line")


def format_suffix(path: Path) -> str:
    """The suffix that tells the format, lower case and without that of a compressor: `.csv` for `heart.csv.gz`."""
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path.suffix.lower()


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a file; damage found while reading is reported as one sentence."""
    opener = _OPENERS.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as stream:
            yield stream
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(_damaged(path, error)) from error
    except OSError as error:
        # bz2 reports a damaged stream as a bare OSError, without an errno.
        problem = _damaged(path, error) if error.errno is None else f"{path.name} cannot be read: {error.strerror}"
        raise DataError(problem) from error


def _damaged(path: Path, error: Exception) -> str:
    return f"{path.name} is damaged or cut short ({error}): fetch it again"
