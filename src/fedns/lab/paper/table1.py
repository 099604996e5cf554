"""Table 1: rounds and bytes to a gap for every method, with the rates that were measured beside those that are claimed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fedns.core.numbers import bytes_text, gap_text
from fedns.lab.comparison.summary import gap_name
from fedns.lab.paper.cases import GAPS, CaseRuns, MethodRuns, rounds_or_more
from fedns.lab.paper.part import Check, Part, Table, claim, table_of_rows, verdicts_on
from fedns.lab.paper.rates import Kind, Rate, rate
from fedns.methods import METHODS
from fedns.reports.charts import Chart
from fedns.reports.gap_charts import gap_chart

SLOWEST_FIRST: tuple[Kind, ...] = ("sub-linear", "linear", "super-linear", "quadratic")


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's Table 1: the method as it was run here, and the iterations it is said to need."""

    row: str
    typed: str
    iterations: str
    needs: Kind  # the slowest rate that gives so few


ROWS = (
    PaperRow("FedAvg", "fedavg", "1/δ", "sub-linear"),
    PaperRow("FedProx", "fedprox", "1/δ", "sub-linear"),
    PaperRow("DistributedNewton", "distributednewton", "log 1/δ", "linear"),
    PaperRow("LocalNewton", "localnewton", "log 1/δ", "linear"),
    PaperRow("FedNL", "fednl", "log 1/δ", "linear"),
    PaperRow("SHED", "shed", "log 1/δ", "linear"),
    PaperRow("FedNewton", "fednewton", "log log 1/δ", "super-linear"),
    PaperRow("FedNS, k = M", "fedns:sketch_size=68", "log log 1/δ", "super-linear"),
    PaperRow("FedNS, Table 2's k", "fedns", "log log 1/δ", "super-linear"),
    PaperRow("FedNDES", "fedndes", "log log 1/δ", "super-linear"),
)


def build(cases: Sequence[CaseRuns]) -> Part:
    """The measured table for each loss, and a verdict for each row."""
    return Part(
        "Table 1: rounds and bytes of every method",
        [
            "Means over trials; '> n' where a trial did not get there in n rounds. The order p is that of e_next ~ e^p over "
            "the last gaps: 2 is Newton's, 1 a fixed factor a round. The paper's table is for the squared loss.",
            "FedAvg and FedProx take steps of a constant length, several between exchanges; the 1/δ of the analyses that "
            "the paper cites is for lengths that fall.",
        ],
        [_chart(case) for case in cases],
        [table(case) for case in cases],
        _findings(cases),
        verdicts_on(CLAIMS, cases),
    )


def _as_claimed(row: PaperRow, cases: Sequence[CaseRuns]) -> Iterator[Check]:
    """Look whether the gap falls as fast as the claimed number of iterations needs, for each loss."""
    for case in cases:
        if found := case.of(row.typed):
            fitted = rate(found)
            hits = [f"{rounds_or_more(found, gap)} to {gap_name(gap)}" for gap in (GAPS[0], GAPS[2], GAPS[-1])]
            measured = f"{case.spec.loss}: {fitted}, final gap {gap_text(found.final_gap)}, rounds {', '.join(hits)}"
            yield Check(f"the {case.spec.loss} loss", fast_enough(found, fitted, row.needs), measured)


CLAIMS = [
    claim(f"Table 1, {row.row}", f"{row.iterations} iterations to a gap of δ")(partial(_as_claimed, row)) for row in ROWS
]


def fast_enough(found: MethodRuns, fitted: Rate, needs: Kind) -> bool:
    """One step of Newton's method solves least squares: a run that is done in two rounds has no rate, and needs none."""
    if found.rounds_to(GAPS[-1]) is not None and found.last_round <= 2:
        return True
    return fitted.kind in SLOWEST_FIRST and SLOWEST_FIRST.index(fitted.kind) >= SLOWEST_FIRST.index(needs)


def table(case: CaseRuns) -> Table:
    """One row per method."""
    rows = (
        {"method": typed}
        | {f"rounds to {gap_name(gap)}": rounds_or_more(found, gap) for gap in GAPS}
        | {f"bytes to {gap_name(gap)}": _bytes(found.bytes_to(gap)) for gap in GAPS}
        | {"measured rate": str(rate(found)), "claimed rounds": METHODS[typed.split(":")[0]].theory}
        | {"final gap": gap_text(found.final_gap)}
        for typed, found in case.methods.items()
    )
    return table_of_rows(
        f"{case.spec.dataset}, {case.spec.loss} loss, {case.clients} clients, k = {case.spec.sketch_size}", rows
    )


def _bytes(count: float | None) -> str:
    return "-" if count is None else "0" if count == 0 else bytes_text(count)


def _chart(case: CaseRuns) -> Chart:
    groups = {typed: found.runs for typed, found in case.methods.items()}
    title = f"{case.spec.dataset}, {case.spec.loss} loss, {case.clients} clients"
    return gap_chart(groups, case.clients, title, GAPS[-1], f"table1_{case.spec.loss}")


def _findings(cases: Sequence[CaseRuns]) -> dict[str, float]:
    return {
        f"{case.spec.loss}: {typed} {name}": value
        for case in cases
        for typed, found in case.methods.items()
        for name, value in (("order", rate(found).order), ("factor", rate(found).factor), ("final gap", found.final_gap))
    }
