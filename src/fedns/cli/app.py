"""The command line. Whatever is heavy is imported inside the command that needs it, so that help is instant."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedns import __version__
from fedns.cli.console import make_console
from fedns.cli.federation import add_commands
from fedns.core.errors import FednsError
from fedns.runs.settings import read_toml
from fedns.runs.spec import DEFAULT_CLIENTS, Spec

if TYPE_CHECKING:
    pass

INTERRUPTED_EXIT, ERROR_EXIT = 130, 2
_DEFAULTS = {field.name: field.default for field in fields(Spec)} | {"clients": DEFAULT_CLIENTS, "threads": "all cores"}

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Federated Newton-type training of convex models in a handful of communication rounds.",
)  # fmt: skip


def _option(name: str, text: str, *declarations: str) -> Any:
    """An option whose default is that of the setting; not given means not changed."""
    default = _DEFAULTS[name]
    shown = ",".join(default) if isinstance(default, tuple) else default
    help_text = text if default is None or isinstance(default, bool) else f"{text}  [default: {shown}]"
    return typer.Option(*declarations, help=help_text, show_default=False)


Methods = Annotated[str | None, _option("methods", "Methods, separated by commas; parameters as name:key=value;key=value.")]
Clients = Annotated[int | None, _option("clients", "Clients that the rows are given to; leave out with --split group.")]
Split = Annotated[str | None, _option("split", "iid, contiguous, sorted, dirichlet:ALPHA, quantity:ALPHA or group.")]
Missing = Annotated[str | None, _option("missing", "Missing values: refuse, drop the rows, or fill in the mean.")]
Scale = Annotated[str | None, _option("scale", "Column scaling: none, maxabs or standardise.")]
Loss = Annotated[str | None, _option("loss", "logistic, squared, or auto by the targets.")]
Strength = Annotated[float | None, _option("strength", "Ridge strength s of the penalty (s/2)|w|^2.")]
Intercept = Annotated[bool | None, _option("intercept", "Add an unpenalised intercept.", "--intercept/--no-intercept")]
Positive = Annotated[str | None, _option("positive", "The label that becomes +1, all others -1.")]
TargetColumn = Annotated[str | None, _option("target", "Column of the targets in a CSV or Parquet file.")]
GroupColumn = Annotated[str | None, _option("group", "Column of the sites, for --split group.")]
WeightColumn = Annotated[str | None, _option("weight", "Column of sample weights.")]
SketchKind = Annotated[str | None, _option("sketch", "Sketch of methods that use one.")]
SketchSize = Annotated[int | None, _option("sketch_size", "Rows of the sketch.")]
Rounds = Annotated[int | None, _option("rounds", "Most rounds of a run.")]
Tolerance = Annotated[float | None, _option("tol", "Stop when the gap to the pooled optimum is at most this.")]
Trials = Annotated[int | None, _option("trials", "Repetitions with seeds SEED, SEED + 1, ...")]
Seed = Annotated[int | None, _option("seed", "Seed of splits and methods.")]
Wire = Annotated[str | None, _option("wire", "Precision of real numbers in messages: float64 or float32.")]
Participation = Annotated[float | None, _option("participation", "Part of the clients drawn for each round.")]
Threads = Annotated[int | None, _option("threads", "Threads to use.")]
Out = Annotated[str | None, typer.Option(help="Folder of the results.  [default: runs/DATASET]", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing; the results are in the files.")]


data_app = typer.Typer(help="Download data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")
add_commands(app)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version or context.invoked_subcommand is None:
        typer.echo(f"fedns {__version__}" if version else context.get_help())
        raise typer.Exit


@app.command()
def datasets() -> None:
    """What data can be used here, with shapes."""
    from fedns.comparison.listings import print_datasets

    print_datasets(make_console())


@data_app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(hidden=True)],
    url: Annotated[str | None, typer.Option(help="Another copy of the collection.", show_default=False)] = None,
) -> None:
    """Download sets of the LIBSVM collection into the cache.

    NAMES are those of the collection: phishing cod-rna covtype SUSY a9a w8a ... They load by the same names afterwards.
    """
    from fedns.data.collection.fetch import fetch as download

    for path in download(names, base_url=url):
        typer.echo(path)


@app.command()
def methods(
    features: Annotated[
        int | None, typer.Option(help="Count bytes for so many coefficients, M.", show_default=False)
    ] = None,
    sketch_size: Annotated[
        int, typer.Option(help="And this many rows of the sketch, k.  [default: 16]", show_default=False)
    ] = 16,
    clients: Annotated[int, typer.Option(help="And this many clients, m.  [default: 1]", show_default=False)] = 1,
    wire: Annotated[
        str, typer.Option(help="And this precision of real numbers.  [default: float64]", show_default=False)
    ] = "float64",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the documentation page instead.")] = False,
) -> None:
    """What each method sends, its parameters, its paper; and all side by side, in theory and as measured.

    With --features, what a client sends in a round is counted by running each method on made-up data of that width.
    """
    from fedns.comparison.method_pages import Size, methods_page

    if markdown:
        typer.echo(methods_page(), nl=False)
        return
    from fedns.comparison.listings import print_methods

    print_methods(make_console(), None if features is None else Size(features, sketch_size, clients, wire))


@app.command()
def compare(
    dataset: Annotated[str, typer.Argument(hidden=True)],
    methods: Methods = None,
    clients: Clients = None,
    split: Split = None,
    missing: Missing = None,
    scale: Scale = None,
    loss: Loss = None,
    strength: Strength = None,
    intercept: Intercept = None,
    positive: Positive = None,
    target: TargetColumn = None,
    group: GroupColumn = None,
    weight: WeightColumn = None,
    sketch: SketchKind = None,
    sketch_size: SketchSize = None,
    rounds: Rounds = None,
    tol: Tolerance = None,
    trials: Trials = None,
    seed: Seed = None,
    wire: Wire = None,
    participation: Participation = None,
    threads: Threads = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Compare methods on the same data: rounds, bytes, seconds.

    DATASET is a name that `fedns datasets` lists, the path of a file (LIBSVM text, .npz, .csv, .parquet) or
    synthetic:rows=...,columns=...
    """
    given = _given(locals())
    _compare(Spec.from_dict(given), quiet)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(hidden=True)],
    dataset: Annotated[str | None, typer.Option(help="Another data set.", show_default=False)] = None,
    methods: Methods = None,
    clients: Clients = None,
    split: Split = None,
    missing: Missing = None,
    scale: Scale = None,
    loss: Loss = None,
    strength: Strength = None,
    intercept: Intercept = None,
    positive: Positive = None,
    target: TargetColumn = None,
    group: GroupColumn = None,
    weight: WeightColumn = None,
    sketch: SketchKind = None,
    sketch_size: SketchSize = None,
    rounds: Rounds = None,
    tol: Tolerance = None,
    trials: Trials = None,
    seed: Seed = None,
    wire: Wire = None,
    participation: Participation = None,
    threads: Threads = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Compare as a file says; flags override it.

    CONFIG is a TOML file whose settings have the names of the flags, with _ for -. A list in place of a value, or several
    [[cases]], is a sweep: all combinations are run, those that were finished before are not, and one table shows all.
    """
    given = _given(locals())
    from fedns.comparison.sweep import is_sweep

    if is_sweep(read_toml(config)):
        _sweep(config, given, quiet)
    else:
        _compare(Spec.from_toml(config, given), quiet)


@app.command()
def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick", help="Few trials and rounds: a few minutes instead of a quarter of an hour or more.")
    ] = False,
    out: Annotated[
        str, typer.Option(help="Folder of the results.  [default: runs/reproduce]", show_default=False)
    ] = "runs/reproduce",
    quiet: Quiet = False,
) -> None:
    """Run the paper's figures, tables and theorems, and say what became of each claim.

    Started again after any end, it goes on where it stopped. Ends in a table of verdicts and a report.
    """
    from fedns.comparison.board import board_for
    from fedns.paper.command import reproduce as run_everything
    from fedns.paper.command import verdict_table

    folder = Path(out) / "quick" if quick else Path(out)
    reproduction = run_everything(folder, quick, board_for(make_console(stderr=True), quiet))
    if reproduction.report is None:
        typer.echo("fedns: interrupted; the same command goes on from here", err=True)
        raise typer.Exit(INTERRUPTED_EXIT)
    if not quiet:
        make_console().print(verdict_table(reproduction.verdicts))
        for sentence in reproduction.left_out:
            typer.echo(sentence)
        typer.echo(f"report: {reproduction.report}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; whatever goes wrong is one sentence and an exit code."""
    words = None if arguments is None else list(arguments)
    try:
        code = app(words, standalone_mode=False, prog_name="fedns")
    except FednsError as error:
        code = _fail(str(error))
    except click.ClickException as error:
        code = _fail(error.format_message())
    except OSError as error:
        where = f" '{error.filename}'" if error.filename else ""
        code = _fail(f"cannot use{where}: {(error.strerror or str(error)).lower()}")
    except (KeyboardInterrupt, click.Abort):
        typer.echo("fedns: interrupted", err=True)
        code = INTERRUPTED_EXIT
    sys.exit(code)


def _fail(sentence: str) -> int:
    """Say what went wrong, in one line."""
    typer.echo(f"fedns: error: {' '.join(sentence.split())}", err=True)
    return ERROR_EXIT


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """The flags that were set."""
    return {key: value for key, value in values.items() if value is not None and key not in ("quiet", "config")}


def _compare(spec: Spec, quiet: bool) -> None:
    from fedns.comparison.compare import compare as run_comparison
    from fedns.comparison.compare import earlier_results
    from fedns.comparison.display import display_for
    from fedns.comparison.listings import print_outcome
    from fedns.comparison.outputs import write_outputs

    console = make_console()
    if earlier_results(spec.folder) and not quiet:
        typer.echo(f"{spec.folder} holds an earlier run, which this one replaces", err=True)
    comparison = run_comparison(spec, display_for(make_console(stderr=True), quiet))
    if not comparison.runs:
        typer.echo("fedns: interrupted before the first round", err=True)
        raise typer.Exit(INTERRUPTED_EXIT)
    outputs = write_outputs(comparison)
    for warning in outputs.warnings:
        typer.echo(f"fedns: {warning}", err=True)
    if not quiet:
        print_outcome(console, comparison, outputs)
    if comparison.interrupted:
        raise typer.Exit(INTERRUPTED_EXIT)


def _sweep(config: Path, overrides: dict[str, Any], quiet: bool) -> None:
    from fedns.comparison.board import board_for
    from fedns.comparison.sweep import read_sweep, run_sweep, sweep_table

    sweep = read_sweep(config, overrides)
    done, interrupted = run_sweep(sweep, board_for(make_console(stderr=True), quiet))
    if done and not quiet:
        make_console().print(sweep_table(done))
        typer.echo(f"table and reports: {sweep.folder}")
    if interrupted:
        raise typer.Exit(INTERRUPTED_EXIT)
