"""The display of a comparison while it runs, and the board of many tasks at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from fedns.core.history import History, Observer, Record
from fedns.core.numbers import gap_text
from fedns.lab.comparison.workers import Say
from fedns.numerics.compiled import COMPILED
from fedns.reports.terminal import say

COMPILING = "compiling kernels (first run only)"


class Display:
    """Shows nothing; the two below show a run on a terminal and in plain lines."""

    @contextlib.contextmanager
    def open(self, methods: list[str], trials: int) -> Iterator[None]:
        yield

    def stage(self, text: str) -> None:
        """Something is done outside the rounds."""

    def moved(self, method: str, trial: int, record: Record) -> None:
        """A round of a run is over."""

    def ended(self, method: str, trial: int, history: History) -> None:
        """A run is over."""


@dataclass(frozen=True)
class Watched(Observer):
    """One run as a display is told of it."""

    display: Display
    method: str
    trial: int

    def on_round(self, record: Record, state: Any) -> None:
        self.display.moved(self.method, self.trial, record)

    def on_end(self, history: History) -> None:
        self.display.ended(self.method, self.trial, history)


class LineDisplay(Display):
    """One line per trial, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._ended: list[str] = []
        self._methods: list[str] = []
        self._trials = 0

    @contextlib.contextmanager
    def open(self, methods: list[str], trials: int) -> Iterator[None]:
        self._methods, self._trials = methods, trials
        with _on_compile(lambda: say(self._console, COMPILING)):
            yield

    def ended(self, method: str, trial: int, history: History) -> None:
        last = history.records[-1]
        self._ended.append(f"{method} {last.round} rounds to {gap_text(last.suboptimality)}")
        if len(self._ended) == len(self._methods):
            say(self._console, f"trial {trial + 1}/{self._trials}: {', '.join(self._ended)}")
            self._ended = []


class LiveDisplay(Display):
    """A bar per method that moves with its trials, with the round and the gap beside it."""

    def __init__(self, console: Console) -> None:
        columns = (
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
        )
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._tasks: dict[str, TaskID] = {}
        self._trials = 0
        self._stage = self._progress.add_task(f"{'starting':<26}", total=None, text="")

    @contextlib.contextmanager
    def open(self, methods: list[str], trials: int) -> Iterator[None]:
        self._trials = trials
        for method in methods:
            self._tasks[method] = self._progress.add_task(escape(method), total=trials, text="", start=False)
        with self._progress, _on_compile(lambda: self.stage(COMPILING)):
            yield

    def stage(self, text: str) -> None:
        self._progress.update(self._stage, description=escape(f"{text:<26}"))

    def moved(self, method: str, trial: int, record: Record) -> None:
        if trial == record.round == 0:
            self._progress.start_task(self._tasks[method])
        text = f"trial {trial + 1}/{self._trials}  round {record.round}  gap {gap_text(record.suboptimality)}"
        self._progress.update(self._tasks[method], text=text)

    def ended(self, method: str, trial: int, history: History) -> None:
        self._progress.update(self._tasks[method], completed=trial + 1)


def display_for(console: Console, quiet: bool) -> Display:
    """Live on a terminal, lines elsewhere, nothing where quiet is asked for."""
    if quiet:
        return Display()
    return LiveDisplay(console) if console.is_terminal else LineDisplay(console)


@contextlib.contextmanager
def _on_compile(say: Callable[[], None]) -> Iterator[None]:
    """Call `say` when the first kernel is compiled rather than loaded from the cache of an earlier run."""
    if not COMPILED:
        yield
        return
    from numba.core import event

    class Once(event.Listener):
        done = False

        def on_start(self, event: Any) -> None:
            if not self.done:
                self.done = True
                say()

        def on_end(self, event: Any) -> None:
            """Nothing: the next stage says what happens then."""

    with event.install_listener("numba:compile", Once()):
        yield


SECONDS_BETWEEN_WORDS = 0.2


class Board:
    """Shows nothing; the two below show lines, and lines above a moving bar."""

    @contextlib.contextmanager
    def open(self, total: int) -> Iterator[None]:
        yield

    def say(self, text: str) -> None:
        """A line that stays."""

    def working(self, label: str, text: str) -> None:
        """A task has come so far."""

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
