"""Table 2: the data sets with their effective dimensions, and what a sketch costs beside the Hessian that it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedns.lab.paper import PENALTY, STRENGTH
from fedns.lab.paper.cases import CaseRuns, as_in_the_paper
from fedns.lab.paper.dimensions import Dimension, dimension_of
from fedns.lab.paper.part import Check, Looked, Part, claim, table_of_rows, verdicts_on

ENOUGH = 4.0  # sketched rows of all clients together per effective dimension


def build(cases: Sequence[CaseRuns], known: Sequence[Dimension]) -> Part:
    """The paper's data sets as they were run, then every data set at hand."""
    paper = as_in_the_paper(cases)
    return Part(
        "Table 2: data, effective dimensions and what is sent",
        [
            f"d_λ is exact, with the curvature {STRENGTH:g} that the penalty {PENALTY:g} |w|² adds to every direction. A "
            "sketch is kM + M numbers a round, the packed Hessian M(M+1)/2 + M.",
        ],
        tables=[
            table_of_rows("The paper's data sets", _paper_rows(cases, known)),
            table_of_rows("Every data set at hand", map(_row, known)),
        ],
        findings={f"{one.dataset} ({one.scale}): effective dimension": one.value for one in known},
        verdicts=verdicts_on((cheaper_verdict, dimension_verdict), paper, known),
    )


@claim("Table 1, communication per round", "O(kM) a round is less than FedNewton's O(M²)")
def cheaper_verdict(cases: Sequence[CaseRuns], known: Sequence[Dimension]) -> Looked:
    """Judge whether kM is less than what FedNewton has to send."""
    checks = []
    for case in cases:
        if columns := _columns(case, known):
            sketch, triangle = case.spec.sketch_size * columns, columns * (columns + 1) // 2
            checks.append(Check(case.spec.dataset, sketch < triangle, f"{case.spec.dataset} {sketch} against {triangle}"))
    return Looked(
        checks,
        "numbers a round at Table 2's k, sketch against packed Hessian: {measured}",
        if_some="k < (M + 1)/2, since a Hessian is symmetric",
    )


@claim(
    "Table 1, sketch size of FedNDES",
    "d_λ, the sketch size of FedNDES, is substantially smaller than M",
    "{measured} (substantially: at most half)",
)
def dimension_verdict(cases: Sequence[CaseRuns], known: Sequence[Dimension]) -> Iterator[Check]:
    """Judge whether the effective dimension is well below the number of columns, as the sketch size of FedNDES supposes."""
    for case in cases:
        value, columns = dimension_of(known, case.spec.dataset, case.spec.scale), _columns(case, known)
        if value is not None and columns:
            measured = f"{case.spec.dataset} d_λ {value:.1f}, M {columns}, k {case.spec.sketch_size}"
            yield Check(case.spec.dataset, value <= columns / 2, measured)


def _columns(case: CaseRuns, known: Sequence[Dimension]) -> int:
    return next((one.columns for one in known if one.dataset == case.spec.dataset), 0)


def _paper_rows(cases: Sequence[CaseRuns], known: Sequence[Dimension]) -> Iterator[dict[str, str]]:
    for case in cases:
        value, M = dimension_of(known, case.spec.dataset, case.spec.scale), _columns(case, known)
        if value is None:
            continue
        k, m = case.spec.sketch_size, case.clients
        yield {
            "data set": case.spec.dataset,
            "scaling": case.spec.scale,
            "rows": f"{next(one.rows for one in known if one.dataset == case.spec.dataset):,}",
            "M": str(M),
            "k": str(k),
            "m": str(m),
            "d_λ": f"{value:.2f}",
            "m k / d_λ": f"{m * k / value:.1f}",
            "sketch, numbers a round": str(k * M + M),
            "packed Hessian": str(M * (M + 3) // 2),
        }


def _row(d: Dimension) -> dict[str, str]:
    return {
        "data set": d.dataset,
        "scaling": d.scale,
        "loss": d.loss,
        "rows": f"{d.rows:,}",
        "M": str(d.columns),
        "d_λ": f"{d.value:.2f}",
        f"clients · k for a unit step ({ENOUGH:g} d_λ)": f"{ENOUGH * d.value:.0f}",
    }
