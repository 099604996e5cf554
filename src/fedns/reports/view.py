"""The view of a coordinator while it runs: every site, and how far the training is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedns.core.history import History, Record
from fedns.core.numbers import bytes_text
from fedns.federation.coordinator.watching import SiteStatus, Watcher
from fedns.reports.terminal import say, text_table

FIRST_WORD_SECONDS, LONGEST_SILENCE_SECONDS = 5.0, 60.0  # of waiting for a site without a terminal
_STYLES = {"answered": "green", "asked": "yellow", "away": "red", "refused": "red", "rejected": "red"}


class LineView(Watcher):
    """A line per round, and lines that become rarer while a site is waited for."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_word = FIRST_WORD_SECONDS  # of waiting, after which the next line is due

    def on_start(self, statuses: Sequence[SiteStatus]) -> None:
        super().on_start(statuses)
        say(self._console, f"waiting for {len(statuses)} sites: {', '.join(status.name for status in statuses)}")

    def look(self) -> None:
        """Say who is waited for, where it has been long enough since that was said."""
        silent = [status for status in self.statuses if status.waiting_seconds >= FIRST_WORD_SECONDS]
        longest = max((status.waiting_seconds for status in silent), default=0.0)
        if not silent:
            self._next_word = FIRST_WORD_SECONDS
        elif longest >= self._next_word:
            self._next_word = longest + min(longest, LONGEST_SILENCE_SECONDS)
            names = ", ".join(f"{s.name} (last heard {s.last_heard}{s.detail and f': {s.detail}'})" for s in silent)
            say(self._console, f"waiting for {longest:.0f} s: {names}")

    def on_round(self, record: Record, state: Any) -> None:
        troubled = [f"{s.name} {s.state}: {s.detail}" for s in self.statuses if s.state in ("away", "refused", "rejected")]
        say(self._console, " | ".join([round_text(record), *troubled]))

    def on_end(self, history: History) -> None:
        say(self._console, history.stop_reason)


class LiveView(Watcher):
    """A table of the sites that moves, for a terminal."""

    def __init__(self) -> None:
        self._line = "waiting for sites"

    def on_round(self, record: Record, state: Any) -> None:
        self._line = round_text(record)

    def on_end(self, history: History) -> None:
        self._line = history.stop_reason

    def __rich__(self) -> Group:
        return Group(site_table(self.statuses), Text(self._line))


def round_text(record: Record) -> str:
    """A round in one line."""
    return (
        f"round {record.round}  objective {record.objective:.10g}  gradient norm {record.gradient_norm:.1e}  "
        f"sent {bytes_text(record.uplink_bytes)}  {record.seconds:.1f} s"
    )


def site_table(statuses: Sequence[SiteStatus]) -> Table:
    """The state of every site, and what has left it."""
    headings = ("site", "state", "last heard", "answers", "rejected", "round trip", "sent", "received", "engine's own")
    return text_table(headings, map(_row, statuses), left=headings[:2])


def _row(status: SiteStatus) -> list[str | Text]:
    state = f"{status.state} {status.waiting_seconds:.0f} s" if status.waiting_seconds >= 1.0 else status.state
    words = f"{state}: {status.detail}" if status.detail else state
    counts = [status.last_heard, str(status.answers), str(status.rejected), f"{status.seconds:.2f} s"]
    sizes = (status.uplink_bytes, status.downlink_bytes, status.envelope_bytes)
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
        lines, over = LineView(console), threading.Event()
        looking = threading.Thread(target=_look_often, args=(lines, over), daemon=True)
        looking.start()
        try:
            yield [lines]
        finally:
            over.set()
            looking.join()


def _look_often(lines: LineView, over: threading.Event) -> None:
    while not over.wait(1.0):
        lines.look()
