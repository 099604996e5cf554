"""Sentences about names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(what: str, given: str, names: Iterable[str]) -> str:
    """A sentence that names the thing, the closest names there are, and all of them."""
    known = list(names)
    if not known:
        return f"unknown {what} '{given}': there are none"
    close = difflib.get_close_matches(given, known, n=3, cutoff=0.55)
    hint = f"did you mean {' or '.join(close)}? Known are" if close else "known are"
    return f"unknown {what} '{given}': {hint} {', '.join(known)}"
