"""Watching a run, and ending it: observers are called with the clock stopped."""

from __future__ import annotations

from typing import Any

from fedns.core.history import History, Record


class Observer:
    """Does nothing; override what you need."""

    def on_round(self, record: Record, state: Any) -> str | None:
        """After every round, and once for round 0. A reason, as text, ends the run after this round; None lets it go on."""
        return None

    def on_end(self, history: History) -> None:
        """After the last round."""
