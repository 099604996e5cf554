"""What the runs of a comparison amount to, method by method."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, median
from typing import Any

from fedns.comparison.results import Run

TARGETS = (1e-6, 1e-10)  # the gaps that tables look for


def gap_name(gap: float) -> str:
    """1e-6, not 1e-06."""
    return f"{gap:.0e}".replace("e-0", "e-")


@dataclass(frozen=True)
class Spread:
    """A number over those trials that have one."""

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        return cls(fmean(values), min(values), max(values), len(values)) if values else None


@dataclass(frozen=True)
class Target:
    """What it took to bring the gap down to a target; None where no trial did."""

    gap: float
    rounds: Spread | None
    exchanges: Spread | None
    seconds: Spread | None
    uplink_bytes: Spread | None
    uplink_bytes_per_client: Spread | None
    downlink_bytes: Spread | None
    downlink_bytes_per_client: Spread | None


@dataclass(frozen=True)
class Summary:
    """One method over its trials."""

    method: str
    trials: int
    converged: int
    rounds: Spread
    seconds: Spread
    uplink_bytes: Spread
    uplink_bytes_per_client: Spread
    final_gap: float | None  # the median
    targets: tuple[Target, ...]
    endings: dict[str, int]  # how many trials ended how
    stop_reason: str  # of the first trial, in words

    @property
    def sends_nothing(self) -> bool:
        return self.uplink_bytes.high == 0


def summarise(runs: Iterable[Run], num_clients: int) -> list[Summary]:
    """One summary per method, in the order in which they ran."""
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    return [_summary(method, own, num_clients) for method, own in by_method.items()]


def _summary(method: str, runs: list[Run], num_clients: int) -> Summary:
    last = [run.last for run in runs]
    gaps = [record.suboptimality for record in last if record.suboptimality is not None]
    endings = [run.ending.label for run in runs]
    sent = [float(record.uplink_bytes) for record in last]
    return Summary(
        method=method,
        trials=len(runs),
        converged=sum(run.converged for run in runs),
        rounds=_spread([record.round for record in last]),
        seconds=_spread([record.seconds for record in last]),
        uplink_bytes=_spread(sent),
        uplink_bytes_per_client=_spread([value / num_clients for value in sent]),
        final_gap=median(gaps) if gaps else None,
        targets=tuple(_target(gap, runs, num_clients) for gap in TARGETS),
        endings={ending: endings.count(ending) for ending in dict.fromkeys(endings)},
        stop_reason=runs[0].stop_reason,
    )


def _spread(values: Sequence[float]) -> Spread:
    spread = Spread.of(values)
    assert spread is not None  # a run has at least its start
    return spread


def _target(gap: float, runs: list[Run], num_clients: int) -> Target:
    hits = [hit for run in runs if (hit := run.first_below(gap)) is not None]
    up, down = ([float(getattr(hit, name)) for hit in hits] for name in ("uplink_bytes", "downlink_bytes"))
    return Target(
        gap,
        Spread.of([hit.round for hit in hits]),
        Spread.of([hit.exchanges for hit in hits]),
        Spread.of([hit.seconds for hit in hits]),
        Spread.of(up),
        Spread.of([value / num_clients for value in up]),
        Spread.of(down),
        Spread.of([value / num_clients for value in down]),
    )


def write_summary(path: Path, summaries: Sequence[Summary]) -> None:
    """One line per method; a target that no trial reached leaves its cells empty."""
    rows = [_csv_row(summary) for summary in summaries]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def _csv_row(summary: Summary) -> dict[str, Any]:
    row: dict[str, Any] = {"method": summary.method, "trials": summary.trials, "converged_trials": summary.converged}
    for target in summary.targets:
        row[f"trials_to_{gap_name(target.gap)}"] = target.rounds.count if target.rounds else 0
        for field in fields(target)[1:]:
            row |= _csv_cells(f"{field.name}_to_{gap_name(target.gap)}", getattr(target, field.name))
    for name in ("rounds", "seconds", "uplink_bytes", "uplink_bytes_per_client"):
        row |= _csv_cells(f"{name}_total", getattr(summary, name))
    row["final_gap_median"] = "" if summary.final_gap is None else repr(summary.final_gap)
    row["ended"] = "; ".join(f"{ending} {count}" for ending, count in summary.endings.items())
    row["stop_reason"] = summary.stop_reason
    return row


def _csv_cells(name: str, spread: Spread | None) -> dict[str, Any]:
    values = ("", "", "") if spread is None else (spread.mean, spread.low, spread.high)
    return dict(zip((f"{name}_mean", f"{name}_min", f"{name}_max"), values, strict=True))


@dataclass(frozen=True)
class Traffic:
    """One kind of message of a method, averaged over its finished trials."""

    method: str
    direction: str  # "uplink" leaves a site, "downlink" reaches it
    kind: str
    fields: tuple[str, ...]
    at_start: bool
    messages: float  # per client, and per round unless at the start
    bytes_per_message: float
    bytes_per_client: float  # over a whole run


def traffic(runs: Iterable[Run], num_clients: int) -> list[Traffic]:
    """What left and reached each site, by method and kind of message."""
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        if run.ledger:
            by_method.setdefault(run.method, []).append(run)
    return [line for method, own in by_method.items() for line in _traffic_of(method, own, num_clients)]


def _traffic_of(method: str, runs: list[Run], num_clients: int) -> list[Traffic]:
    totals: dict[tuple[str, str, tuple[str, ...], bool], list[int]] = {}
    for run in runs:
        for line in run.ledger:
            total = totals.setdefault((line.direction, line.kind, line.fields, line.at_start), [0, 0])
            total[0] += line.messages
            total[1] += line.bytes
    rounds = max(1, sum(run.last.round for run in runs))
    return [
        Traffic(
            method,
            *key,
            messages=messages / num_clients / (len(runs) if key[3] else rounds),
            bytes_per_message=length / messages,
            bytes_per_client=length / num_clients / len(runs),
        )
        for key, (messages, length) in totals.items()
    ]
