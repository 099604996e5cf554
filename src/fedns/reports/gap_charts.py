"""The gap of runs against rounds, bytes and seconds, as one chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedns.core.errors import ConfigError
from fedns.core.history import Record
from fedns.core.types import FloatArray
from fedns.reports.charts import Chart, Curve, Scale

GAP_CHART = "gap"  # its name, with which its files begin
FLOOR = 1e-16  # gaps at or below are rounding errors, drawn here
WIDE_RANGE = 30.0  # from this ratio on, bytes are drawn on a log scale
CAPTION = (
    "Gap to the pooled optimum against communication rounds, against what each client has sent, or against the time of "
    "computation of server and clients together, without evaluation."
)
SPREAD = "Lines are medians over trials, bands reach from the smallest to the largest."


class HasRecords(Protocol):
    """A run as the figures see it: `History` and `Run` both are."""

    @property
    def records(self) -> Sequence[Record]: ...


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a figure."""

    label: str
    value: Callable[[Record, int], float]  # of a record, with this many clients
    unit: str = ""
    may_be_logarithmic: bool = False


AXES = {
    "rounds": Axis("communication rounds", lambda record, clients: record.round),
    "bytes": Axis(
        "bytes sent per client", lambda record, clients: record.uplink_bytes / clients, "bytes", may_be_logarithmic=True
    ),
    "seconds": Axis("seconds of computation", lambda record, clients: record.seconds),
}


def gap_line(label: str, runs: Sequence[HasRecords], clients: int) -> Curve:
    """Round by round the middle of the gap and its range over trials, and the middle of x on every axis.

    A run that ended keeps its last gap, so that the middle is over all trials to the end.
    """
    length = max(len(run.records) for run in runs)
    gaps = np.empty((len(runs), length))
    for row, run in enumerate(runs):
        own = [FLOOR if r.suboptimality is None else max(r.suboptimality, FLOOR) for r in run.records]
        gaps[row] = own + own[-1:] * (length - len(own))
    positions = {name: _positions(runs, axis, clients, length) for name, axis in AXES.items()}
    x = {name: found.tolist() for name, found in positions.items() if found[-1] > 0}  # pooled data send no bytes
    low, high = gaps.min(axis=0), gaps.max(axis=0)
    spread = () if (low == high).all() else (low.tolist(), high.tolist())
    return Curve(label, x, np.median(gaps, axis=0).tolist(), *spread)


def gap_chart(
    groups: Mapping[str, Sequence[HasRecords]],
    clients: int,
    title: str = "",
    tol: float | None = None,
    name: str = GAP_CHART,
) -> Chart:
    """The gap of runs, several trials of each label; `clients` is what bytes are divided by, `tol` is drawn as a line."""
    if not groups:
        raise ConfigError("there is no run to draw")
    lines = [gap_line(label, runs, clients) for label, runs in groups.items()]
    scales = {
        key: Scale(axis.label, axis.may_be_logarithmic and _is_wide(positions), axis.unit)
        for key, axis in AXES.items()
        if (positions := [line.x[key] for line in lines if key in line.x])
    }
    several = any(len(runs) > 1 for runs in groups.values())
    caption = [CAPTION, *([SPREAD] if several else []), *([f"The dotted line is a gap of {tol:g}."] if tol else [])]
    return Chart(
        name,
        title,
        " ".join(caption),
        scales or {"rounds": Scale(AXES["rounds"].label)},
        Scale("suboptimality F(w) − F*", logarithmic=True),
        lines,
        level=tol or None,
    )


def _positions(runs: Sequence[HasRecords], axis: Axis, clients: int, length: int) -> FloatArray:
    xs = np.full((len(runs), length), np.nan)
    for row, run in enumerate(runs):
        xs[row, : len(run.records)] = [axis.value(record, clients) for record in run.records]
    # The middle of x is over the runs still going; when slow ones drop out it must not step back.
    return np.maximum.accumulate(np.nanmedian(xs, axis=0))


def _is_wide(positions: Sequence[Sequence[float]]) -> bool:
    """Say whether the first round of one method and the last of another are far apart."""
    positive = [x for found in positions for x in found[1:] if x > 0]
    return bool(positive) and max(positive) / min(positive) > WIDE_RANGE
