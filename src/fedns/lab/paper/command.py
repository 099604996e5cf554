"""`fedns reproduce`: everything that the paper reports, run, compared and judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedns.lab.comparison.display import Board
from fedns.lab.comparison.sweep import run_all
from fedns.lab.paper import accuracy, dimensions, figure1, figure2, heterogeneity, table1, table2, theorems
from fedns.lab.paper.cases import read_cases
from fedns.lab.paper.part import ClaimVerdict, Part, in_order
from fedns.lab.paper.plan import Plan, make_plan
from fedns.lab.paper.report import write_paper_report

SHORT = 400
STYLES = {"holds": "green", "holds if": "yellow", "does not hold": "red"}


@dataclass(frozen=True)
class Reproduction:
    """The parts of the report, and where it is."""

    parts: list[Part]
    report: Path | None  # None where Ctrl-C came first
    left_out: list[str]

    @property
    def verdicts(self) -> list[ClaimVerdict]:
        return in_order(verdict for part in self.parts for verdict in part.verdicts)


def reproduce(
    folder: Path, quick: bool, board: Board | None = None, processes: int | None = None, cluster: str | None = None
) -> Reproduction:
    """Run what is not there yet, then judge every claim; started again after any end, it goes on where it stopped."""
    board = board or Board()
    plan = make_plan(folder, quick)
    for sentence in plan.left_out:
        board.say(sentence)
    groups = plan.tasks()
    tasks = [task for group in groups.values() for task in group]
    if tasks:
        board.say(f"{len(tasks)} tasks, expected to take about {_duration(plan.expected_seconds())} on this machine's cores")
    began = time.monotonic()
    if not run_all(tasks, board, processes, cluster=cluster):
        return Reproduction([], None, plan.left_out)
    board.say(f"ran for {_duration(time.monotonic() - began)}; drawing the figures")
    parts = build(plan)
    return Reproduction(parts, write_paper_report(folder, parts, quick, plan.left_out, processes), plan.left_out)


def build(plan: Plan) -> list[Part]:
    """Every part of the report from what is on disk."""
    cases = {name: read_cases(sweep) for name, sweep in plan.sweeps.items()}
    known = dimensions.read(plan.folder / "dimensions")

    def where_measured(make: Callable[..., Part], *measured: Any) -> list[Part]:
        return [make(*measured)] if all(measured) else []

    return [
        *where_measured(figure1.build, cases["figure1"]),
        *where_measured(figure2.build, cases["figure2"], known),
        *where_measured(accuracy.build, accuracy.read(plan.folder / "accuracy", plan.quick)),
        *where_measured(table1.build, cases["table1"]),
        table2.build(cases["figure1"], known),
        *where_measured(heterogeneity.build, cases["heterogeneity"]),
        *theorems.read(plan.folder / "theorems", plan.quick),
    ]


def verdict_table(verdicts: Sequence[ClaimVerdict]) -> Table:
    """Claims, outcomes and the figures behind them, for a terminal."""
    table = Table(title="What became of the paper's claims", box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for heading, width in (("claim", 18), ("it says", 30), ("outcome", 13), ("evidence", None)):
        table.add_column(heading, overflow="fold", vertical="top", min_width=width and min(width, 13), max_width=width)
    for verdict in verdicts:
        outcome = Text(verdict.outcome, style=STYLES[verdict.outcome])
        figures = f"... {verdict.condition}. {verdict.evidence}" if verdict.condition else verdict.evidence
        figures = figures if len(figures) <= SHORT else f"{figures[:SHORT].rsplit(' ', 1)[0]} ..."  # the report has all
        table.add_row(Text(verdict.claim), Text(verdict.says), outcome, Text(figures), end_section=True)
    return table


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
