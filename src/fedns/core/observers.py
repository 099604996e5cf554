"""Watching a run without being part of it: observers are called with the clock stopped."""

from __future__ import annotations

from typing import Any

from fedns.core.history import History, Record


class Observer:
    """Does nothing; override what you need."""

    def on_round(self, record: Record, state: Any) -> None:
        """After every round, and once for round 0."""

    def on_end(self, history: History) -> None:
        """After the last round."""
