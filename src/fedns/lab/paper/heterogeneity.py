"""Clients that differ: the column "Heterogeneous setting" of Table 1, measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from fedns.lab.paper.cases import CaseRuns, MethodRuns, reached_text
from fedns.lab.paper.part import Check, Looked, Part, Table, claim, verdicts_on

CLOSE_GAP = 1e-10
LOCAL = ("distributednewton", "localnewton")


def build(cases: Sequence[CaseRuns]) -> Part:
    """One row per method, one column per way in which clients differ."""
    return Part(
        "Clients that differ",
        [
            "phishing over 40 clients: at random, sorted by label, labels by Dirichlet(0.1), sizes by Dirichlet(0.5); four "
            "hospitals (heart_4sites_raw, its missing values filled in with the mean over all sites or their rows dropped, "
            "and fed_heart_disease, which comes with rows dropped and levels coded); 139 schools, a regression.",
        ],
        tables=[_table(cases)],
        findings={
            f"{case.label}: {typed} final gap": found.final_gap for case in cases for typed, found in case.methods.items()
        },
        verdicts=verdicts_on((*SAFE.values(), printed_verdict, local_verdict), cases),
    )


def _safe(name: str, cases: Sequence[CaseRuns]) -> Looked:
    """Judge whether a method gets to the pooled answer however the clients differ, and whether a line search would help."""
    checks, helped = [], []
    for case in cases:
        if found := case.methods.get(name):
            checks.append(Check(case.label, found.rounds_to(CLOSE_GAP) is not None, f"{case.label} {_cell(found)}"))
        searched = case.methods.get(f"{name}:line_search=aggregate")
        if searched and not checks[-1].holds:
            helped.append(searched.rounds_to(CLOSE_GAP) is not None)
            checks.append(Check("", True, f"{case.label} with a line search {_cell(searched)}"))
    return Looked(
        checks,
        f"rounds / bytes per client to {CLOSE_GAP:g}: {{measured}}",
        if_some="a line search is added where few clients have small sketches" if helped and all(helped) else "",
    )


SAFE = {
    name: claim(f"Table 1, heterogeneous, {shown}", f"{shown} applies to heterogeneous clients")(partial(_safe, name))
    for name, shown in (("fedns", "FedNS"), ("fedndes", "FedNDES"))
}


@claim(
    "Table 1, heterogeneous, FedNDES as printed",
    "Algorithm 2 with its local line search applies to heterogeneous clients",
    f"rounds / bytes per client to {CLOSE_GAP:g}, or the gap at the end: {{measured}}",
)
def printed_verdict(cases: Sequence[CaseRuns]) -> Iterator[Check]:
    """Algorithm 2 with its local line search."""
    for case in cases:
        if found := case.methods.get("fedndes:line_search=local"):
            yield Check(case.label, found.rounds_to(CLOSE_GAP) is not None, f"{case.label} {_cell(found)}")


@claim("Table 1, heterogeneous, local methods", "DistributedNewton and LocalNewton do not apply to heterogeneous clients")
def local_verdict(cases: Sequence[CaseRuns]) -> Iterator[Check]:
    """DistributedNewton and LocalNewton have a cross in the table."""
    for case in cases:
        for name in LOCAL if case.spec.split != "iid" else ():
            if found := case.of(name):
                measured = f"{case.label} {name} {_cell(found)}"
                yield Check(f"{name} on {case.label}", found.rounds_to(CLOSE_GAP) is None, measured)


def _table(cases: Sequence[CaseRuns]) -> Table:
    typed = list(dict.fromkeys(name for case in cases for name in case.methods))
    rows = [[name, *(_cell(case.methods.get(name)) for case in cases)] for name in typed]
    headings = ["method", *(f"{case.label} (m {case.clients})" for case in cases)]
    return f"Rounds and bytes per client to {CLOSE_GAP:g}, or the gap at the end", headings, rows


def _cell(found: MethodRuns | None) -> str:
    return reached_text(found, CLOSE_GAP, how_it_ended=True)
