"""What a coordinator shows while it runs: every site, and how far the training is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedns.core.history import History, Record
from fedns.federation.coordinator.coordinate import Watcher
from fedns.federation.coordinator.link import SiteStatus
from fedns.reporting.numbers import bytes_text
from fedns.reporting.terminal import say, text_table

_STYLES = {"answered": "green", "asked": "yellow", "away": "red", "refused": "red", "rejected": "red"}


class LineView(Watcher):
    """A line per round, and one whenever a site's state takes a turn for the worse."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._statuses: Sequence[SiteStatus] = ()

    def on_start(self, statuses: Sequence[SiteStatus]) -> None:
        self._statuses = statuses
        self._say(f"waiting for {len(statuses)} sites: {', '.join(status.name for status in statuses)}")

    def on_round(self, record: Record, state: Any) -> None:
        troubled = [f"{s.name} {s.state}: {s.detail}" for s in self._statuses if s.state in ("away", "refused", "rejected")]
        self._say(" | ".join([round_text(record), *troubled]))

    def on_end(self, history: History) -> None:
        self._say(history.stop_reason)

    def _say(self, text: str) -> None:
        say(self._console, text)


class LiveView(Watcher):
    """A table of the sites that moves, for a terminal."""

    def __init__(self) -> None:
        self._statuses: Sequence[SiteStatus] = ()
        self._line = "waiting for sites"

    def on_start(self, statuses: Sequence[SiteStatus]) -> None:
        self._statuses = statuses

    def on_round(self, record: Record, state: Any) -> None:
        self._line = round_text(record)

    def on_end(self, history: History) -> None:
        self._line = history.stop_reason

    def __rich__(self) -> Group:
        return Group(site_table(self._statuses), Text(self._line))


def round_text(record: Record) -> str:
    """A round in one line."""
    return (
        f"round {record.round}  objective {record.objective:.10g}  gradient norm {record.gradient_norm:.1e}  "
        f"sent {bytes_text(record.uplink_bytes)}  {record.seconds:.1f} s"
    )


def site_table(statuses: Sequence[SiteStatus]) -> Table:
    """How every site is doing, and what has left it."""
    headings = ("site", "state", "answers", "rejected", "seconds", "sent", "received", "engine's own")
    return text_table(headings, map(_row, statuses), left=headings[:2])


def _row(status: SiteStatus) -> list[str | Text]:
    words = f"{status.state}: {status.detail}" if status.detail else status.state
    sizes = (status.uplink_bytes, status.downlink_bytes, status.envelope_bytes)
    counts = [str(status.answers), str(status.rejected), f"{status.seconds:.2f}"]
    return [status.name, Text(words, style=_STYLES.get(status.state, "")), *counts, *map(bytes_text, sizes)]


@contextlib.contextmanager
def view_on(console: Console, quiet: bool) -> Iterator[list[Watcher]]:
    """The view that suits the console, for as long as the block lasts."""
    if quiet:
        yield []
    elif console.is_terminal:
        view = LiveView()
        with Live(view, console=console, refresh_per_second=4, transient=True):
            yield [view]
    else:
        yield [LineView(console)]
