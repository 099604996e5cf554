"""The contract between a site and its table: rooms above this one read and code tables, a site is handed one of theirs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from fedns.core.clients import Handler
from fedns.core.shards import Shards
from fedns.models.problem import Problem
from fedns.runs.over_sites import SiteRun


class TableKind(ABC):
    """A site's table as one kind of runs sees it: columns as they are, or columns that a study names."""

    @abstractmethod
    def rows(self, spec: SiteRun) -> Shards:
        """Return the rows that a run is over, of one client."""

    @abstractmethod
    def build(self, spec: SiteRun) -> tuple[Problem, Mapping[str, Handler]]:
        """Return the problem of a run, and by name the handlers that it may ask for."""

    @property
    def mark(self) -> str:
        """Tell the table, as it is now, from any other where each run codes rows of its own; nothing where none does."""
        return ""

    def plain_rows(self) -> Shards | None:
        """Read the table; return its rows, or nothing where a study names their columns."""
        return None

    def meaning(self) -> list[str]:
        """Say what the limits in the site's file mean for the table, and what has left of it."""
        return []

    def compiles(self) -> bool:
        """Whether what runs call is compiled before they are said to be open."""
        return False
