"""What many tasks at once show while they run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fedns.core.history import Record
from fedns.core.numbers import gap_text
from fedns.lab.comparison.display import Display
from fedns.lab.comparison.workers import Say
from fedns.reports.terminal import say

SECONDS_BETWEEN_WORDS = 0.2


class Board:
    """Shows nothing; the two below show lines, and lines above a moving bar."""

    @contextlib.contextmanager
    def open(self, total: int) -> Iterator[None]:
        yield

    def say(self, text: str) -> None:
        """A line that stays."""

    def working(self, label: str, text: str) -> None:
        """How far a task is."""

    def finished(self, label: str) -> None:
        """A task is done."""


class LineBoard(Board):
    """One line per task, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._done = 0

    @contextlib.contextmanager
    def open(self, total: int) -> Iterator[None]:
        self._total, self._done = total, 0
        yield

    def say(self, text: str) -> None:
        say(self._console, text)

    def finished(self, label: str) -> None:
        self._done += 1
        self.say(f"[{self._done}/{self._total}] {label}")


class LiveBoard(Board):
    """A bar over all tasks, and below it what each running one is at."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._all: TaskID | None = None
        self._running: dict[str, TaskID] = {}

    @contextlib.contextmanager
    def open(self, total: int) -> Iterator[None]:
        self._all = self._progress.add_task("all", total=total)
        with self._progress:
            yield
        self._progress.remove_task(self._all)
        for task in self._running.values():
            self._progress.remove_task(task)
        self._running.clear()

    def say(self, text: str) -> None:
        say(self._progress.console, text)

    def working(self, label: str, text: str) -> None:
        if label not in self._running:
            self._running[label] = self._progress.add_task("", total=None)
        self._progress.update(self._running[label], description=escape(f"{label}: {text}"))

    def finished(self, label: str) -> None:
        if label in self._running:
            self._progress.remove_task(self._running.pop(label))
        if self._all is not None:
            self._progress.advance(self._all)
        self.say(f"done: {label}")


def board_for(console: Console, quiet: bool) -> Board:
    """Live on a terminal, lines elsewhere, nothing where quiet is asked for."""
    if quiet:
        return Board()
    return LiveBoard(console) if console.is_terminal else LineBoard(console)


class SayingDisplay(Display):
    """A comparison that tells in words how far it is, now and then."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._last = 0.0

    def stage(self, text: str) -> None:
        self._say(text)

    def moved(self, method: str, trial: int, record: Record) -> None:
        if time.monotonic() - self._last > SECONDS_BETWEEN_WORDS:
            self._last = time.monotonic()
            self._say(f"{method}, trial {trial + 1}, round {record.round}, gap {gap_text(record.suboptimality)}")
