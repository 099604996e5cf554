"""How a site is doing, as the coordinator sees it."""

from __future__ import annotations

import time
from dataclasses import dataclass

SILENT_SECONDS = 10.0  # a site that is asked and says nothing for so long is called silent


@dataclass
class SiteStatus:
    """What the coordinator knows of a site."""

    name: str
    state: str = "not heard of"  # ready, asked, answered, away, refused, rejected
    detail: str = ""
    seconds: float = 0.0  # its last answer took
    answers: int = 0
    rejected: int = 0
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    envelope_bytes: int = 0  # what engine and packets add to the messages
    blanked_columns: int = 0  # in which its owner's limits have replaced rare levels
    budget_spent: float = 0.0  # the mark that what has left it had passed when the run was opened, of what its owner permits
    budget_is_enough: bool = True  # for all rounds of the run
    runs: str = ""  # the versions that it computes with, in its own words
    heard: float = 0.0  # when it last spoke, in seconds since 1970; 0: never
    asked: float = 0.0  # since when it has been asked without a word; 0: it is not

    @property
    def waiting_seconds(self) -> float:
        """How long it has been asked without a word."""
        return max(0.0, time.time() - self.asked) if self.asked else 0.0

    @property
    def up(self) -> bool:
        """Whether it can be taken to be there: it spoke last, or was asked a moment ago."""
        return self.state in ("asked", "answered") and bool(self.heard) and self.waiting_seconds < SILENT_SECONDS

    @property
    def last_heard(self) -> str:
        return f"{max(0.0, time.time() - self.heard):.0f} s ago" if self.heard else "never"

    @property
    def budget_note(self) -> str:
        """Say what to know of the budget of its owner's limits before a run; nothing for most."""
        found = [f"more than {100 * self.budget_spent:.0f} % of what may leave it has left"] if self.budget_spent else []
        found += [] if self.budget_is_enough else ["what is left may end before the rounds of this run do"]
        return f"site '{self.name}': {'; '.join(found)}" if found else ""

    @property
    def note(self) -> str:
        """What a reader of the result must know of this site; nothing for most."""
        if not self.blanked_columns:
            return ""
        done = f"site '{self.name}' replaces rare levels in {self.blanked_columns} columns, as its owner's limits say"
        return f"{done}: the answer is not quite the pooled one"
