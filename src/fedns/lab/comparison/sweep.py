"""Many comparisons from one file: a list in place of a single value, or a list of cases, and one table of all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from fedns.core.errors import ConfigError
from fedns.core.files import alone_in, read_toml, write_csv, write_whole
from fedns.core.numbers import DASH, bytes_text, gap_text, markdown_table, one_parameter_a_line, rounds_text
from fedns.lab.comparison.compare import FINISHED_FILE, compare, has_settings, refuse_results
from fedns.lab.comparison.display import Board, SayingDisplay
from fedns.lab.comparison.report import write_outputs
from fedns.lab.comparison.results import read_runs
from fedns.lab.comparison.summary import TARGETS, Summary, gap_name, summarise, target_text
from fedns.lab.comparison.workers import Say, Task, run_tasks
from fedns.lab.data.catalogue import shape_of
from fedns.reports.terminal import text_table
from fedns.runs.compare import Compare
from fedns.runs.results import Results

TABLE_FILES = ("table.csv", "table.md")
CASES, QUICK = "cases", "quick"


@dataclass(frozen=True)
class Case:
    """One comparison of a sweep."""

    label: str
    spec: Compare


@dataclass(frozen=True)
class Sweep:
    """Comparisons that share a folder, each in its own part of it."""

    folder: Path
    cases: list[Case]


Finished = dict[str, list[Summary]]  # by the label of a case


def is_sweep(values: Mapping[str, Any]) -> bool:
    """Say whether these settings stand for several comparisons."""
    return CASES in values or any(isinstance(v, list) for k, v in values.items() if k != "methods")


def read_sweep(path: Path, overrides: Mapping[str, Any], *, quick: bool = False) -> Sweep:
    """Every combination that a file asks for, in its order; `quick` takes the smaller settings that it has for that."""
    values = read_toml(path)
    shared = _without_quick({key: value for key, value in values.items() if key != CASES}, quick) | dict(overrides)
    folder = Path(str(shared.pop("out", f"runs/{path.stem}")))
    cases = []
    for case in values.get(CASES, [{}]):
        if not isinstance(case, dict):
            raise ConfigError(f"{path}: cases must be tables, written [[cases]]")
        cases += _combinations(path, shared | _without_quick(case, quick) | dict(overrides), folder)
    labels = [case.label for case in cases]
    if len(set(labels)) < len(labels):
        raise ConfigError(f"{path}: two cases are both called '{max(labels, key=labels.count)}': let them differ in a list")
    return Sweep(folder, cases)


def _without_quick(values: Mapping[str, Any], quick: bool) -> dict[str, Any]:
    """The settings without their quick alternative, or with it in force."""
    plain = {key: value for key, value in values.items() if key != QUICK}
    return plain | values.get(QUICK, {}) if quick else plain


def _combinations(path: Path, values: dict[str, Any], folder: Path) -> list[Case]:
    varied = [key for key, value in values.items() if isinstance(value, list) and key != "methods"]
    named = ["dataset", *(key for key in varied if key != "dataset")]
    cases = []
    for choice in itertools.product(*(values[key] for key in varied)):
        one = values | dict(zip(varied, choice, strict=True))
        label = " ".join(str(one.get(key, "")) for key in named)
        name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in label)
        cases.append(Case(label, replace(Compare.from_dict(one, f"{path}: {label}"), out=str(folder / name))))
    return cases


def run_sweep(
    sweep: Sweep,
    board: Board | None = None,
    processes: int | None = None,
    cluster: str | None = None,
    *,
    overwrite: bool = False,
) -> tuple[Finished, bool]:
    """Run what is not finished yet, on all cores or on a Dask cluster; what was, with the same settings, is read back.

    Also whether Ctrl-C cut it short. The results do not depend on the number of processes. overwrite: cases that the folder
    has with other settings are run again; without it they are refused.
    """
    for case in sweep.cases:
        if not has_settings(case.spec):
            refuse_results(case.spec.folder, overwrite=overwrite)
    table = Results(sweep.folder, "sweep")
    table.refuse(TABLE_FILES, overwrite=True)
    table.claim(TABLE_FILES)
    board = board or Board()
    before = [case.label for case in sweep.cases if is_finished(case.spec)]
    if before:
        board.say(f"finished before: {', '.join(before)}")
    sweep.folder.mkdir(parents=True, exist_ok=True)
    after_each = lambda: write_table(sweep.folder, read_finished(sweep))  # noqa: E731
    interrupted = not run_all(tasks_of(sweep), board, processes, after_each, cluster)
    done = read_finished(sweep)
    write_table(sweep.folder, done)
    return done, interrupted


def run_all(
    tasks: Sequence[Task],
    board: Board,
    processes: int | None = None,
    after_each: Callable[[], None] = lambda: None,
    cluster: str | None = None,
) -> bool:
    """Run tasks with progress on the board; False where Ctrl-C ended it."""
    try:
        with board.open(len(tasks)):
            for task, _ in run_tasks(tasks, lambda task, text: board.working(task.label, text), processes, cluster):
                after_each()
                board.finished(task.label)
    except KeyboardInterrupt:
        return False
    return True


def tasks_of(sweep: Sweep, *, outputs: bool = True) -> list[Task]:
    """A task for each case that is not finished, the longest first: last, it would leave the other cores idle."""
    left = [case for case in sweep.cases if not is_finished(case.spec)]
    return [Task(case.label, run_case, (case.spec, outputs)) for case in sorted(left, key=_work, reverse=True)]


def run_case(spec: Compare, outputs: bool, say: Say) -> None:
    """One case from where it stands to its end, with its report where asked for."""
    with alone_in(spec.folder):
        if is_finished(spec):  # by another process, while this one waited
            return
        comparison = compare(spec, SayingDisplay(say), resume=True, overwrite=True)  # as was asked before the first began
        if comparison.interrupted:
            raise KeyboardInterrupt
        if outputs:
            say("writing the report")
            write_outputs(comparison)
        write_whole(spec.folder / FINISHED_FILE, f"{comparison.num_clients}\n")


def _work(case: Case) -> float:
    """Numbers read in all rounds together: a rough measure of how long a case takes."""
    spec = case.spec
    rows, columns = shape_of(spec.dataset) or (0, 0)
    return float(rows) * columns * spec.trials * spec.rounds * len(spec.methods)


def is_finished(spec: Compare) -> bool:
    """Say whether the folder has a complete run of exactly these settings."""
    return (spec.folder / FINISHED_FILE).is_file() and has_settings(spec)


def read_finished(sweep: Sweep) -> Finished:
    """The summaries of every finished case, in the order of the sweep."""
    finished = {case.label: case.spec.folder for case in sweep.cases if is_finished(case.spec)}
    return {label: summarise(read_runs(folder), clients_of(folder)) for label, folder in finished.items()}


def clients_of(folder: Path) -> int:
    """The number of clients of a finished comparison."""
    return int((folder / FINISHED_FILE).read_text(encoding="utf-8"))


def cell(summary: Summary | None) -> str:
    """Rounds and bytes per client to the smallest target, or where the method ended up instead."""
    if summary is None:
        return DASH
    spreads = summary.targets[min(TARGETS)]
    if not spreads:
        return f"{next(iter(summary.endings))} {gap_text(summary.final_gap)}"
    rounds = target_text(spreads["rounds"], summary.trials, rounds_text)
    return rounds if summary.sends_nothing else f"{rounds} / {bytes_text(spreads['uplink_bytes_per_client'].mean)}"


def _rows(done: Finished) -> list[list[str]]:
    """A method and its cell in every case."""
    by_case = [{summary.method: summary for summary in summaries} for summaries in done.values()]
    methods = dict.fromkeys(method for summaries in by_case for method in summaries)
    return [[method, *(cell(summaries.get(method)) for summaries in by_case)] for method in methods]


def write_table(folder: Path, done: Finished) -> None:
    """The table as CSV and as Markdown."""
    headings, rows = ["method", *done], _rows(done)
    write_csv(folder / TABLE_FILES[0], [headings, *rows])
    (folder / TABLE_FILES[1]).write_text("\n".join(markdown_table(headings, rows)) + "\n", encoding="utf-8")


def sweep_table(done: Finished) -> Table:
    """One row per method, one column per case."""
    headings = ["method", *(label.replace(" ", "\n", 1) for label in done)]
    rows = ([one_parameter_a_line(method), *cells] for method, *cells in _rows(done))
    title = f"rounds / bytes sent per client to a gap of {gap_name(min(TARGETS))}"
    return text_table(headings, rows, left=("method",), title=title)
