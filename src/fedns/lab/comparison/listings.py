"""Tables for the command line: data sets, methods and the outcome of a comparison."""

from __future__ import annotations

from textwrap import shorten

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedns.core.algorithm import Algorithm
from fedns.lab.comparison.compare import Comparison
from fedns.lab.comparison.method_pages import Size, comparison_of_methods, notes_on_methods
from fedns.lab.comparison.report import Outputs
from fedns.lab.comparison.summary import comparison_table
from fedns.lab.data.catalogue import FOLDER_VARIABLE, archives, available
from fedns.methods import METHODS
from fedns.reports.terminal import say, text_table
from fedns.runs.methods import parameters


def print_datasets(console: Console) -> None:
    """Every named data set with its shape."""
    headings = ("name", "rows", "columns", "task", "note", "source")
    rows = (
        (one.name, str(one.rows), str(one.columns), one.task, one.note, shorten(one.origin, 40, placeholder="..."))
        for one in available()
    )
    console.print(text_table(headings, rows, left=("name", "task", "note", "source")))
    words = "LIBSVM text, .npz, and tables such as .csv and .parquet (--target names the outcome)"
    say(console, f"Files work by their path too: {words}.")
    say(console, "Made-up data: synthetic:rows=20000,columns=50")
    if not archives():
        say(console, f"More are listed when {FOLDER_VARIABLE} names a folder of .npz files.")


def print_methods(console: Console, size: Size | None = None) -> None:
    """Every method with what a user needs in order to choose and to set it, then all of them side by side."""
    headings, rows = comparison_of_methods(size, short=True)  # first, since a size that cannot be is refused
    for name, kind in METHODS.items():
        console.print(Text.assemble((name, "bold"), "  ", kind.summary))
        console.print(Padding(_about(kind), (0, 0, 1, 2)))
    say(console, "What is sent is counted in numbers per client; M is the number of coefficients, k the rows of the sketch.")
    say(console, "Set parameters behind a colon: --methods 'fedns:line_search=aggregate;sketch=sjlt;sketch_size=8'")
    console.print(text_table(headings, rows, left=headings))
    for note in notes_on_methods(size):
        say(console, note)


def print_outcome(console: Console, comparison: Comparison, outputs: Outputs) -> None:
    """The table, what to know about it, and where the rest is."""
    spec = comparison.spec
    title = (
        f"{spec.dataset}: {comparison.facts['rows and columns']}, {comparison.num_clients} clients ({spec.split}), "
        f"{spec.trials} trial{'s' if spec.trials > 1 else ''}{', interrupted' if comparison.interrupted else ''}"
    )
    console.print(comparison_table(title, outputs.summaries))
    for note in outputs.notes:
        say(console, note)
    say(console, f"report: {outputs.report}")


def _about(kind: type[Algorithm]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    settings = "; ".join(str(parameter) for parameter in parameters(kind))
    for heading, text in (("sends per round", kind.uplink), ("parameters", settings or "none"), ("paper", kind.paper)):
        table.add_row(heading, Text(text))
    return table
