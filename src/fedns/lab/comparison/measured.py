"""What methods need, by measurement: bytes of a round at a given size, and the rounds of a stated run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.shards import Shards
from fedns.models.problem import Problem
from fedns.simulation.simulator import simulate
from fedns.sketches import Sketch

MEASURED_FILE = "measured.json"
_ROUNDS = 3
_CLIENTS = 2


@dataclass(frozen=True)
class Measured:
    """A stated run of every method: its command, its cases, and a cell per method and case."""

    command: str
    cases: list[str]
    cells: dict[str, list[str]]  # by method as typed

    def only(self, wanted: Callable[[str], bool]) -> Measured:
        """The same without the other cases."""
        keep = [i for i, case in enumerate(self.cases) if wanted(case)]
        cells = {typed: [column[i] for i in keep] for typed, column in self.cells.items()}
        return Measured(self.command, [self.cases[i] for i in keep], cells)

    def of(self, name: str) -> list[str] | None:
        """The cells of the method of this name with the parameters that come first, if it was run."""
        return next((cells for typed, cells in self.cells.items() if typed.split(":")[0] == name), None)


def read_measured() -> Measured:
    """The run whose results are part of this package."""
    text = resources.files("fedns.lab.comparison").joinpath(MEASURED_FILE).read_text(encoding="utf-8")
    return Measured(**json.loads(text))


def bytes_per_round(method: Algorithm, num_features: int, sketch_size: int, wire: str) -> float | None:
    """Bytes that a client sends in a round after the first, counted by the meter on made-up data of this width."""
    if method.pooled:
        return None
    sketch: Sketch | None = getattr(method, "sketch", None)
    if sketch is not None:
        method = replace(method, sketch=replace(sketch, size=sketch_size))  # type: ignore[type-var]
    shards = _made_up(num_features, 2 * sketch_size)
    history = simulate(method, Problem(), shards, rounds=_ROUNDS, wire=wire)
    sent = history.uplink_bytes
    return float(sent[-1] - sent[1]) / (len(sent) - 2) / _CLIENTS if len(sent) > 2 else None


def _made_up(num_features: int, least_rows: int) -> Shards:
    random = np.random.default_rng(0)
    rows = max(least_rows, 2 * num_features)
    features = random.standard_normal((_CLIENTS * rows, num_features))
    targets = np.where(random.random(len(features)) < 0.5, -1.0, 1.0)
    return Shards.from_arrays(features, targets, [rows] * _CLIENTS)
