"""Rounds, exchanges and bytes to the pooled answer: `auto` beside the methods that it must beat, one table.

    python benchmarks/auto.py [--seeds 10] [--half chosen|held-out|both] [--out runs/auto.csv] [--only phishing,a9a]

The rules of `auto` were chosen on the first half of the data sets; the second half was looked at afterwards. Bytes are per
client, of the encoded messages; rivals send float32.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedns

LOGISTIC = fedns.Logistic()
GAPS = (1e-6, 1e-10)
ROUNDS = 150
SPLITS = ("iid", "sorted", "dirichlet:0.1", "quantity:0.3")
CLIENTS = (4, 40, 200)


@dataclass(frozen=True)
class Case:
    """A data set as it is used here."""

    name: str
    half: str  # "chosen" or "held-out"
    dataset: str
    loss: Any = LOGISTIC
    scale: str = "none"
    rows: int | None = None
    strength: float = 1e-3
    feature_map: Any = None
    sketch_size: int = 17  # of FedNS, as the paper has it or one effective dimension
    natural: bool = False  # the data's own sites only


CASES = (
    Case("phishing", "chosen", "phishing"),
    Case("a9a", "chosen", "a9a", sketch_size=30),
    Case("w8a", "chosen", "w8a", sketch_size=60),
    Case("covtype raw", "chosen", "covtype", rows=60_000, sketch_size=20),
    Case("cal_housing", "chosen", "cal_housing", fedns.Squared(), "standardise", sketch_size=8),
    Case("cod_rna raw", "held-out", "cod_rna", sketch_size=10),
    Case("cod_rna scaled", "held-out", "cod_rna", scale="standardise", sketch_size=10),
    Case("covtype scaled", "held-out", "covtype", scale="standardise", rows=60_000, sketch_size=20),
    Case("mnist even/odd", "held-out", "mnist", scale="maxabs", rows=10_000, sketch_size=60),
    Case("heart", "held-out", "fed_heart_disease", scale="standardise", natural=True),
    Case("school", "held-out", "school_139clients", fedns.Squared(), natural=True),
    Case("random features", "held-out", "phishing", feature_map=fedns.RandomFourier(1000, width=2.0), sketch_size=60),
)


def methods(case: Case) -> dict[str, tuple[Any, str]]:
    """By name, the method and its wire precision."""
    return {
        "auto bytes": (fedns.Auto(prefer="bytes"), "float64"),
        "auto balanced": (fedns.Auto(prefer="balanced"), "float64"),
        "auto rounds": (fedns.Auto(prefer="rounds"), "float64"),
        "fednewton": (fedns.FedNewton(), "float32"),
        "fedns": (fedns.FedNS(sketch=fedns.SRHT(case.sketch_size)), "float32"),
        "fedndes": (fedns.FedNDES(sketch=fedns.SRHT(case.sketch_size)), "float32"),
        "giant": (fedns.GIANT(), "float32"),
        "lbfgs": (fedns.LBFGS(), "float32"),
        "fednl": (fedns.FedNL(), "float32"),
    }


def shards_of(case: Case, clients: int | None, how: str, seed: int) -> tuple[fedns.Problem, fedns.Shards]:
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
    if case.natural:
        shards = fedns.split(features, targets, None, how="group", groups=data.groups)
    else:
        shards = fedns.split(features, targets, clients=clients, how=how, seed=seed)
    if case.scale != "none":
        shards = fedns.scale(shards, case.scale)[0]
    problem = fedns.Problem(case.loss, fedns.Ridge(case.strength))
    if case.feature_map is not None:
        problem, shards = fedns.Problem(case.loss, fedns.Ridge(case.strength), feature_map=case.feature_map).linearised(
            shards
        )
    return problem, shards


def settings(case: Case) -> Iterator[tuple[int | None, str]]:
    if case.natural:
        yield None, "own sites"
        return
    for clients in CLIENTS:
        for how in SPLITS:
            yield clients, how


def measured(case: Case, seeds: int) -> Iterator[dict[str, Any]]:
    for clients, how in settings(case):
        runs: dict[str, list[fedns.History]] = {}
        for seed in range(seeds):
            problem, shards = shards_of(case, clients, how, seed)
            optimum = fedns.pooled_optimum(problem, shards)
            for name, (method, wire) in methods(case).items():
                history = fedns.simulate(
                    method, problem, shards, rounds=ROUNDS, tol=GAPS[-1], seed=seed, optimum=optimum, wire=wire
                )
                runs.setdefault(name, []).append(history)
        for name, histories in runs.items():
            yield {"half": case.half, "data": case.name, "clients": shards.num_clients, "split": how, "method": name} | row(
                histories, shards.num_clients
            )


def row(histories: list[fedns.History], clients: int) -> dict[str, Any]:
    """Means over seeds; empty where a seed did not get there."""
    found: dict[str, Any] = {}
    for gap in GAPS:
        hits = [history.first_round_below(gap) for history in histories]
        whole = all(hit is not None for hit in hits)
        for key, per in (("round", 1), ("exchanges", 1), ("uplink_bytes", clients), ("downlink_bytes", clients)):
            found[f"{key}_{gap:g}"] = f"{np.mean([getattr(hit, key) / per for hit in hits]):.1f}" if whole else ""
    found["ended"] = "" if all(h.converged for h in histories) else next(h.stop_reason for h in histories if not h.converged)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--half", choices=("chosen", "held-out", "both"), default="both")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("runs/auto.csv"))
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    with chosen.out.open("w", newline="", encoding="utf-8") as file:
        writer: csv.DictWriter[str] | None = None
        for case in CASES:
            if chosen.half not in ("both", case.half) or (chosen.only and case.name not in chosen.only.split(",")):
                continue
            for line in measured(case, chosen.seeds):
                if writer is None:
                    writer = csv.DictWriter(file, line)
                    writer.writeheader()
                writer.writerow(line)
                file.flush()
                up, down = line["uplink_bytes_1e-10"] or "-", line["downlink_bytes_1e-10"] or "-"
                place = f"{line['data']:16} {line['clients']:4} {line['split']:14} {line['method']:14}"
                print(
                    f"{place} {line['round_1e-10'] or '-':>6} rounds {up:>10} up {down:>8} down  {line['ended']}", flush=True
                )


if __name__ == "__main__":
    main()
