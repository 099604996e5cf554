"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; whatever goes wrong is one sentence and an exit code."""
    try:  # also what is imported first takes long enough for a Ctrl-C
        from fedns.cli.app import main as run
    except KeyboardInterrupt:
        print("fedns: interrupted", file=sys.stderr)
        leave(130)
    run(arguments)


def leave(status: int) -> NoReturn:
    """End the process with this status, also after a Ctrl-C amid code that was made as a text, as dataclasses are.

    Python remembers that one and would end by the signal whatever is asked for; running another text makes it forget.
    """
    exec("")
    sys.exit(status)


__all__ = ["leave", "main"]
