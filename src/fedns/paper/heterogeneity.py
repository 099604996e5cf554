"""Clients that differ: the column "Heterogeneous setting" of Table 1, measured."""

from __future__ import annotations

from collections.abc import Sequence

from fedns.paper.measured import CaseRuns, Measured
from fedns.paper.part import Part, Table, judge, judged
from fedns.paper.verdict import Verdict
from fedns.reporting.numbers import bytes_text, gap_text

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
        verdicts=judged(
            safe_verdict(cases, "fedns", "FedNS"),
            safe_verdict(cases, "fedndes", "FedNDES"),
            printed_verdict(cases),
            local_verdict(cases),
        ),
    )


def safe_verdict(cases: Sequence[CaseRuns], name: str, shown: str) -> Verdict | None:
    """Whether a method gets to the pooled answer however the clients differ, and whether a line search would have helped."""
    checks, told, helped = {}, [], []
    for case in cases:
        found = case.methods.get(name)
        if found:
            checks[case.label] = found.rounds_to(CLOSE_GAP) is not None
            told.append(f"{case.label} {_cell(found)}")
        searched = case.methods.get(f"{name}:line_search=aggregate")
        if searched and not checks[case.label]:
            helped.append(searched.rounds_to(CLOSE_GAP) is not None)
            told.append(f"{case.label} with a line search {_cell(searched)}")
    return judge(
        f"Table 1, heterogeneous, {shown}",
        f"{shown} applies to heterogeneous clients",
        checks,
        f"rounds / bytes per client to {CLOSE_GAP:g}: {'; '.join(told)}",
        if_some="a line search is added where few clients have small sketches" if helped and all(helped) else "",
    )


def printed_verdict(cases: Sequence[CaseRuns]) -> Verdict | None:
    """Algorithm 2 with its local line search."""
    checks, told = {}, []
    for case in cases:
        found = case.methods.get("fedndes:line_search=local")
        if found:
            checks[case.label] = found.rounds_to(CLOSE_GAP) is not None
            told.append(f"{case.label} {_cell(found)}")
    return judge(
        "Table 1, heterogeneous, FedNDES as printed",
        "Algorithm 2 with its local line search applies to heterogeneous clients",
        checks,
        f"rounds / bytes per client to {CLOSE_GAP:g}, or the gap at the end: {'; '.join(told)}",
    )


def local_verdict(cases: Sequence[CaseRuns]) -> Verdict | None:
    """DistributedNewton and LocalNewton have a cross in the table."""
    checks, told = {}, []
    for case in cases:
        if case.spec.split == "iid":
            continue
        for name in LOCAL:
            found = case.of(name)
            if found:
                checks[f"{name} on {case.label}"] = found.rounds_to(CLOSE_GAP) is None
                told.append(f"{case.label} {name} {_cell(found)}")
    return judge(
        "Table 1, heterogeneous, local methods",
        "DistributedNewton and LocalNewton do not apply to heterogeneous clients",
        checks,
        "; ".join(told),
    )


def _table(cases: Sequence[CaseRuns]) -> Table:
    typed = list(dict.fromkeys(name for case in cases for name in case.methods))
    rows = [[name, *(_cell(case.methods.get(name)) for case in cases)] for name in typed]
    headings = ["method", *(f"{case.label} (m {case.clients})" for case in cases)]
    return f"Rounds and bytes per client to {CLOSE_GAP:g}, or the gap at the end", headings, rows


def _cell(found: Measured | None) -> str:
    if found is None:
        return "-"
    rounds, sent = found.rounds_to(CLOSE_GAP), found.bytes_to(CLOSE_GAP)
    if rounds is None or sent is None:
        return f"{found.ending.label} {gap_text(found.final_gap)}"
    return f"{rounds:.1f} / {bytes_text(sent)}"
