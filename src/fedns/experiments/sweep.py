"""Many comparisons from one file: a list in place of a single value, or a list of cases, and one table of all."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedns.core.errors import ConfigError
from fedns.experiments.compare import FINISHED_FILE, SETTINGS_FILE, compare
from fedns.experiments.display import Display
from fedns.experiments.outputs import write_outputs
from fedns.experiments.results import read_runs
from fedns.experiments.spec import Spec, read_toml
from fedns.experiments.summary import TARGETS, Summary, gap_name, summarise
from fedns.experiments.tables import DASH, bytes_text, gap_text, one_parameter_a_line, rounds_text, target_text

TABLE_FILES = ("table.csv", "table.md")
CASES = "cases"


@dataclass(frozen=True)
class Case:
    """One comparison of a sweep."""

    label: str
    spec: Spec


@dataclass(frozen=True)
class Sweep:
    """Comparisons that share a folder, each in its own part of it."""

    folder: Path
    cases: list[Case]


@dataclass(frozen=True)
class Finished:
    """The summaries of one case."""

    label: str
    summaries: list[Summary]


def is_sweep(values: Mapping[str, Any]) -> bool:
    """Whether these settings stand for several comparisons."""
    return CASES in values or any(isinstance(v, list) for k, v in values.items() if k != "methods")


def read_sweep(path: Path, overrides: Mapping[str, Any]) -> Sweep:
    """Every combination that a file asks for, in its order."""
    values = read_toml(path)
    shared = {key: value for key, value in values.items() if key != CASES} | dict(overrides)
    folder = Path(str(shared.pop("out", f"runs/{path.stem}")))
    cases = []
    for case in values.get(CASES, [{}]):
        if not isinstance(case, dict):
            raise ConfigError(f"{path}: cases must be tables, written [[cases]]")
        cases += _combinations(path, shared | case, folder)
    labels = [case.label for case in cases]
    if len(set(labels)) < len(labels):
        raise ConfigError(f"{path}: two cases are both called '{max(labels, key=labels.count)}': let them differ in a list")
    return Sweep(folder, cases)


def _combinations(path: Path, values: dict[str, Any], folder: Path) -> list[Case]:
    varied = [key for key, value in values.items() if isinstance(value, list) and key != "methods"]
    named = ["dataset", *(key for key in varied if key != "dataset")]
    found = []
    for choice in itertools.product(*(values[key] for key in varied)):
        one = values | dict(zip(varied, choice, strict=True))
        label = " ".join(str(one.get(key, "")) for key in named)
        name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in label)
        try:
            found.append(Case(label, replace(Spec.from_dict(one), out=str(folder / name))))
        except ConfigError as error:
            raise ConfigError(f"{path}: {label}: {error}") from None
    return found


def run_sweep(sweep: Sweep, display: Display, say: Callable[[str], None]) -> tuple[list[Finished], bool]:
    """Run what is not finished yet; what was, with the same settings, is read back. Also whether Ctrl-C cut it short."""
    done: list[Finished] = []
    for number, case in enumerate(sweep.cases, start=1):
        say(f"[{number}/{len(sweep.cases)}] {case.label}{', finished before' if is_finished(case.spec) else ''}")
        if not is_finished(case.spec):
            comparison = compare(case.spec, display)
            if comparison.interrupted:
                return done, True
            write_outputs(comparison)
            (comparison.folder / FINISHED_FILE).write_text(f"{comparison.num_clients}\n", encoding="utf-8")
        done.append(Finished(case.label, _read_summaries(case.spec)))
        write_table(sweep.folder, done)
    return done, False


def is_finished(spec: Spec) -> bool:
    """Whether the folder holds a complete run of exactly these settings."""
    settings = spec.folder / SETTINGS_FILE
    marked = (spec.folder / FINISHED_FILE).is_file() and settings.is_file()
    return marked and settings.read_text(encoding="utf-8") == spec.to_toml()


def _read_summaries(spec: Spec) -> list[Summary]:
    clients = int((spec.folder / FINISHED_FILE).read_text(encoding="utf-8"))
    return summarise(read_runs(spec.folder), clients)


def cell(summary: Summary | None) -> str:
    """Rounds and bytes per client to the smallest target, or where the method ended up instead."""
    if summary is None:
        return DASH
    target = next(t for t in summary.targets if t.gap == min(TARGETS))
    if target.rounds is None:
        return f"{next(iter(summary.endings))} {gap_text(summary.final_gap)}"
    rounds = target_text(target.rounds, summary.trials, rounds_text)
    sent = target.uplink_bytes_per_client
    return rounds if summary.sends_nothing or sent is None else f"{rounds} / {bytes_text(sent.mean)}"


def _grid(done: Sequence[Finished]) -> tuple[list[str], list[list[str]]]:
    methods = list(dict.fromkeys(s.method for finished in done for s in finished.summaries))
    by_case = [{s.method: s for s in finished.summaries} for finished in done]
    return methods, [[cell(found.get(method)) for found in by_case] for method in methods]


def write_table(folder: Path, done: Sequence[Finished]) -> None:
    """The table as CSV and as Markdown."""
    methods, rows = _grid(done)
    heading = ["method", *(finished.label for finished in done)]
    lines = [[method, *row] for method, row in zip(methods, rows, strict=True)]
    with (folder / TABLE_FILES[0]).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heading, *lines])
    marked = [heading, ["---"] * len(heading), *lines]
    text = "\n".join("| " + " | ".join(line) + " |" for line in marked)
    (folder / TABLE_FILES[1]).write_text(text + "\n", encoding="utf-8")


def sweep_table(done: Sequence[Finished]) -> Table:
    """One row per method, one column per case."""
    methods, rows = _grid(done)
    title = f"rounds / bytes sent per client to a gap of {gap_name(min(TARGETS))}"
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")
    for finished in done:
        table.add_column(finished.label.replace(" ", "\n", 1), justify="right", overflow="fold")
    for method, row in zip(methods, rows, strict=True):
        table.add_row(Text(one_parameter_a_line(method)), *(Text(text) for text in row))
    return table
