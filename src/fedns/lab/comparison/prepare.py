"""From settings to something that can be run: load, split, scale, and find the pooled optimum."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedns.core.shards import Shards
from fedns.lab.data.datasets import load
from fedns.lab.data.partition import split_dataset
from fedns.models.problem import Problem
from fedns.models.reference import Optimum, pooled_optimum
from fedns.numerics import parallel
from fedns.numerics.linalg import single_threaded_blas
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.rows import SparseRows
from fedns.runs.builder import problem_of
from fedns.runs.compare import Compare
from fedns.runs.methods import Method
from fedns.studies.tables.dataset import Dataset
from fedns.studies.tables.labels import as_binary
from fedns.studies.tables.missing import treat_missing
from fedns.studies.tables.scaling import scale

SAME_EVERY_TRIAL = ("contiguous", "sorted", "group")  # splits that draw nothing


@dataclass(frozen=True, eq=False)
class Trial:
    """The data of one trial as its clients hold them."""

    number: int  # from 0
    seed: int
    shards: Shards
    optimum: Optimum


def load_data(spec: Compare) -> tuple[Dataset, Problem]:
    """The data set, and the problem that its targets and the settings pose."""
    dataset = load(spec.dataset, positive=spec.positive, target=spec.target, group=spec.group, weight=spec.weight)
    dataset = treat_missing(dataset, spec.missing)
    name = spec.loss
    if name == "auto":
        name = "squared" if dataset.task == "regression" else "logistic"
    if name == "logistic" and dataset.task != "binary":
        as_binary(dataset.targets)  # says how many labels there are, and how to choose one
    return dataset, problem_of(replace(spec, loss=name))


def split_and_scale(spec: Compare, dataset: Dataset, trial: int) -> Shards:
    """Rows given to clients with this trial's seed, then scaled from the clients' summaries."""
    shards = split_dataset(dataset, spec.num_clients, spec.split, spec.seed + trial)
    return scale(shards, spec.scale)[0].onehot


def prepare_trial(spec: Compare, problem: Problem, shards: Shards, trial: int) -> Trial:
    """The trial with the optimum that all its methods are measured against."""
    with parallel.threads(spec.threads), single_threaded_blas():
        return Trial(trial, spec.seed + trial, shards, pooled_optimum(problem, shards))


def describe_data(spec: Compare, dataset: Dataset, problem: Problem, shards: Shards) -> dict[str, str]:
    """Facts about the data that a reader needs, of the first trial where the split is drawn."""
    sizes = shards.sizes
    facts = {
        "data set": dataset.name,
        "source": dataset.source or "not stated",
        "rows and columns": f"{shards.num_samples} x {shards.num_columns}{_density(shards)}",
        "storage": _storage(shards),
        "coefficients (M)": f"{problem.num_features(shards.num_columns)}{', one the intercept' * spec.intercept}",
        "targets": _targets(dataset, problem),
        "clients": f"{shards.num_clients}, split {spec.split}",
        "rows per client": f"{sizes.min()} / {np.median(sizes):g} / {sizes.max()} (smallest / median / largest)",
        "scaling": f"{spec.scale}; {scaling_cost(spec.scale, shards.num_columns)}",
    }
    if spec.missing != "refuse":
        facts["missing values"] = f"{spec.missing}: {dataset.description}"
    if dataset.sample_weights is not None:
        facts["sample weights"] = f"column '{spec.weight}'" if spec.weight else "of the data set"
    return facts


def scaling_cost(how: str, num_columns: int) -> str:
    """Say what each site sends for the scaling, once and before the first round: a count and three numbers per column."""
    if how == "none":
        return "no site sends anything for it"
    numbers = 1 + 3 * num_columns
    return (
        f"each site sends its number of rows and the mean, squared deviations and largest absolute value of every column "
        f"once before the first round: {numbers} numbers, {8 * numbers} bytes, not counted in the tables"
    )


def notes_on_sketches(methods: list[Method], shards: Shards, num_features: int) -> list[str]:
    """Where a sketch is larger than the packed Hessian that it stands in for."""
    triangle = num_features * (num_features + 1) // 2
    notes = []
    for method in methods:
        rows = _largest_sketch(method, shards)
        if rows * num_features > triangle:
            notes.append(
                f"{method.label}: a sketch of {rows} rows is {rows * num_features} numbers, more than the {triangle} of the "
                f"packed Hessian (M = {num_features}); fednewton sends less in a round"
            )
    return notes


def _largest_sketch(method: Method, shards: Shards) -> int:
    """The most rows of a sketch that any client will send; 0 where it sends none."""
    sketch = getattr(method.algorithm, "sketch", None)
    if sketch is None or method.algorithm.pooled:
        return 0
    rows = int(sketch.plan(shards.sizes).sizes.max())
    second = getattr(method.algorithm, "second_size", None)
    if second is None:
        return rows
    # Twice the first is what FedNDES takes where nothing else is asked for.
    larger = type(sketch)(second or 2 * sketch.size)
    return max(rows, int(larger.plan(shards.sizes).sizes.max()))


def _density(shards: Shards) -> str:
    if not isinstance(shards.rows, SparseRows):
        return ""
    return f", compressed, {shards.rows.data.size / max(1, shards.num_samples):.3g} nonzeros a row"


def _storage(shards: Shards) -> str:
    """The type that the numbers are held in, and what it saves."""
    rows = shards.rows
    if isinstance(rows, OneHotRows):
        held = f"{rows.numbers.dtype} and an index for {rows.firsts.size} one-hot groups, {rows.nbytes / 1e6:.3g} MB"
        return f"{held} instead of {8 * shards.num_columns * rows.shape[0] / 1e6:.3g} MB, exact"
    values = rows.data if isinstance(rows, SparseRows) else rows.flat
    wide = rows.nbytes + values.size * (8 - values.itemsize)
    held = f"{values.dtype}, {rows.nbytes / 1e6:.3g} MB"
    return held if rows.nbytes == wide else f"{held} instead of {wide / 1e6:.3g} MB, exact"


def _targets(dataset: Dataset, problem: Problem) -> str:
    y = dataset.targets
    if problem.loss.name == "logistic":
        return (
            f"two classes, {int((y > 0).sum())} rows (+1) and {int((y <= 0).sum())} rows (-1): {(y > 0).mean():.1%} are +1"
        )
    return f"numbers, mean {y.mean():.4g}, standard deviation {y.std():.4g}"
