"""The errors a caller is meant to read: one sentence that names the thing and the fix."""

import difflib
from collections.abc import Iterable

from fedns.numerics.errors import ConfigError as ConfigError
from fedns.numerics.errors import FednsError as FednsError


class DataError(FednsError):
    """A data set, file, split or column that cannot be used as it is."""


class MessageError(FednsError):
    """A message that does not decode to what its kind promises."""


class NonFiniteError(MessageError):
    """A message that holds NaN or infinity: what a diverging method sends before anything else goes wrong."""


def unknown(what: str, given: str, names: Iterable[str]) -> str:
    """A sentence that names the thing, the closest names there are, and all of them."""
    known = list(names)
    if not known:
        return f"unknown {what} '{given}': there are none"
    close = difflib.get_close_matches(given, known, n=3, cutoff=0.55)
    hint = f"did you mean {' or '.join(close)}? Known are" if close else "known are"
    return f"unknown {what} '{given}': {hint} {', '.join(known)}"
