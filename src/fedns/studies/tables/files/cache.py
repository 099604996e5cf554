"""The folder for what is downloaded or taken apart: the user's cache, or what an environment variable names."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedns.core.errors import DataError

CACHE_VARIABLE = "FEDNS_CACHE"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def cache_folder() -> Path | None:
    """Return what FEDNS_CACHE names, else the user's cache folder; none without the fetch extra."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    try:
        from platformdirs import user_cache_dir
    except ImportError:
        return None
    return Path(user_cache_dir("fedns"))


@contextmanager
def storing(name: str, folder: Path) -> Iterator[None]:
    """Say in one sentence that a disk is full or closed to writing."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            problem = f"the disk that holds {folder} is full, so {name} was not stored: free some space"
        else:
            problem = f"{name} cannot be stored in {folder} ({error.strerror or error}): check the folder"
        raise DataError(f"{problem}, or name another folder in {CACHE_VARIABLE}") from error
