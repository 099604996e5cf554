"""The sums of a comparison's runs, method by method, and the table that shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.table import Table

from fedns.core.files import write_csv
from fedns.core.history import Record
from fedns.core.numbers import DASH, bytes_text, gap_text, one_parameter_a_line, rounds_text, seconds_text
from fedns.core.termination import Ending
from fedns.lab.comparison.results import LedgerLine, TrialRun, add_up
from fedns.reports.charts import grouped
from fedns.reports.terminal import text_table

TARGETS = (1e-6, 1e-10)  # the gaps that tables look for


def gap_name(gap: float) -> str:
    """1e-6, not 1e-06."""
    return f"{gap:.0e}".replace("e-0", "e-")


# What a record says, by name, with this many clients.
MEASURES: dict[str, Callable[[Record, int], float]] = {
    "rounds": lambda record, clients: record.round,
    "exchanges": lambda record, clients: record.exchanges,
    "seconds": lambda record, clients: record.seconds,
    "uplink_bytes": lambda record, clients: float(record.uplink_bytes),
    "uplink_bytes_per_client": lambda record, clients: record.uplink_bytes / clients,
    "downlink_bytes": lambda record, clients: float(record.downlink_bytes),
    "downlink_bytes_per_client": lambda record, clients: record.downlink_bytes / clients,
}


@dataclass(frozen=True)
class Spread:
    """A number over those trials that have one."""

    mean: float
    low: float
    high: float
    count: int


Spreads = dict[str, Spread]  # by measure; empty where no trial has any


@dataclass(frozen=True)
class Summary:
    """One method over its trials."""

    method: str
    trials: int
    converged: int
    total: Spreads  # of whole runs
    final_gap: float | None  # the median
    targets: dict[float, Spreads]  # what it took to bring the gap down to each of TARGETS
    endings: dict[str, int]  # how many trials ended how
    stop_reason: str  # of the first trial, in words
    diverged: str  # the same of the first trial that diverged; nothing where none did

    @property
    def sends_nothing(self) -> bool:
        return self.total["uplink_bytes"].high == 0


def summarise(runs: Iterable[TrialRun], num_clients: int) -> list[Summary]:
    """One summary per method, in the order in which they ran."""
    return [_summary(method, own, num_clients) for method, own in grouped(runs, lambda run: run.method).items()]


def _summary(method: str, runs: list[TrialRun], num_clients: int) -> Summary:
    gaps = [run.last.suboptimality for run in runs if run.last.suboptimality is not None]
    hits = {gap: [hit for run in runs if (hit := run.first_below(gap)) is not None] for gap in TARGETS}
    return Summary(
        method=method,
        trials=len(runs),
        converged=sum(run.converged for run in runs),
        total=_spreads([run.last for run in runs], num_clients),
        final_gap=median(gaps) if gaps else None,
        targets={gap: _spreads(records, num_clients) for gap, records in hits.items()},
        endings=dict(Counter(run.ending.label for run in runs)),
        stop_reason=runs[0].stop_reason,
        diverged=next((run.stop_reason for run in runs if run.ending is Ending.DIVERGED), ""),
    )


def _spreads(records: Sequence[Record], num_clients: int) -> Spreads:
    values = {name: [measure(record, num_clients) for record in records] for name, measure in MEASURES.items()}
    return {name: Spread(fmean(own), min(own), max(own), len(own)) for name, own in values.items() if own}


def write_summary(path: Path, summaries: Sequence[Summary]) -> None:
    """One line per method; a target that no trial reached leaves its cells empty."""
    rows = [_csv_row(summary) for summary in summaries]
    write_csv(path, [*rows[:1], *(row.values() for row in rows)])


def _csv_row(summary: Summary) -> dict[str, Any]:
    row: dict[str, Any] = {"method": summary.method, "trials": summary.trials, "converged_trials": summary.converged}
    for gap, spreads in summary.targets.items():
        row[f"trials_to_{gap_name(gap)}"] = spreads["rounds"].count if spreads else 0
        for name in MEASURES:
            row |= _csv_cells(f"{name}_to_{gap_name(gap)}", spreads.get(name))
    for name in ("rounds", "seconds", "uplink_bytes", "uplink_bytes_per_client"):
        row |= _csv_cells(f"{name}_total", summary.total[name])
    row["final_gap_median"] = summary.final_gap
    row["ended"] = "; ".join(f"{ending} {count}" for ending, count in summary.endings.items())
    row["stop_reason"] = summary.stop_reason
    return row


def _csv_cells(name: str, spread: Spread | None) -> dict[str, Any]:
    values = (spread.mean, spread.low, spread.high) if spread else ("", "", "")
    return dict(zip((f"{name}_mean", f"{name}_min", f"{name}_max"), values, strict=True))


@dataclass(frozen=True)
class Traffic:
    """One kind of message of a method, averaged over its finished trials."""

    method: str
    line: LedgerLine
    messages: float  # per client, and per round unless at the start
    bytes_per_message: float
    bytes_per_client: float  # over a whole run


def traffic(runs: Iterable[TrialRun], num_clients: int) -> list[Traffic]:
    """Messages that left and reached each site, by method and kind."""
    finished = grouped((run for run in runs if run.ledger), lambda run: run.method)
    return [line for method, own in finished.items() for line in _traffic_of(method, own, num_clients)]


def _traffic_of(method: str, runs: list[TrialRun], num_clients: int) -> list[Traffic]:
    rounds = max(1, sum(run.last.round for run in runs))
    return [
        Traffic(
            method,
            line,
            line.messages / num_clients / (len(runs) if line.at_start else rounds),
            line.bytes / line.messages,
            line.bytes / num_clients / len(runs),
        )
        for line in add_up(line for run in runs for line in run.ledger)
    ]


HEADINGS = (
    "method",
    *(f"rounds to {gap_name(gap)}" for gap in TARGETS),
    *(f"sent per client to {gap_name(gap)}" for gap in TARGETS),
    "seconds",
    "final gap",
    "ended",
)


def target_text(spread: Spread | None, trials: int, show: Callable[[float], str], *, ranged: bool = False) -> str:
    """The mean, where asked for with its range, and of how many trials where not all reached the target."""
    if spread is None:
        return DASH
    text = show(spread.mean)
    low, high = show(spread.low), show(spread.high)
    if ranged and low != high:
        text += f" ({low}-{high})"
    return text if spread.count == trials else f"{text} [{spread.count}/{trials}]"


def ending_text(summary: Summary) -> str:
    """The endings of the trials: the word alone where all agree."""
    if len(summary.endings) == 1:
        return next(iter(summary.endings))
    return ", ".join(f"{word} {count}/{summary.trials}" for word, count in summary.endings.items())


def cells(summary: Summary) -> tuple[str, ...]:
    """One row of the table, in the order of the headings."""
    trials = summary.trials
    sent = [
        DASH if summary.sends_nothing else target_text(spreads.get("uplink_bytes_per_client"), trials, bytes_text)
        for spreads in summary.targets.values()
    ]
    return (
        summary.method,
        *(target_text(spreads.get("rounds"), trials, rounds_text, ranged=True) for spreads in summary.targets.values()),
        *sent,
        seconds_text(summary.total["seconds"].mean),
        gap_text(summary.final_gap),
        ending_text(summary),
    )


def comparison_table(title: str, summaries: Sequence[Summary]) -> Table:
    """The table on the screen."""
    breaks = {" to ": "\nto ", " per client": "\nper client", " gap": "\ngap"}
    headings = [reduce(lambda text, pair: text.replace(*pair), breaks.items(), heading) for heading in HEADINGS]
    rows = ([one_parameter_a_line(method), *others] for method, *others in map(cells, summaries))
    return text_table(headings, rows, left=("method", "ended"), title=title)


def notes_on_table(summaries: Sequence[Summary], tol: float | None) -> list[str]:
    """Sentences on the table's dashes and brackets, where it has any."""
    sentences = [f"{summary.method}: data pooled: nothing is sent" for summary in summaries if summary.sends_nothing]
    sentences += [f"{summary.method}: {summary.diverged}" for summary in summaries if summary.diverged]
    if tol is not None and tol > min(TARGETS):
        sentences.append(f"every run stops at a gap of {tol:g} (tol): smaller gaps were not looked for")
    if any(spreads and spreads["rounds"].count < s.trials for s in summaries for spreads in s.targets.values()):
        sentences.append("[3/10] means that 3 of 10 trials got there; the mean is over those")
    return sentences
