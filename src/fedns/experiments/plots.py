"""Figures of the gap against rounds, bytes and seconds. The only module that draws; needs `pip install 'fedns[plots]'`."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import ConfigError
from fedns.core.history import History, Record
from fedns.experiments.tables import one_parameter_a_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]
FLOOR = 1e-16  # gaps at or below are rounding errors, drawn here
WIDE_RANGE = 30.0  # from this ratio on, bytes are drawn on a log scale
# Okabe and Ito's colours, which people with any colour vision can tell apart; yellow is left out, too pale on white.
INK, GRID = "#1b1c1e", "#9a9ca0"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


class HasRecords(Protocol):
    """A run as the figures see it: `History` and `Run` both are."""

    @property
    def records(self) -> Sequence[Record]: ...


@dataclass(frozen=True)
class Axis:
    """What a figure has on its horizontal axis."""

    name: str
    label: str
    value: Callable[[Record, int], float]  # of a record, with this many clients
    may_be_logarithmic: bool = False


AXES = {
    "rounds": Axis("rounds", "communication rounds", lambda record, clients: record.round),
    "bytes": Axis(
        "bytes", "bytes sent per client", lambda record, clients: record.uplink_bytes / clients, may_be_logarithmic=True
    ),
    "seconds": Axis("seconds", "seconds of computation", lambda record, clients: record.seconds),
}


@dataclass(frozen=True)
class Curve:
    """Round by round: the middle of x, and the middle and the range of the gap over trials."""

    x: FloatArray
    middle: FloatArray
    low: FloatArray
    high: FloatArray


def curve(runs: Sequence[HasRecords], axis: Axis, num_clients: int) -> Curve:
    """A run that ended keeps its last gap, so that the middle is over all trials to the end."""
    length = max(len(run.records) for run in runs)
    gaps, xs = np.empty((len(runs), length)), np.full((len(runs), length), np.nan)
    for row, run in enumerate(runs):
        own = [FLOOR if r.suboptimality is None else max(r.suboptimality, FLOOR) for r in run.records]
        gaps[row] = own + own[-1:] * (length - len(own))
        xs[row, : len(own)] = [axis.value(record, num_clients) for record in run.records]
    # The middle of x is over the runs still going; when slow ones drop out it must not step back.
    x = np.maximum.accumulate(np.nanmedian(xs, axis=0))
    return Curve(x, np.median(gaps, axis=0), gaps.min(axis=0), gaps.max(axis=0))


def plot_histories(
    runs: Mapping[str, HasRecords | Sequence[HasRecords]] | Sequence[History],
    against: str = "rounds",
    *,
    clients: int = 1,
    title: str = "",
    tol: float | None = None,
    path: str | Path | None = None,
) -> Figure:
    """The gap of histories, one or several trials of each label, against `rounds`, `bytes` or `seconds`.

    runs: by label, or a list that is labelled by its methods' names, equal ones being trials of one method.
    clients: the number of clients that bytes are divided by. tol: drawn as a line. path: where to save the figure too.
    """
    if against not in AXES:
        raise ConfigError(f"a figure can be against {', '.join(AXES)}, not '{against}'")
    if not runs:
        raise ConfigError("there is no run to draw")
    axis = AXES[against]
    curves = {label: curve(group, axis, clients) for label, group in _grouped(runs).items()}
    with _style():
        figure = _figure()
        axes = figure.add_subplot()
        for number, (label, found) in enumerate(curves.items()):
            if found.x[-1] > 0:  # a method on pooled data has no place among the bytes
                _draw(axes, label, found, number)
        _finish(axes, axis, list(curves.values()), title, tol)
        if path is not None:
            figure.savefig(path)
    return figure


def save_figure(figure: Figure, stem: Path) -> str:
    """Write PNG and SVG beside each other; give the SVG with its lines and letters in the colour of the page."""
    with _style():
        figure.savefig(stem.with_suffix(".png"), dpi=160, facecolor="white")
        buffer = io.StringIO()
        # Without a date the same run gives the same file.
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    on_white = re.sub(r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', text, count=1)
    stem.with_suffix(".svg").write_text(on_white, encoding="utf-8")
    return for_page(text, stem.name)


def for_page(svg: str, prefix: str) -> str:
    """An SVG to be set into a page: no prologue, its own identifiers, and ink that follows the page's colours."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", body)
    body = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", body, count=1)
    return body.replace(INK, "currentColor")


def _grouped(
    runs: Mapping[str, HasRecords | Sequence[HasRecords]] | Sequence[History],
) -> dict[str, Sequence[HasRecords]]:
    if isinstance(runs, Mapping):
        return {label: run if isinstance(run, Sequence) else [run] for label, run in runs.items()}
    groups: dict[str, list[HasRecords]] = {}
    for history in runs:
        groups.setdefault(history.method, []).append(history)
    return {**groups}


def _draw(axes: Axes, label: str, found: Curve, number: int) -> None:
    colour = COLOURS[number % len(COLOURS)]
    every = max(1, found.x.size // 12)
    axes.plot(
        found.x,
        found.middle,
        label=label,
        color=colour,
        linestyle=LINES[number % len(LINES)],
        # Shifted by one with every turn of the colours, or both would come round together.
        marker=MARKERS[(number + number // len(COLOURS)) % len(MARKERS)],
        markevery=(number % every, every),
        linewidth=1.8,
        markersize=5,
    )
    if (found.low < found.high).any():
        axes.fill_between(found.x, found.low, found.high, color=colour, alpha=0.18, linewidth=0)


def _finish(axes: Axes, axis: Axis, curves: list[Curve], title: str, tol: float | None) -> None:
    axes.set_yscale("log")
    if axis.may_be_logarithmic and _is_wide(curves):
        axes.set_xscale("log")
    if axis.name == "bytes":
        axes.xaxis.set_major_formatter(lambda value, _: _bytes(value))
    lowest, highest = min(found.low.min() for found in curves), max(found.high.max() for found in curves)
    axes.set_ylim(min(lowest, tol or lowest) / 3, 3 * highest)
    if tol:
        axes.axhline(tol, color=GRID, linewidth=1, linestyle=(0, (1, 2)), zorder=0)
    axes.set_xlabel(axis.label)
    axes.set_ylabel("suboptimality  F(w) - F*")
    axes.grid(True, which="major", color=GRID, alpha=0.3, linewidth=0.6)
    if title:
        axes.set_title(title)
    _legend(axes)


def _legend(axes: Axes) -> None:
    """In the empty corner while it is small, below the figure, which grows for it, otherwise."""
    lines, labels = axes.get_legend_handles_labels()
    figure = axes.get_figure(root=True)
    if not labels or figure is None:
        return
    labels = [one_parameter_a_line(label) for label in labels]
    longest, tallest = max(len(line) for label in labels for line in label.split("\n")), max(map(_num_lines, labels))
    if len(labels) <= 5 and tallest == 1:
        axes.legend(loc="upper right", frameon=False)
        return
    columns = max(1, min(4, 72 // (longest + 8)))
    rows = -(-len(labels) // columns) + tallest - 1
    figure.set_figheight(figure.get_figheight() + 0.2 * rows)
    figure.legend(lines, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=9)


def _num_lines(text: str) -> int:
    return 1 + text.count("\n")


def _is_wide(curves: list[Curve]) -> bool:
    """Whether the first round of one method and the last of another are far apart."""
    positive = np.concatenate([found.x[1:][found.x[1:] > 0] for found in curves] or [np.empty(0)])
    return positive.size > 0 and float(positive.max() / positive.min()) > WIDE_RANGE


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:g} {unit}"
        value /= 1000
    return f"{value:g} TB"


def _figure() -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 4.2), layout="constrained")


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
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        **dict.fromkeys(ink, INK),
    }
    return matplotlib.rc_context(settings)
