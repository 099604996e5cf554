"""The paper's three theorems as measurements: figures, fitted rates beside the claimed ones, and what they decide."""

from __future__ import annotations

from pathlib import Path

from fedns.lab.comparison.workers import Say, Task
from fedns.lab.paper import once
from fedns.lab.paper.part import Part
from fedns.lab.paper.theorems.contraction import theorem1
from fedns.lab.paper.theorems.excess_risk import theorem3
from fedns.lab.paper.theorems.iterations import theorem2

THEOREMS = {"theorem1": theorem1, "theorem2": theorem2, "theorem3": theorem3}


def tasks(folder: Path, quick: bool) -> list[Task]:
    """A task for each theorem that is not measured yet."""
    files = {name: once.path_of(folder, f"{name}{'_quick' * quick}") for name in THEOREMS}
    left = {name: path for name, path in files.items() if not path.is_file()}
    return [Task(name.replace("theorem", "Theorem "), measure, (name, quick, path)) for name, path in left.items()]


def measure(name: str, quick: bool, path: Path, say: Say) -> None:
    """One theorem, written to a file."""
    once.write(path, THEOREMS[name](quick, say))


def read(folder: Path, quick: bool) -> list[Part]:
    """The theorems that were measured, each as a part of the report."""
    return [Part.from_dict(values) for values in once.read(folder, f"theorem?{'_quick' * quick}")]
