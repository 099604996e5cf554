"""Tables and sentences on a terminal; a text in them is never taken for markup."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text


def say(console: Console, text: str, style: str | None = None) -> None:
    """A sentence, on one line where there is no terminal to fold it for."""
    console.print(text, markup=False, highlight=False, soft_wrap=True, style=style)


def text_table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Text]], *, left: Collection[str] = (), title: str | None = None
) -> Table:
    """A table of texts; the columns named in `left` hold words, the others numbers."""
    shown = None if title is None else Text(title)
    table = Table(title=shown, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, 1, 0, 0))
    for heading in headings:
        side: JustifyMethod = "left" if heading in left else "right"
        table.add_column(
            Text(heading), justify=side, vertical="top", overflow="fold", min_width=9 if side == "left" else None
        )
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table
