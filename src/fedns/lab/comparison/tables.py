"""The table that ends a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from rich.table import Table

from fedns.core.numbers import DASH, bytes_text, gap_text, one_parameter_a_line, rounds_text, seconds_text
from fedns.lab.comparison.summary import TARGETS, Spread, Summary, gap_name
from fedns.reports.terminal import text_table

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
    """How the trials ended: the word alone where all agree."""
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


def notes(summaries: Sequence[Summary], tol: float | None) -> list[str]:
    """What the table's dashes and brackets mean where it has any."""
    sentences = [f"{summary.method}: data pooled: nothing is sent" for summary in summaries if summary.sends_nothing]
    sentences += [f"{summary.method}: {summary.diverged}" for summary in summaries if summary.diverged]
    if tol is not None and tol > min(TARGETS):
        sentences.append(f"every run stops at a gap of {tol:g} (tol): smaller gaps were not looked for")
    if any(spreads and spreads["rounds"].count < s.trials for s in summaries for spreads in s.targets.values()):
        sentences.append("[3/10] means that 3 of 10 trials got there; the mean is over those")
    return sentences
