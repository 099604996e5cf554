"""The commands that compare methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedns.cli.arguments import SETTINGS, expect
from fedns.cli.options import Cluster, Interrupted, Overwrite, Quiet, make_console, option, with_settings
from fedns.core.errors import ConfigError
from fedns.core.files import read_toml
from fedns.runs.compare import Compare


def methods(
    features: Annotated[int | None, option("Count bytes for so many coefficients, M.")] = None,
    sketch_size: Annotated[int, option("And this many rows of the sketch, k.", 32)] = 32,
    clients: Annotated[int, option("And this many clients, m.", 1)] = 1,
    wire: Annotated[str, option("And this precision of real numbers.", "float64")] = "float64",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the documentation page instead.")] = False,
) -> None:
    """What each method sends, its parameters, its paper; and all side by side, in theory and as measured.

    With --features, what a client sends in a round is counted by running each method on made-up data of that width.
    """
    from fedns.lab.comparison.method_pages import Size, methods_page

    if markdown:
        typer.echo(methods_page(), nl=False)
        return
    from fedns.lab.comparison.listings import print_methods

    print_methods(make_console(), None if features is None else Size(features, sketch_size, clients, wire))


@with_settings
def compare(
    dataset: Annotated[str, typer.Argument(hidden=True)],
    settings: dict[str, Any],
    overwrite: Overwrite = False,
    cluster: Cluster = None,
    quiet: Quiet = False,
) -> None:
    """Compare methods on the same data: rounds, bytes, seconds.

    DATASET is a name that `fedns datasets` lists, the path of a file (LIBSVM text, .npz, .csv, .parquet, ...) or
    synthetic:rows=...,columns=...
    """
    run_comparison(Compare.from_dict({"dataset": dataset, **settings}), quiet, cluster, overwrite)


@with_settings
def run(
    config: Annotated[Path, typer.Argument(hidden=True)],
    settings: dict[str, Any],
    dataset: Annotated[str | None, option("Another data set.")] = None,
    overwrite: Overwrite = False,
    cluster: Cluster = None,
    quiet: Quiet = False,
) -> None:
    """Compare as a file says; flags override it.

    CONFIG is a TOML file whose settings have the names of the flags, with _ for -. A list in place of a value, or several
    [[cases]], is a sweep: all combinations are run, those that were finished before are not, and one table shows all.
    """
    from fedns.lab.comparison.sweep import is_sweep

    expect("run", (config, SETTINGS))
    overrides = settings if dataset is None else {"dataset": dataset, **settings}
    if is_sweep(read_toml(config)):
        run_sweep(config, overrides, quiet, cluster, overwrite)
    else:
        run_comparison(Compare.from_toml(config, overrides), quiet, cluster, overwrite)


def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick", help="Few trials and rounds: a few minutes instead of a quarter of an hour or more.")
    ] = False,
    out: Annotated[str, option("Folder of the results.", "runs/reproduce")] = "runs/reproduce",
    cluster: Cluster = None,
    quiet: Quiet = False,
) -> None:
    """Run the paper's figures, tables and theorems, and say what became of each claim.

    Started again after any end, it goes on where it stopped. Ends in a table of verdicts and a report.
    """
    from fedns.lab.comparison.display import board_for
    from fedns.lab.paper.command import reproduce as run_everything
    from fedns.lab.paper.command import verdict_table

    folder = Path(out) / "quick" if quick else Path(out)
    if any(part.is_file() for part in (folder, *folder.parents)):
        raise ConfigError(f"'{out}' is a file: choose another folder with --out")
    reproduction = run_everything(folder, quick, board_for(make_console(stderr=True), quiet), cluster=cluster)
    if reproduction.report is None:
        raise Interrupted("; the same command goes on from here")
    if not quiet:
        make_console().print(verdict_table(reproduction.verdicts))
        for sentence in reproduction.left_out:
            typer.echo(sentence)
        typer.echo(f"report: {reproduction.report}")


def run_comparison(spec: Compare, quiet: bool, cluster: str | None, overwrite: bool) -> None:
    """Compare, write the results, and show them."""
    from fedns.lab.comparison.compare import compare as run_all
    from fedns.lab.comparison.display import display_for
    from fedns.lab.comparison.listings import print_outcome
    from fedns.lab.comparison.report import write_outputs

    comparison = run_all(spec, display_for(make_console(stderr=True), quiet), cluster=cluster, overwrite=overwrite)
    if not comparison.runs:
        raise Interrupted(" before the first round")
    outputs = write_outputs(comparison)
    for warning in outputs.warnings:
        typer.echo(f"fedns: {warning}", err=True)
    if not quiet:
        print_outcome(make_console(), comparison, outputs)
    if comparison.interrupted:
        raise Interrupted("; what was finished is in the results")


def run_sweep(config: Path, overrides: dict[str, Any], quiet: bool, cluster: str | None, overwrite: bool) -> None:
    """Run what is left of a sweep, and show all of it."""
    from fedns.lab.comparison.display import board_for
    from fedns.lab.comparison.sweep import read_sweep, sweep_table
    from fedns.lab.comparison.sweep import run_sweep as run_all

    sweep = read_sweep(config, overrides)
    board = board_for(make_console(stderr=True), quiet)
    done, interrupted = run_all(sweep, board, cluster=cluster, overwrite=overwrite)
    if done and not quiet:
        make_console().print(sweep_table(done))
        typer.echo(f"table and reports: {sweep.folder}")
    if interrupted:
        raise Interrupted("; the same command goes on from here")


COMMANDS = (methods, compare, run, reproduce)
