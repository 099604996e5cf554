"""Held-out accuracy against the sketch size: what the paper calls predictive accuracy and generalisation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Algorithm
from fedns.core.history import Observer, Record
from fedns.core.types import FloatArray
from fedns.lab.comparison.workers import Say, Task
from fedns.lab.data.catalogue import names_at_hand
from fedns.lab.data.datasets import load
from fedns.lab.data.partition import split_dataset
from fedns.lab.paper import STRENGTH, once
from fedns.lab.paper.part import Check, Part, claim, table_of_rows, verdicts_on
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.models.reference import pooled_optimum
from fedns.reports.charts import Chart, Curve, Scale, grouped
from fedns.runs.methods import parse_method
from fedns.simulation.simulator import simulate
from fedns.studies.tables.dataset import Dataset
from fedns.studies.tables.scaling import scale

EARLY_ROUNDS, LAST_ROUND = 3, 15
TRIALS = {False: 10, True: 2}  # by whether it has to be quick
HELD_OUT = 5  # every so many rows is held out where there is no test set
METHODS = ("fedns", "fedndes")
NOTICEABLE = 0.001  # a tenth of a percentage point


@dataclass(frozen=True)
class HeldOut:
    """A data set with its test rows, clients and sketch sizes."""

    dataset: str
    test: str | None
    clients: int
    scale: str
    sizes: tuple[int, ...]


SETTINGS = (
    HeldOut("phishing", None, 40, "none", (1, 2, 4, 8, 17, 34, 68)),
    HeldOut("cod_rna", "cod_rna_t", 60, "maxabs", (1, 2, 4, 8)),
    HeldOut("a9a", "a9a_t", 80, "none", (1, 2, 4, 8, 15, 30, 61)),
)


@dataclass(frozen=True)
class Accuracy:
    """The accuracy on rows that no client has, the mean over trials."""

    dataset: str
    method: str
    size: int  # of the sketch; 0 for the pooled optimum
    early: float  # after a few rounds
    last: float
    columns: int
    test_rows: int


def tasks(folder: Path, quick: bool) -> list[Task]:
    """A task for each setting whose data are there and that is not measured yet."""
    trials, there, found = TRIALS[quick], names_at_hand(), []
    for setting in SETTINGS:
        path = once.path_of(folder, f"{setting.dataset}-{trials}")
        if setting.dataset in there and setting.test in (None, *there) and not path.is_file():
            found.append(Task(f"held-out accuracy on {setting.dataset}", measure, (setting, trials, path)))
    return found


def measure(setting: HeldOut, trials: int, path: Path, say: Say) -> None:
    """Train with each method and sketch size, and keep the accuracies."""
    train, test = _parts(setting)
    rows = test.num_samples
    problem = Problem(penalty=Ridge(STRENGTH))
    scores: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for trial in range(trials):
        shards, scaling = scale(split_dataset(train, setting.clients, "iid", trial), setting.scale)
        optimum = pooled_optimum(problem, shards)
        score = _Scores(test, scaling.scale)
        best = score.of(optimum.coefficients)
        scores.setdefault(("pooled optimum", 0), []).append((best, best))
        for name in METHODS:
            for size in setting.sizes:
                say(f"{name}, sketch size {size}, trial {trial + 1} of {trials}")
                algorithm: Algorithm = parse_method(name, "srht", size).algorithm
                score.by_round.clear()
                simulate(
                    algorithm, problem, shards, rounds=LAST_ROUND, tol=1e-10, seed=trial, optimum=optimum, observers=(score,)
                )
                scores.setdefault((name, size), []).append((score.by_round[: EARLY_ROUNDS + 1][-1], score.by_round[-1]))
    points = [
        Accuracy(setting.dataset, *key, fmean(e for e, _ in pairs), fmean(z for _, z in pairs), train.num_columns, rows)
        for key, pairs in scores.items()
    ]
    once.write(path, points)


class _Scores(Observer):
    """The accuracy on the test rows after every round."""

    def __init__(self, test: Dataset, divisors: FloatArray) -> None:
        self._test, self._divisors = test, divisors
        self.by_round: list[float] = []

    def of(self, coefficients: FloatArray) -> float:
        margins = self._test.features @ (coefficients / self._divisors)
        return float(np.mean((margins > 0) == (self._test.targets > 0)))

    def on_round(self, record: Record, state: Any) -> None:
        self.by_round.append(self.of(state.coefficients))


def _parts(setting: HeldOut) -> tuple[Dataset, Dataset]:
    """Training and test rows."""
    whole = load(setting.dataset)
    if setting.test is not None:
        return whole, load(setting.test)
    held = np.arange(whole.num_samples) % HELD_OUT == 0
    return _rows(whole, ~held), _rows(whole, held)


def _rows(dataset: Dataset, keep: NDArray[np.bool_]) -> Dataset:
    return replace(dataset, features=dataset.features[keep], targets=dataset.targets[keep])


def read(folder: Path, quick: bool) -> list[Accuracy]:
    """Every accuracy that was measured."""
    return [Accuracy(**values) for points in once.read(folder, f"*-{TRIALS[quick]}") for values in points]


def build(points: Sequence[Accuracy]) -> Part:
    """Accuracies as charts and a table, and the claims about them."""
    return Part(
        "Predictive accuracy on held-out rows",
        ["phishing: every fifth row is held out; cod_rna and a9a have test sets of their own."],
        [_chart(name, group) for name, group in grouped(points, lambda p: p.dataset).items()],
        [table_of_rows("Held-out accuracy", map(_row, points))],
        {f"{p.dataset}: {p.method} {p.size} held-out accuracy": p.last for p in points},
        verdicts_on((higher_verdict, small_verdict, monotone_verdict, better_verdict), points),
    )


def _row(p: Accuracy) -> dict[str, str]:
    return {
        "data set": p.dataset,
        "method": p.method,
        "sketch size": str(p.size) if p.size else "-",
        f"accuracy after {EARLY_ROUNDS} rounds": f"{p.early:.4f}",
        "accuracy at the end": f"{p.last:.4f}",
        "test rows": str(p.test_rows),
    }


@claim(
    "Fig. 1, claim 3, accuracy",
    "the final predictive accuracies of FedNDES are higher than those of FedNS",
    f"{{measured}} (higher: by {NOTICEABLE:.1%} or more)",
)
def higher_verdict(points: Sequence[Accuracy]) -> Iterator[Check]:
    """Figure 1, claim 3, second half, at the largest sketch."""
    for dataset, found in _by_dataset(points):
        size = max(size for _, size in found)
        ns, des = found["fedns", size].last, found["fedndes", size].last
        yield Check(dataset, des > ns + NOTICEABLE, f"{dataset} (k = {size}) FedNDES {des:.4f}, FedNS {ns:.4f}")


@claim(
    "Fig. 1, claim 4",
    "small sketches preserve considerable accuracy",
    f"lowest accuracy with k ≤ M/4: {{measured}} (preserved: within {NOTICEABLE:.1%})",
)
def small_verdict(points: Sequence[Accuracy]) -> Iterator[Check]:
    """Figure 1, claim 4: sketches of at most a quarter of the columns."""
    for dataset, found in _by_dataset(points):
        best = found["pooled optimum", 0].last
        for name in METHODS:
            small = [(size, p.last) for (method, size), p in found.items() if method == name and 0 < 4 * size <= p.columns]
            size, worst = min(small, key=lambda pair: pair[1])
            measured = f"{dataset} {name} {worst:.4f} at k = {size}, pooled {best:.4f}"
            yield Check(f"{name} on {dataset}", worst >= best - NOTICEABLE, measured)


@claim("Fig. 2, claim 1, accuracy", "a larger sketch always generalises better", "held-out accuracy at the end: {measured}")
def monotone_verdict(points: Sequence[Accuracy]) -> Iterator[Check]:
    """Figure 2, claim 1: whether accuracy rises with every step of the sketch size."""
    for dataset, found in _by_dataset(points):
        for name in METHODS:
            row = [found[key] for key in sorted(found) if key[0] == name]
            accuracies, sizes = (
                " ".join(texts) for texts in zip(*((f"{p.last:.4f}", str(p.size)) for p in row), strict=True)
            )
            rises = all(a.last < b.last for a, b in itertools.pairwise(row))
            yield Check(f"{name} on {dataset}", rises, f"{dataset} {name} {accuracies} (k {sizes})")


@claim(
    "Fig. 2, claim 4, accuracy",
    "with a small sketch FedNDES generalises better than FedNS",
    f"{{measured}} (better: by {NOTICEABLE:.1%} or more)",
)
def better_verdict(points: Sequence[Accuracy]) -> Iterator[Check]:
    """Figure 2, claim 4 in terms of accuracy: the smallest sketch, after few rounds."""
    for dataset, found in _by_dataset(points):
        size = min(size for _, size in found if size)
        ns, des = found["fedns", size], found["fedndes", size]
        measured = (
            f"{dataset} k = {size}: FedNDES {des.early:.4f} after {EARLY_ROUNDS} rounds and {des.last:.4f} at the end, "
            f"FedNS {ns.early:.4f} and {ns.last:.4f}"
        )
        yield Check(dataset, des.early > ns.early + NOTICEABLE or des.last > ns.last + NOTICEABLE, measured)


def _by_dataset(points: Sequence[Accuracy]) -> Iterator[tuple[str, dict[tuple[str, int], Accuracy]]]:
    for dataset, group in grouped(points, lambda p: p.dataset).items():
        yield dataset, {(p.method, p.size): p for p in group}


def _chart(dataset: str, points: Sequence[Accuracy]) -> Chart:
    best = next(p.last for p in points if p.size == 0)
    lines = []
    for name in METHODS:
        row = [p for p in points if p.method == name]
        sizes = [float(p.size) for p in row]
        lines.append(Curve(f"{name}, after {EARLY_ROUNDS} rounds", {"k": sizes}, [p.early for p in row]))
        lines.append(Curve(f"{name}, at the end", {"k": sizes}, [p.last for p in row]))
    return Chart(
        f"accuracy_{dataset}",
        f"{dataset}: accuracy on held-out rows",
        "The dotted line is the accuracy of the pooled optimum.",
        {"k": Scale("sketch size k", logarithmic=True)},
        Scale("accuracy"),
        lines,
        level=best,
    )
