"""The first words of both ends of a run: what is to be run, and what each end runs it with."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from fedns import __version__
from fedns.core.errors import MessageError
from fedns.runs.over_sites import SiteRun, read_agreed

VERSION_FIELD = "fedns"
LONGEST_WORDS = 200
BUDGET_LEVELS = (0.5, 0.8, 0.95)  # shares of a budget at which its owner, and whoever opens a run, are warned


def opening(spec: SiteRun) -> bytes:
    """What a coordinator opens a run with: its version, and the part of the description that both ends agree on."""
    return json.dumps({VERSION_FIELD: __version__, **json.loads(spec.agreed())}, separators=(",", ":")).encode()


def read_opening(body: bytes) -> tuple[SiteRun, str]:
    """The run and the coordinator's version, from somebody who need not be believed; refuses another version at once."""
    try:
        values: Any = json.loads(body)
    except (ValueError, RecursionError):  # `read_agreed` says what is wrong with it
        values = None
    theirs = ""
    if isinstance(values, dict) and VERSION_FIELD in values:
        theirs = _words(values.pop(VERSION_FIELD))
        body = json.dumps(values).encode()
    if theirs and not compatible(theirs):
        raise MessageError(
            f"this site has fedns {__version__}, the coordinator {theirs}: install the same version at both ends"
        )
    return read_agreed(body), theirs


def introduction() -> dict[str, str]:
    """What an end of a run computes with, as it tells the other."""
    libraries = {name: version(name) for name in ("numpy", "numba") if find_spec(name)}  # a site with a GPU needs no numba
    return {VERSION_FIELD: __version__, "Python": platform.python_version(), **libraries, "processor": platform.machine()}


def read_introduction(values: Any) -> str:
    """The same as text, from somebody who need not be believed; refuses another version."""
    told = {name: _words(values.get(name, "")) for name in introduction()} if isinstance(values, dict) else {}
    if told.get(VERSION_FIELD) and not compatible(told[VERSION_FIELD]):
        raise MessageError(
            f"it has fedns {told[VERSION_FIELD]}, this coordinator {__version__}: install the same version at both ends"
        )
    return ", ".join(f"{name} {text}" for name, text in told.items() if text)


def compatible(other: str) -> bool:
    """Whether that version speaks as this one does: the first two numbers say so."""
    return other.split(".")[:2] == __version__.split(".")[:2]


def _words(value: Any) -> str:
    return fit_to_show(value[:LONGEST_WORDS]) if isinstance(value, str) else ""


def fit_to_show(text: str) -> str:
    """Text of somebody else's in one line, without what would move a terminal's cursor."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
