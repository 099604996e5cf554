"""Rounds, exchanges and bytes to the pooled answer: `auto` beside the methods that it must beat, one table.

    python benchmarks/auto.py [--seeds 10] [--only phishing,a9a] [--clients 4,40] [--methods "auto bytes,fedns"]
        [--cells runs/auto.jsonl,more.jsonl] [--table]

The rules of `auto` were chosen on the first half of the data sets; the second half was looked at afterwards. Bytes are per
client, of the encoded messages; rivals send float32. Every run is kept as a line in the first file of cells and is not made
again, so that the table can be made in pieces; `--table` prints it from what is there, docs/auto.md its main columns.
After a change of a method, take its lines out of the file. `--methods frontier` runs `auto` at fixed settings: they tell
whether few rounds and few bytes can be had together.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from auto_table import lines
from sklearn.datasets import load_digits

import fedns

LOGISTIC = fedns.Logistic()
RANDOM_FEATURES = fedns.RandomFourier(1000, width=2.0)
GAPS = (1e-6, 1e-10)
ROUNDS = 150
SERIOUS = 2.0
SPLITS = ("iid", "sorted", "dirichlet:0.1", "quantity:0.3")
CLIENTS = (4, 40, 200)
MEASURES = ("round", "exchanges", "uplink_bytes", "downlink_bytes")
# What may be had of rounds and bytes together: the parameters of `auto`, fixed, from few bits to many and from no curvature
# beyond the rules' to the Hessian in every round.
FRONTIER = {
    f"frontier {prefer}, {gradient} and {sketch} bits": fedns.Auto(prefer, gradient, sketch, direction_bits=gradient)
    for prefer in ("bytes", "balanced")
    for gradient, sketch in ((6, 5), (8, 8), (10, 6), (12, 10))
} | {f"frontier Hessians in {bits} bits": fedns.Auto("rounds", 12, hessian_bits=bits) for bits in (6, 8, 10)}
OURS = {"auto bytes": "bytes", "auto balanced": "balanced", "auto rounds": "rounds"}
Cell = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A data set as it is used here."""

    name: str
    half: str  # "chosen" or "held out"
    dataset: str
    loss: Any = LOGISTIC
    scale: str = "none"
    rows: int | None = None
    strength: float = 1e-3
    feature_map: Any = None
    sketch_size: int = 17  # of FedNS, as the paper has it or one effective dimension
    natural: bool = False  # the data's own sites only
    wide: bool = False  # too many columns for methods that decompose every client's Hessian in every round


CASES = (
    Case("phishing", "chosen", "phishing"),
    Case("a9a", "chosen", "a9a", sketch_size=30),
    Case("w8a", "chosen", "w8a", sketch_size=60),
    Case("covtype raw", "chosen", "covtype", rows=60_000, sketch_size=20),
    Case("cal_housing", "chosen", "cal_housing", fedns.Squared(), "standardise", sketch_size=8),
    Case("cod_rna raw", "held out", "cod_rna", sketch_size=10),
    Case("cod_rna scaled", "held out", "cod_rna", scale="standardise", sketch_size=10),
    Case("covtype scaled", "held out", "covtype", scale="standardise", rows=60_000, sketch_size=20),
    Case("heart", "held out", "fed_heart_disease", scale="standardise", natural=True),
    Case("school", "held out", "school_139clients", fedns.Squared(), natural=True),
    Case("abalone (Poisson)", "held out", "abalone_scale", fedns.Poisson(), sketch_size=8),
    Case("mnist even/odd", "held out", "mnist", scale="maxabs", rows=10_000, sketch_size=60, wide=True),
    Case(
        "random features",
        "held out",
        "phishing",
        feature_map=fedns.RandomFourier(1000, width=2.0),
        sketch_size=60,
        wide=True,
    ),
    Case("digits (softmax)", "held out", "digits", fedns.Softmax(classes=10), sketch_size=60, wide=True),
)


def methods(case: Case) -> dict[str, tuple[Any, str]]:
    """By name, the method and its wire precision."""
    sketch = fedns.SRHT(case.sketch_size)
    learners = {} if case.wide else {"fednl": fedns.FedNL(), "fednlbc": fedns.FedNLBC()}
    rivals = {
        "fednewton": fedns.FedNewton(),
        "fedns": fedns.FedNS(sketch),
        "fedndes": fedns.FedNDES(sketch),
        "giant": fedns.GIANT(),
        "lbfgs": fedns.LBFGS(),
        "scaffold": fedns.Scaffold(),
    } | learners
    ours = {name: (fedns.Auto(prefer=prefer), "float64") for name, prefer in OURS.items()}
    fixed = {name: (method, "float64") for name, method in FRONTIER.items()}
    return ours | {name: (method, "float32") for name, method in rivals.items()} | fixed


def settings(case: Case) -> list[tuple[int | None, str]]:
    return [(None, "own sites")] if case.natural else [(clients, how) for clients in CLIENTS for how in SPLITS]


@cache
def rows_of(case: Case) -> tuple[Any, Any, Any]:
    if case.dataset == "digits":
        features, targets = load_digits(return_X_y=True)
        return features / 16.0, targets.astype(float), None
    data = fedns.load(case.dataset)
    features, targets = data.features, data.targets
    if case.dataset == "mnist":
        targets = np.where(targets % 2 == 0, 1.0, -1.0)
    if case.dataset == "cal_housing":
        targets = targets / 1e5  # in units of 100,000, as the prices are usually quoted
    if isinstance(case.loss, fedns.Logistic):
        targets = fedns.as_binary(targets)
    if case.rows:
        kept = np.random.default_rng(0).permutation(features.shape[0])[: case.rows]
        features, targets = features[kept], targets[kept]
    return features, targets, data.groups


def shards_of(case: Case, clients: int | None, how: str, seed: int) -> tuple[fedns.Problem, fedns.Shards]:
    features, targets, groups = rows_of(case)
    if case.natural:
        shards = fedns.split(features, targets, None, how="group", groups=groups)
    else:
        shards = fedns.split(features, targets, clients=clients, how=how, seed=seed)
    if case.scale != "none":
        shards = fedns.scale(shards, case.scale)[0]
    problem = fedns.Problem(case.loss, fedns.Ridge(case.strength), feature_map=case.feature_map or fedns.Identity())
    return problem.linearised(shards)


def measured(case: Case, clients: int | None, how: str, seed: int, names: Iterable[str]) -> Iterator[Cell]:
    """The cells of these methods on one split, which is made once."""
    problem, shards = shards_of(case, clients, how, seed)
    optimum = fedns.pooled_optimum(problem, shards)
    for name in names:
        method, wire = methods(case)[name]
        started = time.perf_counter()
        history = fedns.simulate(
            method, problem, shards, rounds=ROUNDS, tol=GAPS[-1], seed=seed, optimum=optimum, wire=wire, threads=1
        )
        cell = {"data": case.name, "clients": clients, "split": how, "method": name, "seed": seed}
        yield cell | reached(history, shards.num_clients) | {"seconds": round(time.perf_counter() - started, 2)}


def reached(history: fedns.History, clients: int) -> Cell:
    """Rounds, exchanges and bytes per client when each gap was first reached; None where it was not."""
    found: Cell = {"ended": "" if history.converged else history.stop_reason}
    for gap in GAPS:
        hit = history.first_round_below(gap)
        totals = None if hit is None else [getattr(hit, name) for name in MEASURES]
        found[f"{gap:g}"] = totals and [*totals[:2], totals[2] / clients, totals[3] / clients]
    return found


def key(cell: Cell) -> tuple[Any, ...]:
    return tuple(cell[name] for name in ("data", "clients", "split", "method", "seed"))


def read_cells(path: Path) -> list[Cell]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def contenders(first: list[Cell]) -> set[str]:
    """Who runs with further seeds: `auto`, whom the table names, and whoever came within SERIOUS of the least bytes."""
    sent = {cell["method"]: cell["1e-10"][2] for cell in first if cell["1e-10"] and cell["method"] not in OURS | FRONTIER}
    least = min(sent.values(), default=0.0)
    return {
        *OURS,
        *FRONTIER,
        "fednewton",
        "fedns",
        *(name for name, bytes_up in sent.items() if bytes_up <= SERIOUS * least),
    }


def fill(path: Path, cases: list[Case], seeds: int, clients: set[int | None], wanted: set[str], splits: str) -> None:
    """Make the runs that are not in the file yet, a seed of everything before the next one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        there = {key(cell): cell for cell in read_cells(path)}
        for case in cases:
            for number, how in settings(case):
                names = [n for n in methods(case) if (n in FRONTIER if "frontier" in wanted else n in wanted or not wanted)]
                if seed:
                    place = (case.name, number, how)
                    serious = contenders([cell for made, cell in there.items() if made[:3] == place and cell["seed"] == 0])
                    names = [n for n in names if n in serious]
                missing = [n for n in names if (case.name, number, how, n, seed) not in there]
                if not missing or (clients and number not in clients) or (splits and how not in splits.split(",")):
                    continue
                for cell in measured(case, number, how, seed, missing):
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(cell) + "\n")
                    print(*key(cell), cell["1e-10"] or cell["ended"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", help="data sets, with commas")
    parser.add_argument("--clients", default="", help="numbers of clients, with commas")
    parser.add_argument("--methods", default="", help="methods, with commas")
    parser.add_argument("--cells", default="runs/auto.jsonl", help="files of runs, with commas; new ones go into the first")
    parser.add_argument("--splits", default="", help="splits, with commas")
    parser.add_argument("--table", action="store_true", help="print the table from the runs that are there")
    chosen = parser.parse_args()
    files = [Path(name) for name in chosen.cells.split(",")]
    if not chosen.table:
        cases = [case for case in CASES if not chosen.only or case.name in chosen.only.split(",")]
        numbers: set[int | None] = {int(text) for text in chosen.clients.split(",") if text}
        fill(files[0], cases, chosen.seeds, numbers, {text for text in chosen.methods.split(",") if text}, chosen.splits)
    halves = {case.name: case.half for case in CASES}
    print(*lines([cell for file in files for cell in read_cells(file)], halves), sep="\n")


if __name__ == "__main__":
    main()
