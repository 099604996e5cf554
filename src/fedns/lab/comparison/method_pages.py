"""Every method side by side, in theory and as measured: the source of `fedns methods` and of docs/methods.md."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import resources
from typing import ClassVar

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.checked import Checked, Count
from fedns.core.numbers import DASH, bytes_text, markdown_table
from fedns.core.shards import Shards
from fedns.methods import METHODS
from fedns.models.problem import Problem
from fedns.runs.methods import parameters
from fedns.simulation.simulator import simulate
from fedns.sketches import Sketch

MEASURED_FILE = "measured.json"
_ROUNDS = 3
_CLIENTS = 2
_WIDTH = 120  # characters of a line of the page


@dataclass(frozen=True)
class StatedRun:
    """A stated run of every method: its command, its cases, and a cell per method and case."""

    command: str
    cases: list[str]
    cells: dict[str, list[str]]  # by method as typed

    def only(self, wanted: Callable[[str], bool]) -> StatedRun:
        """The same without the other cases."""
        keep = [i for i, case in enumerate(self.cases) if wanted(case)]
        cells = {typed: [column[i] for i in keep] for typed, column in self.cells.items()}
        return StatedRun(self.command, [self.cases[i] for i in keep], cells)

    def of(self, name: str) -> list[str] | None:
        """The cells of the method of this name with the parameters that come first, if it was run."""
        return next((cells for typed, cells in self.cells.items() if typed.split(":")[0] == name), None)


def read_stated_run() -> StatedRun:
    """The run whose results are part of this package."""
    text = resources.files("fedns.lab.comparison").joinpath(MEASURED_FILE).read_text(encoding="utf-8")
    return StatedRun(**json.loads(text))


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


@dataclass(frozen=True)
class Size(Checked):
    """The size of problem that bytes are counted for."""

    is_settings: ClassVar[bool] = True
    features: Count  # M
    sketch_size: Count  # k
    clients: Count  # m
    wire: str


def comparison_of_methods(
    size: Size | None = None, *, short: bool = False, names: Iterable[str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: the paper's comparison table, and what a stated run measured; in short, on two kinds of split."""
    measured = read_stated_run()
    if short:
        measured = measured.only(lambda case: case.endswith((" iid", " sorted")))
    headings = ["method", "unlike clients", "sends per round", "rounds in theory", *measured.cases]
    if size is not None:
        headings[3:3] = ["bytes a round", "of all clients"]
    return headings, [_row(METHODS[name], measured, size) for name in (METHODS if names is None else names)]


def _row(kind: type[Algorithm], measured: StatedRun, size: Size | None) -> list[str]:
    cells = measured.of(kind.name) or [DASH] * len(measured.cases)
    sent = []
    if size is not None:
        count = bytes_per_round(kind(), size.features, size.sketch_size, size.wire)
        sent = [DASH] * 2 if count is None else [bytes_text(count), bytes_text(count * size.clients)]
    return [kind.name, kind.heterogeneous, kind.uplink, *sent, kind.theory, *cells]


def notes_on_methods(size: Size | None = None) -> list[str]:
    """Sentences on what the columns mean."""
    notes = [
        "unlike clients: what the FedNS paper's table says of data that differ between clients",
        "to a biased point: the fixed point is not the optimum where clients differ",
        "measured: rounds / bytes sent per client to a gap of 1e-10, or where the method ended, "
        f"by `{read_stated_run().command}`",
    ]
    if size is not None:
        notes.append(
            f"bytes a round: M={size.features}, k={size.sketch_size}, m={size.clients}, {size.wire}; the second and third "
            "round of a run on made-up data of this width, as the meter counted them"
        )
    return notes


def methods_page(names: Iterable[str] | None = None) -> str:
    """docs/methods.md, of every method or of some."""
    shown = list(METHODS if names is None else names)
    headings, rows = comparison_of_methods(names=shown)
    lines = [
        "# Methods",
        "",
        "<!-- Written by `fedns methods --markdown`; edit the docstrings of the methods instead. -->",
        "",
        "M is the number of coefficients, k the rows of a sketch, m the number of clients, κ the condition number. "
        "What is sent is counted in numbers per client.",
        "",
        *markdown_table(headings, rows),
        "",
        *(f"- {note}" for note in notes_on_methods()),
    ]
    for name in shown:
        kind = METHODS[name]
        lines += ["", f"## {name}", "", inspect.cleandoc(kind.__doc__ or ""), ""]
        settings = ", ".join(f"`{parameter}`" for parameter in parameters(kind))
        lines += [f"- sends per round: {kind.uplink}", f"- parameters: {settings or 'none'}", f"- paper: {kind.paper}"]
    return "\n\n".join(_wrapped(block) for block in "\n".join(lines).split("\n\n")) + "\n"


def _wrapped(block: str) -> str:
    """A paragraph, list or table of the page, in lines of at most `_WIDTH` characters where Markdown can break them."""
    lines = block.split("\n")
    if lines[0].startswith(("|", "<!--")) or max(map(len, lines)) <= _WIDTH:
        return block
    items = re.split(r"\n(?=- )", block)
    return "\n".join(_wrapped_item(item) for item in items)


def _wrapped_item(text: str) -> str:
    if max(map(len, text.split("\n"))) <= _WIDTH:
        return text
    one_line = re.sub(r" ([-+*]) ", "\0\\1 ", " ".join(text.split()))  # no line may begin like an item
    one_line = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), one_line)
    indent = "  " if text.startswith("- ") else ""
    wrapped = textwrap.fill(one_line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return wrapped.replace("\0", " ")
