"""Table 2: the data sets with their effective dimensions, and what a sketch costs beside the Hessian that it stands for."""

from __future__ import annotations

from collections.abc import Sequence

from fedns.paper.dimensions import STRENGTH, Dimension, find
from fedns.paper.measured import CaseRuns, as_in_the_paper
from fedns.paper.part import Part, Table, judge, judged
from fedns.paper.verdict import Verdict

ENOUGH = 4.0  # sketched rows of all clients together per effective dimension


def build(cases: Sequence[CaseRuns], known: Sequence[Dimension]) -> Part:
    """The paper's data sets as they were run, then every data set at hand."""
    paper = as_in_the_paper(cases)
    return Part(
        "Table 2: data, effective dimensions and what is sent",
        [
            f"d_λ is exact, at λ = {STRENGTH:g}, the strength of (λ/2)|w|². A sketch is kM + M numbers a round, the packed "
            "Hessian M(M+1)/2 + M.",
        ],
        tables=[_paper_table(cases, known), _all_table(known)],
        findings={f"{one.dataset} ({one.scale}): effective dimension": one.value for one in known},
        verdicts=judged(cheaper_verdict(paper, known), dimension_verdict(paper, known)),
    )


def cheaper_verdict(cases: Sequence[CaseRuns], known: Sequence[Dimension]) -> Verdict | None:
    """Whether kM is less than what FedNewton has to send."""
    checks, told = {}, []
    for case in cases:
        columns = _columns(case, known)
        if columns:
            sketch, packed = case.spec.sketch_size * columns, columns * (columns + 1) // 2
            checks[case.spec.dataset] = sketch < packed
            told.append(f"{case.spec.dataset} {sketch} against {packed}")
    return judge(
        "Table 1, communication per round",
        "O(kM) a round is less than FedNewton's O(M²)",
        checks,
        f"numbers a round at Table 2's k, sketch against packed Hessian: {'; '.join(told)}",
        if_some="k < (M + 1)/2, since a Hessian is symmetric",
    )


def dimension_verdict(cases: Sequence[CaseRuns], known: Sequence[Dimension]) -> Verdict | None:
    """Whether the effective dimension is well below the number of columns, as the sketch size of FedNDES supposes."""
    checks, told = {}, []
    for case in cases:
        value, columns = find(known, case.spec.dataset, case.spec.scale), _columns(case, known)
        if value is not None and columns:
            checks[case.spec.dataset] = value <= columns / 2
            told.append(f"{case.spec.dataset} d_λ {value:.1f}, M {columns}, k {case.spec.sketch_size}")
    return judge(
        "Table 1, sketch size of FedNDES",
        "d_λ, the sketch size of FedNDES, is substantially smaller than M",
        checks,
        f"{'; '.join(told)} (substantially: at most half)",
    )


def _columns(case: CaseRuns, known: Sequence[Dimension]) -> int:
    return next((one.columns for one in known if one.dataset == case.spec.dataset), 0)


def _paper_table(cases: Sequence[CaseRuns], known: Sequence[Dimension]) -> Table:
    headings = [
        "data set",
        "scaling",
        "rows",
        "M",
        "k",
        "m",
        "d_λ",
        "m k / d_λ",
        "sketch, numbers a round",
        "packed Hessian",
    ]
    rows = []
    for case in cases:
        value, columns = find(known, case.spec.dataset, case.spec.scale), _columns(case, known)
        if value is None:
            continue
        count = next(one.rows for one in known if one.dataset == case.spec.dataset)
        k, m = case.spec.sketch_size, case.clients
        cells = [case.spec.dataset, case.spec.scale, f"{count:,}", str(columns), str(k), str(m), f"{value:.2f}"]
        rows.append([*cells, f"{m * k / value:.1f}", str(k * columns + columns), str(columns * (columns + 3) // 2)])
    return "The paper's data sets", headings, rows


def _all_table(known: Sequence[Dimension]) -> Table:
    headings = ["data set", "scaling", "loss", "rows", "M", "d_λ", f"clients · k for a unit step ({ENOUGH:g} d_λ)"]
    rows = [
        [d.dataset, d.scale, d.loss, f"{d.rows:,}", str(d.columns), f"{d.value:.2f}", f"{ENOUGH * d.value:.0f}"]
        for d in known
    ]
    return "Every data set at hand", headings, rows
