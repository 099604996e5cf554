"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; whatever goes wrong is one sentence and an exit code."""
    try:  # also what is imported first takes long enough for a Ctrl-C
        from fedns.cli.app import main as run
    except KeyboardInterrupt:
        print("fedns: interrupted", file=sys.stderr)
        sys.exit(130)
    run(arguments)


__all__ = ["main"]
