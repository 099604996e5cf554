"""The commands about data."""

from __future__ import annotations

from typing import Annotated

import typer

from fedns.cli.options import make_console, option

data_app = typer.Typer(help="Download data sets.", no_args_is_help=True)


def datasets() -> None:
    """What data can be used here, with shapes."""
    from fedns.lab.comparison.listings import print_datasets

    print_datasets(make_console())


@data_app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(hidden=True)],
    url: Annotated[str | None, option("Another copy of the collection.")] = None,
) -> None:
    """Download sets of the LIBSVM collection into the cache.

    NAMES are those of the collection: phishing cod-rna covtype SUSY a9a w8a ... They load by the same names afterwards.
    """
    from fedns.lab.data.collection.fetch import fetch as download

    for path in download(names, base_url=url):
        typer.echo(path)
