"""Every method side by side, in theory and as measured: the source of `fedns methods` and of docs/methods.md."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from fedns.core.algorithm import Algorithm
from fedns.core.checked import Checked, Count
from fedns.core.numbers import DASH, bytes_text, markdown_table
from fedns.lab.comparison.measured import Measured, bytes_per_round, read_measured
from fedns.methods import METHODS
from fedns.runs.methods import parameters


@dataclass(frozen=True)
class Size(Checked):
    """What bytes are counted for."""

    is_settings: ClassVar[bool] = True
    features: Count  # M
    sketch_size: Count  # k
    clients: Count  # m
    wire: str


def comparison_of_methods(
    size: Size | None = None, *, short: bool = False, names: Iterable[str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: the paper's comparison table, and what a stated run measured; in short, on two kinds of split."""
    measured = read_measured()
    if short:
        measured = measured.only(lambda case: case.endswith((" iid", " sorted")))
    headings = ["method", "unlike clients", "sends per round", "rounds in theory", *measured.cases]
    if size is not None:
        headings[3:3] = ["bytes a round", "of all clients"]
    return headings, [_row(METHODS[name], measured, size) for name in (METHODS if names is None else names)]


def _row(kind: type[Algorithm], measured: Measured, size: Size | None) -> list[str]:
    cells = measured.of(kind.name) or [DASH] * len(measured.cases)
    sent = []
    if size is not None:
        count = bytes_per_round(kind(), size.features, size.sketch_size, size.wire)
        sent = [DASH] * 2 if count is None else [bytes_text(count), bytes_text(count * size.clients)]
    return [kind.name, kind.heterogeneous, kind.uplink, *sent, kind.theory, *cells]


def notes_on_methods(size: Size | None = None) -> list[str]:
    """What the columns mean."""
    notes = [
        "unlike clients: what the FedNS paper's table says of data that differ between clients",
        "to a biased point: the fixed point is not the optimum where clients differ",
        "measured: rounds / bytes sent per client to a gap of 1e-10, or where the method ended, "
        f"by `{read_measured().command}`",
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
    return "\n".join(lines) + "\n"
