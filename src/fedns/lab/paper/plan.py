"""The plan of a reproduction: its runs, what is left out for want of data, and how long it should take."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from fedns.lab.comparison.sweep import Sweep, read_sweep, tasks_of
from fedns.lab.comparison.workers import Task
from fedns.lab.data import synthetic
from fedns.lab.data.catalogue import FOLDER_VARIABLE, names_at_hand
from fedns.lab.data.collection import fetch
from fedns.lab.paper import accuracy, dimensions, theorems

ONCE: dict[str, Any] = {"theorems": theorems, "dimensions": dimensions, "accuracy": accuracy}  # measured beside the sweeps
CONFIGS = ("figure1", "figure2", "table1", "heterogeneity")
# Seconds of one core that the tasks of each group took, to say beforehand how long the rest will take.
GROUPS = ("theorems", *CONFIGS, "dimensions", "accuracy")
CORE_SECONDS = {
    "quick": dict(zip(GROUPS, (40, 75, 25, 30, 20, 40, 20), strict=True)),
    "full": dict(zip(GROUPS, (400, 550, 560, 260, 70, 40, 90), strict=True)),
}


@dataclass(frozen=True)
class Plan:
    """Everything that a reproduction runs, in groups, and what it cannot run."""

    folder: Path
    quick: bool
    sweeps: dict[str, Sweep]
    left_out: list[str]  # sentences

    def tasks(self) -> dict[str, list[Task]]:
        """The tasks that are still to be done, by group, the longest first."""
        once = {name: group.tasks(self.folder / name, self.quick) for name, group in ONCE.items()}
        swept = {
            name: [replace(task, label=f"{name}: {task.label}") for task in tasks_of(sweep, outputs=False)]
            for name, sweep in self.sweeps.items()
        }
        return {name: (once | swept)[name] for name in GROUPS}

    def expected_seconds(self) -> float:
        """By the seconds that finished groups took elsewhere, shared among the cores here."""
        costs = CORE_SECONDS["quick" if self.quick else "full"]
        shares = {
            name: len(left) / len(self.sweeps[name].cases) if name in self.sweeps and left else bool(left)
            for name, left in self.tasks().items()
        }
        return sum(costs[name] * share for name, share in shares.items()) / (os.cpu_count() or 1)


def make_plan(folder: Path, quick: bool) -> Plan:
    """The paper's figures and tables on the data that are at hand."""
    there = set(names_at_hand())
    sweeps, absent = {}, []
    for name in CONFIGS:
        sweep = read_sweep(config(f"{name}.toml"), {"out": str(folder / name)}, quick=quick)
        cases = [
            case for case in sweep.cases if case.spec.dataset.startswith(synthetic.PREFIX) or case.spec.dataset in there
        ]
        absent += [case.spec.dataset for case in sweep.cases if case not in cases]
        sweeps[name] = replace(sweep, cases=cases)
    return Plan(folder, quick, sweeps, [how_to_get(name) for name in dict.fromkeys(absent)])


def how_to_get(dataset: str) -> str:
    """A sentence on a data set that is not here."""
    if fetch.find(dataset) is not None:
        return f"{dataset} is not on this machine and is left out: download it with `fedns data fetch {dataset}`"
    return (
        f"{dataset} is not on this machine and is left out: put {dataset}.npz into the folder that {FOLDER_VARIABLE} names"
    )


def config(name: str) -> Path:
    """A file of the folder configs: beside an installed package, or in the working copy that it was installed from."""
    packaged = Path(str(resources.files(__package__))) / "configs" / name
    return packaged if packaged.is_file() else Path(__file__).parents[4] / "configs" / name
