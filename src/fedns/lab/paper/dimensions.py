"""The effective dimension of every data set at hand, each one computed once and kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedns.core.errors import FednsError
from fedns.lab.comparison.workers import Say, Task
from fedns.lab.data.catalogue import available
from fedns.lab.data.datasets import load
from fedns.lab.data.partition import split_dataset
from fedns.lab.paper import STRENGTH, once
from fedns.methods.exchanges.effective_dimension import effective_dimension
from fedns.models.losses import LOSSES
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.studies.tables.missing import treat_missing
from fedns.studies.tables.scaling import scale

BADLY_SCALED = ("cod_rna", "cod_rna_t", "covtype", "cal_housing", "heart_4sites_raw", "fed_heart_disease", "mnist")
LARGE = 1e9  # multiplications in a Hessian, from which on a set is a task of its own
CUT = 16  # clients that the rows are given to; the sum over them does not depend on it


@dataclass(frozen=True)
class Dimension:
    """One data set: its shape and d_lambda at the strength of the experiments."""

    dataset: str
    rows: int
    columns: int
    loss: str
    scale: str
    value: float


def tasks(folder: Path, quick: bool) -> list[Task]:
    """A task for each large data set whose dimension is not known yet, and one for all small ones; quick or not."""
    wanted = [
        (info.name, how, once.path_of(folder, f"{info.name}-{how}"), info.rows * info.columns**2)
        for info in available()
        if info.task != "unreadable"
        for how in (("maxabs", "none") if info.name in BADLY_SCALED else ("none",))
    ]
    left = [one for one in wanted if not one[2].is_file()]
    large = [Task(f"effective dimension of {one[0]} ({one[1]})", measure, one[:3]) for one in left if one[3] > LARGE]
    small = [one[:3] for one in left if one[3] <= LARGE]
    return large + ([Task("effective dimensions of small sets", measure_all, (small,))] if small else [])


def measure_all(wanted: Iterable[tuple[str, str, Path]], say: Say) -> None:
    """One after the other."""
    for name, how, path in wanted:
        say(name)
        measure(name, how, path, lambda text: None)


def measure(name: str, how: str, path: Path, say: Say) -> None:
    """d_lambda of one data set, written to a file."""
    say("loading")
    # The labels do not enter; a multiclass set needs some label to be the positive one.
    try:
        dataset = load(name)
        if dataset.task == "multiclass":
            dataset = load(name, positive=0)
    except FednsError as error:
        raise FednsError(f"{name}: {error}") from None
    dataset = treat_missing(dataset, "mean")
    shards = scale(split_dataset(dataset, CUT, "contiguous", 0), how)[0]
    loss = "squared" if dataset.task == "regression" else "logistic"
    say("adding up the Hessian")
    value = effective_dimension(Problem(LOSSES[loss](), Ridge(STRENGTH)), shards)
    once.write(path, Dimension(name, shards.num_samples, shards.num_columns, loss, how, value))


def read(folder: Path) -> list[Dimension]:
    """Every dimension that was computed, in the order of the data sets' names."""
    return [Dimension(**values) for values in once.read(folder, "*")]


def dimension_of(known: Iterable[Dimension], dataset: str, how: str) -> float | None:
    """d_lambda of a data set with this scaling."""
    return next((one.value for one in known if (one.dataset, one.scale) == (dataset, how)), None)
