"""Measured theorems on disk, so that they are measured once."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedns.core.files import write_whole
from fedns.lab.comparison.workers import Say, Task
from fedns.lab.paper import STRENGTH
from fedns.lab.paper.part import Part, Verdict
from fedns.lab.paper.theorems import theorem1, theorem2, theorem3
from fedns.reports.charts import Chart, Line, Scale

THEOREMS = {"Theorem 1": theorem1, "Theorem 2": theorem2, "Theorem 3": theorem3}


def tasks(folder: Path, quick: bool) -> list[Task]:
    """A task for each theorem that is not measured yet."""
    return [
        Task(name, measure, (name, quick, path)) for name in THEOREMS if not (path := _path(folder, name, quick)).is_file()
    ]


def measure(name: str, quick: bool, path: Path, say: Say) -> None:
    """One theorem, written to a file."""
    found = THEOREMS[name](quick, say)
    write_whole(path, json.dumps(asdict(found), default=float) + "\n")


def read(folder: Path, quick: bool) -> list[Part]:
    """The theorems that were measured, each as a part of the report."""
    paths = [_path(folder, name, quick) for name in THEOREMS]
    return [_part(json.loads(path.read_text(encoding="utf-8"))) for path in paths if path.is_file()]


def _path(folder: Path, name: str, quick: bool) -> Path:
    return folder / f"{name.lower().replace(' ', '')}{'_quick' if quick else ''}-{STRENGTH:g}.json"


def _part(values: dict[str, Any]) -> Part:
    charts, verdicts = map(_chart, values["charts"]), (Verdict(**verdict) for verdict in values["verdicts"])
    return Part(
        **values | {"charts": list(charts), "verdicts": list(verdicts), "tables": list(map(tuple, values["tables"]))}
    )


def _chart(values: dict[str, Any]) -> Chart:
    scales = {name: Scale(**scale) for name, scale in values["x"].items()}
    lines = [Line(**line) for line in values["lines"]]
    return Chart(**values | {"x": scales, "y": Scale(**values["y"]), "lines": lines})
