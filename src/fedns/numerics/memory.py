"""How much memory rows may take: half of what this process is allowed, or of the machine."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from fedns.numerics.errors import BackendError

VARIABLE = "FEDNS_MEMORY"  # gigabytes that rows may take, where the machine's half is not wanted
_CONTROL_GROUPS = Path("/sys/fs/cgroup")

_room: int | None = None


def room() -> int:
    """Bytes of rows that are held in memory; larger tables stay in their file."""
    global _room
    if _room is None:
        _room = stated(VARIABLE) or min(_limits()) // 2
    return _room


def machine() -> int:
    """Bytes that this process may have at all; so many that nothing is refused where a system does not say."""
    return min(_limits())


@contextlib.contextmanager
def limited(count: int | None) -> Iterator[None]:
    """So many bytes of rows inside the block; None finds out anew."""
    global _room
    before, _room = _room, count
    try:
        yield
    finally:
        _room = before


def stated(variable: str) -> int | None:
    """The bytes that an environment variable states in gigabytes; None where it states nothing."""
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = 0.0
    if not gigabytes > 0:
        raise BackendError(f"the environment variable {variable} must be a number of gigabytes above 0, got {text!r}")
    return int(gigabytes * 1e9)


def _limits() -> Iterator[int]:
    """Of the machine, of the shell (ulimit -d and -v), and of the control group, as containers and services have them."""
    if sys.platform == "win32":
        yield 1 << 62
        return
    import resource

    yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            yield soft
    yield from _group_limits(Path("/proc/self/cgroup"), _CONTROL_GROUPS)


def _group_limits(own: Path, root: Path) -> Iterator[int]:
    """The limits of the groups that `own` names, and of those around them, in either version of control groups."""
    for line in own.read_text(encoding="utf-8").splitlines() if own.exists() else ():
        _, controllers, place = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        folder = top / place.lstrip("/")
        for group in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):  # no such group here, or "max"
                yield int((group / name).read_text(encoding="utf-8"))
            if group == top:
                break
