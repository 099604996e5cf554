"""Figures on a page: a picture that needs no script, and the data from which a script draws one that answers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from fedns.core.errors import ConfigError
from fedns.reports import plots
from fedns.reports.charts import Chart, Curve

DIGITS = 7  # more than anyone reads off a figure, and half the length of all

SCRIPTS = ("axes.js", "interactive.js")


def figure_html(chart: Chart, picture: str | None = None) -> str:
    """A chart as a `<figure>`; `picture` is an SVG of it for readers without scripts, drawn here where none is given."""
    identifier = re.sub(r"\W+", "-", chart.name)
    title = f"<h3>{escape(chart.title)}</h3>" if chart.title else ""
    caption = f"<figcaption>{escape(chart.caption)}</figcaption>" if chart.caption else ""
    return (
        f'<figure class="chart" id="chart-{identifier}">{title}\n'
        f'<div class="picture">{_picture(chart) if picture is None else picture}</div>\n'
        f'<script type="application/json">{_json(chart)}</script>\n'
        f"{caption}</figure>\n"
    )


def page_script() -> str:
    """The script that brings every chart of a page to life, to be put once at the end of the body."""
    here = files("fedns.reports").joinpath("assets")
    source = "\n".join(here.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    return f'<script>\n"use strict";\n(() => {{\n{source}}})();\n</script>'


def _picture(chart: Chart) -> str:
    try:
        return plots.page_svg(chart)
    except ConfigError:  # without matplotlib the script's figure is the only one
        return ""


def _json(chart: Chart) -> str:
    """The data of a chart; no character in it can end the script element that holds it."""
    data = {
        "title": chart.title or chart.name,
        "x": {name: vars(scale) for name, scale in chart.x.items()},
        "y": vars(chart.y),
        "level": chart.level,
        "lines": [_line(line, number) for number, line in enumerate(chart.lines)],
    }
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _line(line: Curve, number: int) -> dict[str, Any]:
    style = plots.line_style(line, number)
    return {
        "label": line.label,
        "colour": "currentColor" if style.colour == plots.INK else style.colour,
        "dash": style.dash,
        "marker": style.marker,
        "marked": plots.marked_points(number, len(line.y)),
        "x": {name: _numbers(positions) for name, positions in line.x.items()},
        "y": _numbers(line.y),
        "low": None if line.low is None else _numbers(line.low),
        "high": None if line.high is None else _numbers(line.high),
    }


def _numbers(values: Sequence[float]) -> list[float | None]:
    """Rounded for the page; what is not finite is left out of the line."""
    return [_short(value) if math.isfinite(value) else None for value in values]


def _short(value: float) -> float:
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
