"""The options of commands, each declared once, and the terminal that they print to."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fedns.core.checked import sentence_of, unset_of
from fedns.runs.compare import Compare

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED_EXIT = 130


class Interrupted(Exception):
    """Ctrl-C, of which a command has more to say than that it came."""


# The settings of a comparison that are options, in the order of a command's help.
SETTINGS = (
    "methods", "clients", "split", "missing", "scale", "loss", "strength", "intercept", "positive", "target", "group",
    "weight", "sketch", "sketch_size", "rounds", "tol", "trials", "seed", "wire", "participation", "threads", "device",
    "out",
)  # fmt: skip

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
    """The option of a setting: its default is that of the setting, and where it is not given nothing changes."""
    hint = str if name == "methods" else get_type_hints(Compare)[name]
    default = getattr(Compare, name) if (unset := unset_of(Compare, name)) is None else unset
    declarations = ("--intercept/--no-intercept",) if hint is bool else ()
    annotation = Annotated[hint | None, option(sentence_of(Compare, name), default, *declarations)]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


def make_console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    # A pipe has no width; tables should not be folded to that of a terminal that is not there.
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=140)


def log_to_console() -> None:
    """A site's own words, with times, on its standard error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
