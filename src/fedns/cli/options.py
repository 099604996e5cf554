"""The options of commands, each declared once, and the terminal that they print to."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fedns.runs.spec import DEFAULT_CLIENTS, Spec

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED_EXIT = 130


class Interrupted(Exception):
    """Ctrl-C, of which a command has more to say than that it came."""


# By setting; the default is that of the setting, and an option that is not given changes nothing.
SETTINGS = {
    "methods": "Methods, separated by commas; parameters as name:key=value;key=value.",
    "clients": "Clients that the rows are given to; leave out with --split group.",
    "split": "iid, contiguous, sorted, dirichlet:ALPHA, quantity:ALPHA or group.",
    "missing": "Missing values: refuse, drop the rows, or fill in the mean.",
    "scale": "Column scaling: none, maxabs or standardise.",
    "loss": "logistic, squared, poisson, or auto by the targets.",
    "strength": "Ridge strength s of the penalty (s/2)|w|^2.",
    "intercept": "Add an unpenalised intercept.",
    "positive": "The label that becomes +1, all others -1.",
    "target": "Column of the targets in a CSV or Parquet file.",
    "group": "Column of the sites, for --split group.",
    "weight": "Column of sample weights.",
    "sketch": "Sketch of methods that use one.",
    "sketch_size": "Rows of the sketch.",
    "rounds": "Most rounds of a run.",
    "tol": "Stop when the gap to the pooled optimum is at most this.",
    "trials": "Repetitions with seeds SEED, SEED + 1, ...",
    "seed": "Seed of splits and methods.",
    "wire": "Precision of real numbers in messages: float64 or float32.",
    "participation": "Part of the clients drawn for each round.",
    "threads": "Threads to use.",
    "device": "What passes over the rows: cpu or cuda.",
    "out": "Folder of the results.",
}
_LEFT_OPEN = {"clients": DEFAULT_CLIENTS, "threads": "all cores", "device": "cpu", "out": "runs/DATASET"}

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="dask://HOST:PORT",
        help="Compute on the workers of this Dask scheduler: the clients of a comparison, or the cases of many.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing; the results are in the files.")]

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what an earlier run of this command wrote there, and nothing else.")
]


def option(text: str, default: Any = None, *declarations: str) -> Any:
    """An option whose help ends in its default."""
    shown = ",".join(default) if isinstance(default, tuple) else default
    words = text if default is None or isinstance(default, bool) else f"{text}  [default: {shown}]"
    return typer.Option(*declarations, help=words, show_default=False)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every setting; its parameter `settings` gets those that were given."""

    @functools.wraps(command)
    def call(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in SETTINGS}
        command(**arguments, settings={name: value for name, value in given.items() if value is not None})

    first, *last = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
    call.__signature__ = inspect.Signature([first, *map(_parameter, SETTINGS), *last])  # type: ignore[attr-defined]
    return call


def _parameter(name: str) -> inspect.Parameter:
    hint = str if name == "methods" else get_type_hints(Spec)[name]
    default = _LEFT_OPEN.get(name, getattr(Spec, name))
    declarations = ("--intercept/--no-intercept",) if hint is bool else ()
    annotation = Annotated[hint | None, option(SETTINGS[name], default, *declarations)]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


def make_console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    # A pipe has no width; tables should not be folded to that of a terminal that is not there.
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=140)


def log_to_console() -> None:
    """A site's own words, with times, on its standard error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
