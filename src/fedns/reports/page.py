"""The frame of every report: one HTML file with everything in it; nothing is fetched when it is opened."""

from __future__ import annotations

import os
import platform
from collections.abc import Container, Iterable, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import NamedTuple

import fedns
from fedns.core.numbers import bytes_text
from fedns.reports.interactive import page_script


def page(title: str, body_html: str) -> str:
    """A whole page with the style and the script of every report inline; `title` is text, the body HTML."""
    style = files("fedns.reports").joinpath("assets", "report.css").read_text(encoding="utf-8")
    return _PAGE.format(title=escape(title), style=style, body=body_html, script=page_script())


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
{script}
</body>
</html>
"""


def report_page(title: str, head_html: Iterable[str], sections: Iterable[tuple[str, str]], first: Iterable[str] = ()) -> str:
    """A report: `first`, its title, what comes below that, and a section for every heading that has content."""
    parts = [*first, f"<h1>{escape(title)}</h1>", *head_html]
    return page(title, "\n".join([*parts, *(section(heading, html) for heading, html in sections if html)]))


def section(heading: str, content_html: str) -> str:
    """A part of a page under a heading; the heading is text, the content HTML."""
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content_html}\n</section>"


def paragraph(text: str, kind: str = "notes", *, strong: bool = False) -> str:
    """A paragraph of plain text: `lead` below a title, `notes` below a table, `warning`."""
    words = f"<strong>{escape(text)}</strong>" if strong else escape(text)
    return f'<p class="{kind}">{words}</p>'


def bullets(texts: Iterable[str]) -> str:
    """A list of plain texts."""
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def traffic_rows(lines: Iterable[tuple[tuple[str, ...], int, int]]) -> list[list[str]]:
    """Rows of a table of messages: of lines (what they are, messages, bytes), those that are the same added up."""
    totals: dict[tuple[str, ...], list[int]] = {}
    for key, messages, size in lines:
        total = totals.setdefault(key, [0, 0])
        total[0] += messages
        total[1] += size
    return [[*key, str(count), bytes_text(size)] for key, (count, size) in totals.items()]


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Container[int] = frozenset({0})) -> str:
    """A table of texts, which scrolls where the page is narrow; columns that hold no numbers are aligned to the left."""

    def kind(column: int) -> str:
        return ' class="text"' if column in text_columns else ""

    unbroken = [text.replace("-", "\u2011") for text in headings]  # 1e-6 must not be torn apart
    head = "".join(f"<th{kind(column)}>{escape(text)}</th>" for column, text in enumerate(unbroken))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(column)}>{escape(cell)}</td>" for column, cell in enumerate(row)) + "</tr>\n"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>'


def pairs(named: Iterable[tuple[str, str]]) -> str:
    """A table of names and values without headings."""
    rows = [f'<tr><td class="name">{escape(name)}</td><td class="text">{escape(value)}</td></tr>' for name, value in named]
    return f'<div class="scroll"><table><tbody>{"".join(rows)}</tbody></table></div>'


class Tile(NamedTuple):
    """One field of a board: a figure, what it is, and the class of its colour, if it has one."""

    figure: str
    what: str
    tone: str = ""  # good, partly or bad


def board(tiles: Iterable[Tile]) -> str:
    """Tiles with what is to be known at a glance."""
    fields = [f'<li class="{one.tone}"><b>{escape(one.figure)}</b><span>{escape(one.what)}</span></li>' for one in tiles]
    return f'<ul class="board">{"".join(fields)}</ul>'


def folded(content_html: str, summary: str = "show") -> str:
    """Long figures, out of the way until they are asked for; the summary is text."""
    return f"<details><summary>{escape(summary)}</summary>{content_html}</details>"


def versions() -> dict[str, str]:
    """Interpreter, libraries and machine that a result was computed with."""
    libraries = {name: version(name) for name in ("numpy", "scipy", "numba")}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"fedns": fedns.__version__, "Python": platform.python_version(), **libraries, "machine": machine}
