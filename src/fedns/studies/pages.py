"""The one door from results to their pages: reports know results, and a result comes to them here, when a page is wanted."""

from __future__ import annotations

from typing import Any


def pages() -> Any:
    """What reports make of results."""
    from fedns.reports import for_results

    return for_results
