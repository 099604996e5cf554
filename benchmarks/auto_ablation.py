"""What each ingredient of `auto` is worth: rounds and bytes per client to a gap of 1e-10 with one of them removed.

python benchmarks/auto_ablation.py [--seeds 3] [--only phishing]

Data sets and splits are those that the rules were chosen on. Every ingredient is taken out of the running code by a patch,
so that nothing in the package is there for this table alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
from auto import CASES, shards_of

import fedns
from fedns.core.messages import encoding
from fedns.methods.auto import exchanges, sources, thresholds, turn

ROUNDS, GAP = 150, 1e-10
SETTINGS = ((4, "iid"), (40, "iid"), (40, "dirichlet:0.1"))
NAMES = ("phishing", "a9a", "covtype raw")


def fixed_length_bytes(values: Any, offsets: Any = None) -> Any:
    """As many bits for every integer of a message as the largest needs: the price without an entropy coder."""
    clients = len(values) if offsets is None else len(offsets) - 1
    parts = values if offsets is None else [values[offsets[j] : offsets[j + 1]] for j in range(clients)]
    largest = [np.abs(part.astype(np.int64)).max(initial=0) for part in parts]
    return np.array([-(-part.size * (int(most).bit_length() + 1) // 8) for part, most in zip(parts, largest, strict=True)])


def whole_gradients(change: Callable[..., Any]) -> Callable[..., Any]:
    """Clients send the gradient itself, rounded, and not its change."""

    def sent(self: Any, problem: Any, clients: Any, request: Any, w: Any, scales: Any) -> Any:
        clients.remember("auto_gradient", np.zeros((clients.ids.size, w.shape[-1])))
        return change(self, problem, clients, request, w, scales)

    return sent


def forgetful(move: Callable[..., Any]) -> Callable[..., Any]:
    """The server takes what arrives for the gradient and not for its change."""

    def moved(self: Any, *arguments: Any) -> None:
        self.state = self.state.after(gradient=np.zeros_like(self.state.gradient))
        move(self, *arguments)

    return moved


def ablations() -> dict[str, list[Any]]:
    """By what is missing, the patches that take it out."""
    turn_class, half = turn.Turn, exchanges.ClientHalf
    flat = patch.object(exchanges, "exponents_of", lambda squares: np.zeros(squares.shape, np.int16))
    flat_here = patch.object(turn, "exponents_of", lambda squares: np.zeros(squares.shape, np.int16))
    sketches = patch.object(thresholds, "FEWEST_ROWS_OF_SENDERS", np.inf)
    return {
        "nothing": [],
        "changes of gradients": [
            patch.object(half, "_change", whole_gradients(half._change)),
            patch.object(turn_class, "_move", forgetful(turn_class._move)),
        ],
        "few bits (14 for all)": [],
        "the entropy coder": [patch.object(encoding, "small_ints_sizes", fixed_length_bytes)],
        "scaled columns": [flat, flat_here],
        "BFGS pairs": [patch.object(turn_class, "remember_pair", lambda self: None)],
        "averaging over rounds": [patch.object(thresholds, "FORGETTING", 0.0)],
        "asking again": [patch.object(thresholds, "MEAGRE", np.inf), patch.object(thresholds, "STALLED", np.inf)],
        "clients' own Hessians": [patch.object(thresholds, "FEW_SITES", 0)],
        "only half of them": [patch.object(thresholds, "SOLVERS", 1.0)],
        "roots of some (sketches)": [sketches],
        "the bound on a step": [patch.object(turn_class, "_within_reason", lambda self, step: step)],
        "steps in 12 bits (8)": [patch.object(thresholds, "STEP_BITS", 8)],
        "nothing, `balanced`": [],
        "roots of some (sketches), `balanced`": [sketches],
        "asking again by what is left, `balanced`": [
            patch.object(thresholds, f"LEFT_BY_{n}", np.inf) for n in ("FEW", "MANY")
        ],
        "products, `balanced`": [patch.object(sources.Source, "looks", lambda self, rules, state: 0)],
    }


def lines(seeds: int, only: set[str]) -> Iterator[str]:
    places = [(case, *setting) for case in CASES if case.name in NAMES for setting in SETTINGS]
    places = [place for place in places if not only or place[0].name in only]
    prepared = [
        [(problem, shards, fedns.pooled_optimum(problem, shards)) for problem, shards in splits]
        for splits in ([shards_of(case, clients, how, seed) for seed in range(seeds)] for case, clients, how in places)
    ]
    yield "| without | " + " | ".join(f"{case.name}, {clients} {how}" for case, clients, how in places) + " |"
    yield "|---" * (len(places) + 1) + "|"
    for name, patches in ablations().items():
        bits = 14 if "14" in name else None
        prefer = "balanced" if "balanced" in name else "bytes"
        method = fedns.Auto(prefer, bits, bits, bits, bits)
        with ExitStack() as stack:
            for one in patches:
                stack.enter_context(one)
            yield f"| {name} | " + " | ".join(cell(method, place) for place in prepared) + " |"


def cell(method: fedns.Auto, runs: list[Any]) -> str:
    rounds, sent, failed = [], [], 0
    for seed, (problem, shards, optimum) in enumerate(runs):
        settings: dict[str, Any] = {"rounds": ROUNDS, "tol": GAP, "seed": seed, "optimum": optimum, "threads": 1}
        history = fedns.simulate(method, problem, shards, **settings)
        failed += not history.converged
        rounds.append(history.round[-1])
        sent.append(history.uplink_bytes[-1] / shards.num_clients)
    reached = f"{np.mean(rounds):.1f} / {np.mean(sent):.0f}"
    return reached if not failed else f"{failed} of {len(runs)} fail"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="data sets, with commas")
    chosen = parser.parse_args()
    for line in lines(chosen.seeds, {name for name in chosen.only.split(",") if name}):
        print(line, flush=True)


if __name__ == "__main__":
    main()
