"""Seconds, exchanges and bytes to the same gap on the same rows: our methods and other people's programs.

First each contender looks for the least effort (the loosest tolerance, the fewest rounds) that reaches the gap, from the one
that it needed on the data set before; then all that got there, and are not far behind, take turns, and the best turn of each
counts. Rows are in memory before a clock starts, dense or compressed, as a contender is faster with, and what has to be
compiled has been.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.race import figure
from benchmarks.race.contender import Attempt, Contender, Task
from benchmarks.race.federated import OURS, PEERS
from benchmarks.race.pooled import POOLED
from benchmarks.race.program import program
from rich.console import Console
from rich.table import Table

import fedns

# name: clients, sketch size, scaling. Numbers of clients as in the other benchmarks.
DATA = {"phishing": (40, 17, "none"), "a9a": (80, 30, "none"), "w8a": (142, 60, "none"), "covtype": (200, 20, "maxabs")}
SEARCH_SECONDS = 16.0  # for all attempts of a contender on a data set with one layout
FAR_BEHIND = 5.0  # who takes so many times as long as the first has had its turn
PAUSE_SECONDS = 0.1  # before each turn: threads of the one before wait for more work, and would take the cores of the next
console = Console(width=150)


class TooLong(Exception):
    """The time for an attempt is over."""


@dataclass(frozen=True)
class Result:
    """What a contender did on a data set; `seconds` only where it reached the gap."""

    contender: Contender
    gap: float = float("inf")  # the smallest that it reached
    seconds: float | None = None
    exchanges: int | None = None
    bytes: int | None = None
    effort: Any = None
    failure: str = ""
    attempt: Attempt | None = None  # to be timed again


def the_task(name: str) -> Task:
    clients, size, scaling = DATA[name]
    shards, _ = fedns.scale(fedns.split(*fedns.load(name), clients=clients, how="iid", seed=0), scaling)
    problem = fedns.Problem()
    return Task(name, shards, size, problem, fedns.pooled_optimum(problem, shards))


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TooLong when the time is over, as soon as Python is back in charge."""

    def interrupt(*_: object) -> None:
        raise TooLong

    over = time.perf_counter() + seconds
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
        if time.perf_counter() > over:  # the signal came while C called Python, where an exception is lost
            raise TooLong
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def searched(contender: Contender, task: Task, layout: str, gap: float, begin: int) -> Result:
    """The loosest effort that reaches the gap, timed once: from `begin` on it is loosened, or tightened, step by step."""
    best, found, at, step = Result(contender), None, begin, 0
    try:
        attempt = prepared(contender, task, layout)
        ends = time.perf_counter() + max(SEARCH_SECONDS, contender.limit_seconds)
        while 0 <= at < len(contender.efforts) and time.perf_counter() < ends:
            result = timed(contender, attempt, task, contender.efforts[at])
            enough = result.gap <= gap
            step = step or (-1 if enough else 1)
            if enough:
                found = replace(result, attempt=attempt)
            elif result.gap < best.gap:
                best = result
            if enough == (step > 0):  # tightened until it was enough, or loosened until it was not
                break
            at += step
        return found or replace(best, seconds=None, failure=f"stays at {best.gap:.0e}")
    except TooLong:
        return found or replace(best, seconds=None, failure=f"over {contender.limit_seconds:g} s, at {best.gap:.0e}")
    except Exception as error:  # a peer's failure is a result
        return found or replace(best, seconds=None, failure=f"{type(error).__name__}: {error}".splitlines()[0])


def prepared(contender: Contender, task: Task, layout: str) -> Attempt:
    """What is timed, after a first attempt that compiles what has to be."""
    attempt = contender.prepare(task, task.layouts[layout])
    if contender.warm_up is not None:
        attempt(contender.warm_up)  # without a limit: what is interrupted while it compiles is of no use afterwards
    return attempt


def timed(contender: Contender, attempt: Attempt, task: Task, effort: Any) -> Result:
    """One attempt; the gap that it reached, whatever it is."""
    began = time.perf_counter()
    with at_most(contender.limit_seconds):
        fit = attempt(effort)
    seconds = time.perf_counter() - began if fit.seconds is None else fit.seconds
    return Result(contender, task.gap(fit.coefficients), seconds, fit.exchanges, fit.bytes, effort)


def entered(contender: Contender, task: Task, gap: float, begin: int = 0) -> Result:
    """With the layout that it is faster with: the effort is looked for with one, and tried once with the other."""
    if contender.module and find_spec(contender.module) is None:
        return Result(contender, failure="not installed")
    if contender.only_on and task.name not in contender.only_on:
        return Result(contender, failure="not run")
    best: Result | None = None
    for layout in (name for name in task.layouts if name in contender.layouts):
        if best is None or best.seconds is None:
            tried = searched(contender, task, layout, gap, begin)
        else:
            tried = searched(replace(contender, efforts=(best.effort,)), task, layout, gap, 0)
        best = tried if best is None else min(best, tried, key=lambda one: (one.seconds is None, one.seconds or one.gap))
    assert best is not None
    return replace(best, contender=contender)


def raced(results: list[Result], turns: int) -> list[Result]:
    """The best of several turns of all that reached the gap and are not far behind the first."""
    best = {result.contender.name: result.seconds for result in results}
    for _ in range(turns):
        leading = min((seconds for seconds in best.values() if seconds), default=0.0)
        for result in results:
            if result.attempt is None or (result.seconds or 0.0) > FAR_BEHIND * leading:
                continue
            time.sleep(PAUSE_SECONDS)
            began = time.perf_counter()
            fit = result.attempt(result.effort)
            seconds = time.perf_counter() - began if fit.seconds is None else fit.seconds
            best[result.contender.name] = min(best[result.contender.name] or seconds, seconds)
    return [replace(result, seconds=best[result.contender.name], attempt=None) for result in results]


def versions(contenders: list[Contender]) -> str:
    """The packages that were there, with their versions, and the machine."""
    named = sorted({one.package for one in contenders if one.module and find_spec(one.module)})
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    installed = ", ".join(f"{name} {metadata.version(name)}" for name in [*named, "numpy", "numba"])
    return f"{datetime.now(UTC):%Y-%m-%d}; {model}, {os.cpu_count()} cores; Python {platform.python_version()}; {installed}"


def table_of(all_results: dict[str, list[Result]], gap: float) -> Table:
    """A row for each contender: milliseconds, exchanges and megabytes on each data set, or what happened instead."""
    table = Table(title=f"milliseconds (exchanges, megabytes) to a gap of {gap:g}")
    table.add_column("")
    for name in all_results:
        table.add_column(name, justify="right")
    for row in zip(*all_results.values(), strict=True):
        note = f" ({row[0].contender.note})" if row[0].contender.note else ""
        table.add_row(row[0].contender.name + note, *(cell(result) for result in row))
    return table


def markdown_of(all_results: dict[str, list[Result]], gap: float) -> str:
    """The same table for a page, the quickest of each data set in bold."""
    best = {name: min((r.seconds for r in results if r.seconds), default=None) for name, results in all_results.items()}
    lines = [
        f"| milliseconds (exchanges, megabytes) to {gap:g} | {' | '.join(all_results)} |",
        "|---" * (1 + len(best)) + "|",
    ]
    for row in zip(*all_results.values(), strict=True):
        cells = [
            cell(result, "**" if result.seconds and result.seconds == best[name] else "")
            for name, result in zip(all_results, row, strict=True)
        ]
        lines.append(f"| {' | '.join([row[0].contender.name, *cells])} |")
    return "\n".join(lines)


def cell(result: Result, marks: str = "") -> str:
    """Milliseconds, with marks around them, and what travelled; or what happened instead."""
    if result.seconds is None:
        return result.failure
    travelled = "" if result.exchanges is None else f" ({result.exchanges}, {digits((result.bytes or 0) / 1e6, 2)})"
    return f"{marks}{digits(1e3 * result.seconds, 3)}{marks}{travelled}"


def digits(number: float, count: int) -> str:
    """A number rounded to so many digits, without an exponent; in groups of three from 10,000 on."""
    rounded = float(f"{number:.{count}g}")
    return f"{rounded:,.15g}" if rounded >= 10_000 else f"{rounded:.15g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--gap", type=float, default=1e-10, help="F(w) - F* that has to be reached")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help=program.__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/race"))
    options = parser.parse_args()
    contenders = [*OURS, *POOLED, *PEERS, *(program(stated) for stated in options.peer)]
    warnings.simplefilter("ignore")  # what peers say about tolerances and iterations
    options.out.mkdir(parents=True, exist_ok=True)
    all_results, needed = {}, {contender.name: 0 for contender in contenders}
    for name in options.data:
        try:
            task = the_task(name)
        except fedns.DataError as missing:
            console.print(f"{missing}; it is left out", highlight=False)
            continue
        results = []
        for contender in contenders:
            console.print(f"{name}: {contender.name}", end="", highlight=False)
            result = entered(contender, task, options.gap, needed[contender.name])
            console.print(f": {cell(result)}", highlight=False)
            if result.seconds is not None:
                needed[contender.name] = contender.efforts.index(result.effort)
            results.append(result)
        all_results[name] = raced(results, options.turns)
    if not all_results:
        raise SystemExit("none of the data sets is here: name a folder that holds them in FEDNS_DATA, or fetch them")
    table = table_of(all_results, options.gap)
    console.print(table)
    console.print(versions(contenders))
    page = f"{markdown_of(all_results, options.gap)}\n\n{versions(contenders)}\n"
    (options.out / "race.md").write_text(page, encoding="utf-8")
    figure.draw(all_results, options.gap, options.out / "race.svg")
    console.print(f"table and figure: {options.out}")


if __name__ == "__main__":
    main()
