"""The command line. Whatever is heavy is imported inside the command that needs it, so that help is instant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import click
import typer

from fedns import __version__
from fedns.cli import comparison, data, federation, leave, study
from fedns.cli.options import INTERRUPTED_EXIT, Interrupted
from fedns.core.errors import FednsError

ERROR_EXIT = 2

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Federated Newton-type training of convex models in a handful of communication rounds.",
)  # fmt: skip
for command in (data.datasets, *comparison.COMMANDS, *federation.COMMANDS, *study.COMMANDS):
    app.command()(command)
app.add_typer(data.data_app, name="data")
app.add_typer(study.study_app, name="study")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version or context.invoked_subcommand is None:
        typer.echo(f"fedns {__version__}" if version else context.get_help())
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; whatever goes wrong is one sentence and an exit code."""
    words = None if arguments is None else list(arguments)
    try:
        code = app(words, standalone_mode=False, prog_name="fedns")
        if code == INTERRUPTED_EXIT:  # what is made of a Ctrl-C on the way here, without a word
            raise KeyboardInterrupt
    except FednsError as error:
        _fail(str(error))
        code = error.exit_status
    except click.ClickException as error:
        code = _fail(error.format_message())
    except OSError as error:
        where = f" '{error.filename}'" if error.filename else ""
        code = _fail(f"cannot use{where}: {(error.strerror or str(error)).lower()}")
    except (Interrupted, KeyboardInterrupt, click.Abort) as error:
        typer.echo(f"fedns: interrupted{error if isinstance(error, Interrupted) else ''}", err=True)
        code = INTERRUPTED_EXIT
    leave(code)


def _fail(sentence: str) -> int:
    """Say what went wrong, in one line."""
    typer.echo(f"fedns: error: {' '.join(sentence.split())}", err=True)
    return ERROR_EXIT
