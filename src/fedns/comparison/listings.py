"""What the command line prints: data sets, methods and the outcome of a comparison."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedns.algorithms import METHODS
from fedns.comparison.compare import Comparison
from fedns.comparison.method_pages import Size, comparison_of_methods, notes_on_methods
from fedns.comparison.outputs import Outputs
from fedns.comparison.tables import comparison_table
from fedns.core.algorithm import Algorithm
from fedns.data.catalogue import FOLDER_VARIABLE, archives
from fedns.data.datasets import available
from fedns.runs.methods import parameters


def print_datasets(console: Console) -> None:
    """Every named data set with its shape."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "rows", "columns", "task", "note"):
        table.add_column(heading, justify="right" if heading in ("rows", "columns") else "left", overflow="fold")
    table.add_column("source", no_wrap=True, overflow="ellipsis", max_width=40)
    for info in available():
        row = (info.name, str(info.rows), str(info.columns), info.task, info.note, info.origin)
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    _say(
        console, "Files work by their path too: LIBSVM text, .npz, .csv and .parquet (--target names the column to predict)."
    )
    _say(console, "Made-up data: synthetic:rows=20000,columns=50")
    if not archives():
        _say(console, f"More are listed when {FOLDER_VARIABLE} names a folder of .npz files.")


def print_methods(console: Console, size: Size | None = None) -> None:
    """Every method with what a user needs in order to choose and to set it, then all of them side by side."""
    for name, kind in METHODS.items():
        console.print(Text.assemble((name, "bold"), "  ", kind.summary))
        console.print(Padding(_about(kind), (0, 0, 1, 2)))
    _say(
        console, "What is sent is counted in numbers per client; M is the number of coefficients, k the rows of the sketch."
    )
    _say(console, "Set parameters behind a colon: --methods 'fedns:line_search=aggregate;sketch=sjlt;sketch_size=8'")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=None)
    headings, rows = comparison_of_methods(size, short=True)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for note in notes_on_methods(size):
        _say(console, note)


def print_outcome(console: Console, comparison: Comparison, outputs: Outputs) -> None:
    """The table, what to know about it, and where the rest is."""
    spec = comparison.spec
    facts = {fact.name: fact.value for fact in comparison.facts}
    title = (
        f"{spec.dataset}: {facts['rows and columns']}, {comparison.num_clients} clients ({spec.split}), "
        f"{spec.trials} trial{'s' if spec.trials > 1 else ''}{', interrupted' if comparison.interrupted else ''}"
    )
    console.print(comparison_table(title, outputs.summaries))
    for note in outputs.notes:
        _say(console, note)
    _say(console, f"report: {outputs.report}")


def _about(kind: type[Algorithm]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    settings = "; ".join(str(parameter) for parameter in parameters(kind))
    for heading, text in (("sends per round", kind.uplink), ("parameters", settings or "none"), ("paper", kind.paper)):
        table.add_row(heading, Text(text))
    return table


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
