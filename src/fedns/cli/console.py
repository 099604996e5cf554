"""The terminal, or what stands for one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    # A pipe has no width; tables should not be folded to that of a terminal that is not there.
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=140)


def log_to_console() -> None:
    """A site's own words, with times, on its standard error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
