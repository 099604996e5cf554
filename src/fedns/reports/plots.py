"""Figures on paper: PNG, SVG and PDF files. The only module that uses matplotlib; needs `pip install 'fedns[plots]'`."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedns.core.checked import Count, Positive, checked
from fedns.core.errors import ConfigError
from fedns.core.history import History
from fedns.core.numbers import bytes_text, one_parameter_a_line
from fedns.reports.charts import Chart, Curve, Scale, grouped
from fedns.reports.gap_charts import AXES, HasRecords, gap_chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any colour vision can tell apart; yellow is left out, too pale on white.
INK, GRID = "#1b1c1e", "#9a9ca0"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class LineStyle:
    """The look of a line on paper and on the page; dash and marker are matplotlib's names."""

    colour: str
    dash: str
    marker: str


def line_style(line: Curve, number: int) -> LineStyle:
    """The look of a chart's line of this number: a reference has no markers."""
    colour = COLOURS[number % len(COLOURS)]
    if line.dashed:
        return LineStyle(colour, "--", "")
    # Shifted by one with every turn of the colours, or both would come round together.
    return LineStyle(colour, LINES[number % len(LINES)], MARKERS[(number + number // len(COLOURS)) % len(MARKERS)])


def marked_points(number: int, size: int) -> tuple[int, int]:
    """The first point with a marker and the step to the next: about a dozen on a line, not all lines at the same x."""
    every = max(1, size // 12)
    return number % every, every


@checked
def plot_histories(
    runs: Mapping[str, HasRecords | Sequence[HasRecords]] | Sequence[History],
    against: str = "rounds",
    *,
    clients: Count = 1,
    title: str = "",
    tol: Positive | None = None,
    path: str | Path | None = None,
) -> Figure:
    """The gap of histories, one or several trials of each label, as a matplotlib figure.

    - runs: by label, or a list that is labelled by its methods' names, equal ones being trials of one method.
    - against: rounds, bytes or seconds.
    - clients: the number of clients that bytes are divided by.
    - title: above the figure.
    - tol: drawn as a line.
    - path: where to save the figure too.
    """
    if against not in AXES:
        raise ConfigError(f"a figure can be against {', '.join(AXES)}, not '{against}'")
    if not runs:
        raise ConfigError("there is no run to draw")

    figure = draw_chart(gap_chart(_grouped(runs), clients, title, tol), against)
    if path is not None:
        with _style():
            figure.savefig(path)
    return figure


def draw_chart(chart: Chart, against: str | None = None) -> Figure:
    """The figure of a chart against one of its horizontal scales, the first if none is named."""
    against = against or next(iter(chart.x))
    if against not in chart.x:
        raise ConfigError(f"chart '{chart.name}' can be drawn against {', '.join(chart.x)}, not '{against}'")
    with _style():
        figure = _figure()
        axes = figure.add_subplot()
        for number, line in enumerate(chart.lines):
            if against in line.x:
                _draw(axes, line, line.x[against], number)
        _set_scales(axes, chart, chart.x[against])
        axes.grid(True, which="major", color=GRID, alpha=0.3, linewidth=0.6)
        axes.set_title(_plain(chart.title), gid="title")
        _legend(axes)
        # Found once, the layout holds for every file: with an engine left, each file would be drawn twice.
        figure.draw_without_rendering()
        figure.set_layout_engine(None)
    return figure


def save_chart(chart: Chart, folder: Path) -> dict[str, str]:
    """Write PNG, SVG and PDF, one of each for every horizontal scale; give the SVG texts for a page by scale.

    Files are called `name_scale`, or `name` alone where there is one scale. The same chart gives the same bytes.
    """
    texts = {}
    for against in chart.x:
        stem = folder / (chart.name if len(chart.x) == 1 else f"{chart.name}_{against}")
        figure = draw_chart(chart, against)
        with _style():
            figure.savefig(stem.with_suffix(".png"), dpi=160)
            figure.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None})
        text = _svg_text(figure)
        stem.with_suffix(".svg").write_text(text, encoding="utf-8")
        texts[against] = for_page(text, stem.name)
    return texts


def page_svg(chart: Chart) -> str:
    """The first view of a chart as an SVG to be set into a page."""
    return for_page(_svg_text(draw_chart(chart)), chart.name)


def _svg_text(figure: Figure) -> str:
    buffer = io.StringIO()
    with _style():
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def for_page(svg: str, prefix: str) -> str:
    """An SVG to be set into a page: no prologue, its own identifiers, and ink that follows the page's colours.

    Its title and its white paper are hidden there by the page's style.
    """
    prefix = re.sub(r"\W+", "-", prefix)
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    # Hundredths of a point are finer than any screen, and a page may have forty of these.
    body = re.sub(r'\bd="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), body)
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", body)
    body = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", body, count=1)
    return body.replace(INK, "currentColor")


def _grouped(runs: Mapping[str, HasRecords | Sequence[HasRecords]] | Sequence[History]) -> dict[str, Sequence[HasRecords]]:
    if isinstance(runs, Mapping):
        return {label: run if isinstance(run, Sequence) else [run] for label, run in runs.items()}
    by_method = grouped(runs, lambda history: history.method)
    return {**by_method}


def _draw(axes: Axes, line: Curve, x: Sequence[float], number: int) -> None:
    style = line_style(line, number)
    axes.plot(
        x,
        line.y,
        label=_plain(line.label),
        color=style.colour,
        linestyle=style.dash,
        marker=style.marker or "None",
        markevery=marked_points(number, len(x)),
        linewidth=1.2 if line.dashed else 1.8,
        markersize=5,
    )
    if line.low is not None and line.high is not None:
        axes.fill_between(x, line.low, line.high, color=style.colour, alpha=0.18, linewidth=0)


def _set_scales(axes: Axes, chart: Chart, horizontal: Scale) -> None:
    for scale, which, set_scale in ((horizontal, axes.xaxis, axes.set_xscale), (chart.y, axes.yaxis, axes.set_yscale)):
        if scale.logarithmic:
            set_scale("log")
            which.set_major_formatter(_powers())
            which.set_minor_formatter(_powers())
        if scale.unit == "bytes":
            which.set_major_formatter(lambda value, _: bytes_text(value))
        which.set_label_text(_plain(scale.label))
    values = [v for line in chart.lines for part in (line.y, line.low, line.high) for v in part or () if 0 < v < math.inf]
    if chart.y.logarithmic and values:
        axes.set_ylim(min([*values, chart.level or values[0]]) / 3, 3 * max(values))
    if chart.level is not None:
        axes.axhline(chart.level, color=GRID, linewidth=1, linestyle=(0, (1, 2)), zorder=0)


def _powers() -> Any:
    """Labels such as 10⁻³ in plain letters: formulas take most of the time of a figure, and no search finds them."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Powers(LogFormatterSciNotation):
        def __call__(self, value: float, pos: int | None = None) -> str:
            formula = super().__call__(value, pos).replace(r"\times", "×")
            formula = re.sub(r"\^\{(.*?)\}", lambda power: power[1].translate(_RAISED), formula)
            return re.sub(r"\$\\mathdefault\{(.*)\}\$", r"\1", formula)

    return Powers()


def _legend(axes: Axes) -> None:
    """Below the figure, which grows for it: inside, it would lie on a line sooner or later."""
    lines, labels = axes.get_legend_handles_labels()
    figure = axes.get_figure(root=True)
    if not labels or figure is None:
        return
    labels = [one_parameter_a_line(label) for label in labels]
    longest = max(len(line) for label in labels for line in label.split("\n"))
    columns = max(1, min(4, 72 // (longest + 8)))
    deep = -(-len(labels) // columns)
    tallest = max(
        sum(1 + label.count("\n") for label in labels[start : start + deep]) for start in range(0, len(labels), deep)
    )
    figure.set_figheight(figure.get_figheight() + 0.2 * tallest)
    figure.legend(lines, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=9)


def _plain(text: str) -> str:
    """A text in which a dollar is a dollar, not the beginning of a formula."""
    return text.replace("$", r"\$")


def _figure() -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained", facecolor="white")
    figure.patch.set_gid("paper")
    return figure


def _style() -> Any:
    """The settings of every figure, for as long as the context lasts."""
    try:
        import matplotlib
    except ImportError:
        raise ConfigError("figures need matplotlib: install it with pip install 'fedns[plots]'") from None
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",  # letters stay letters: they can be searched, and take the page's colour
        "svg.hashsalt": "fedns",
        "pdf.fonttype": 42,  # letters as publishers want them
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        **dict.fromkeys(ink, INK),
    }
    return matplotlib.rc_context(settings)
