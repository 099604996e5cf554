"""Figure 2: the gap against the sketch size, and the claims under "Impact of sketch size on Performance"."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedns.core.numbers import gap_text
from fedns.lab.paper.cases import CaseRuns, MethodRuns, rounds_or_more
from fedns.lab.paper.dimensions import Dimension, dimension_of
from fedns.lab.paper.part import Check, Looked, Part, claim, table_of_rows, verdicts_on
from fedns.reports.charts import Chart, Curve, Scale, grouped

ROUNDS_SHOWN = 5
CLOSE_GAP = 1e-10
GOOD_GAP = 1e-6  # "good performance"
NOISE = 3.0  # gaps of random sketches that differ by less are not measured apart
DRAWN_FLOOR = 1e-12  # runs stop there


@dataclass(frozen=True)
class SketchPoint:
    """One method with one sketch of one size on one data set."""

    case: CaseRuns
    method: str
    sketch: str
    size: int
    found: MethodRuns
    columns: int
    dimension: float

    @property
    def place(self) -> str:
        return f"{self.case.spec.dataset} (m = {self.case.clients})"

    @property
    def gap(self) -> float:
        return max(DRAWN_FLOOR, self.found.gap_after(ROUNDS_SHOWN))

    @property
    def rows_per_dimension(self) -> float:
        """m k / d_lambda, where a client with fewer rows than k sends only its own."""
        return self.case.clients * self.size / self.dimension


def build(cases: Sequence[CaseRuns], known: Sequence[Dimension]) -> Part:
    """Charts by data set, a table of rounds, and the claims."""
    points = [point for case in cases for point in _points(case, known)]
    return Part(
        "Figure 2: the sketch size",
        [
            f"Gaps after {ROUNDS_SHOWN} rounds. The second horizontal scale is m k / d_λ: with the Grams of m clients added "
            "up, m k rows stand against the effective dimension, whatever the number of clients.",
        ],
        [_chart(case, [point for point in points if point.case is case]) for case in cases],
        [table_of_rows("Every sketch and size", map(_row, points))],
        {f"{p.place}: {p.method} {p.sketch} {p.size} gap after {ROUNDS_SHOWN} rounds": p.gap for p in points},
        verdicts_on((larger_verdict, newton_verdict, small_verdict, smaller_sketch_verdict), points),
    )


@claim(
    "Fig. 2, claim 1",
    f"a larger sketch always leads to a smaller gap (after {ROUNDS_SHOWN} rounds)",
    f"exceptions (by a factor of {NOISE:g} or more): {{measured}}",
)
def larger_verdict(points: Sequence[SketchPoint]) -> Iterator[Check]:
    """Claim 1, in terms of the gap: no larger sketch does worse than a smaller one."""
    exceptions = False
    for (place, method), group in grouped(points, lambda p: (p.place, p.method)).items():
        worse = []
        for row in grouped(sorted(group, key=lambda p: p.size), lambda p: p.sketch).values():
            worse += [(a, b) for a, b in itertools.combinations(row, 2) if b.gap > NOISE * a.gap]
        measured = [
            f"{place} {a.sketch} {method}: {gap_text(a.gap)} at k = {a.size}, {gap_text(b.gap)} at {b.size}"
            for a, b in worse[:1]
        ]
        exceptions |= bool(worse)
        yield Check(f"{method} on {place}", not worse, "".join(measured))
    yield Check("", True, "" if exceptions else "none")


@claim("Fig. 2, claim 2", "FedNS and FedNDES finally come to the answer of the global Newton method")
def newton_verdict(points: Sequence[SketchPoint]) -> Looked:
    """Claim 2: the largest sketch of each kind gets to Newton's answer."""
    checks = []
    for (place, method), group in grouped(points, lambda p: (p.place, p.method)).items():
        largest = max(p.size for p in group)
        there = all(p.found.final_gap <= CLOSE_GAP for p in group if p.size == largest)
        checks.append(Check(f"{method} on {place}", there))
    reached = sum(p.found.final_gap <= CLOSE_GAP for p in points)
    return Looked(
        checks,
        f"{reached} of {len(points)} runs reach {CLOSE_GAP:g} within {max(p.case.spec.rounds for p in points)} rounds; "
        f"{threshold_text(points)}",
    )


@claim("Fig. 2, claim 3", "a small sketch, k much below M and N, still does well")
def small_verdict(points: Sequence[SketchPoint]) -> Looked:
    """Claim 3: k of at most a quarter of M."""
    few, least = _threshold(points)
    return Looked(
        [
            Check(f"{p.method} k = {p.size} on {p.place}", p.found.final_gap <= GOOD_GAP)
            for p in points
            if 4 * p.size <= p.columns
        ],
        f"k ≤ M/4, to a gap of {GOOD_GAP:g}: {threshold_text(points)}",
        if_some=f"m k is large enough beside d_λ: here every FedNS run with m k > {few:.1f} d_λ got there"
        + (f", none below {least:.1f} d_λ did" if least else ""),
    )


@claim(
    "Fig. 2, claim 4",
    "with a small sketch FedNDES does better than FedNS",
    f"gap after {ROUNDS_SHOWN} rounds: {{measured}} (by a factor of {NOISE:g} for some sketch, worse for none)",
)
def smaller_sketch_verdict(points: Sequence[SketchPoint]) -> Iterator[Check]:
    """Claim 4, in terms of the gap: the smallest sketch of each data set, sketch by sketch."""
    for place, group in grouped(points, lambda p: p.place).items():
        size = min(p.size for p in group)
        ns, des = ({p.sketch: p.gap for p in group if (p.size, p.method) == (size, m)} for m in ("fedns", "fedndes"))
        better = all(des[sketch] <= NOISE * ns[sketch] for sketch in ns) and any(des[s] * NOISE < ns[s] for s in ns)
        first = next(iter(ns))
        measured = f"{place} k = {size}, {first}: FedNDES {gap_text(des[first])}, FedNS {gap_text(ns[first])}"
        yield Check(place, better, measured)


def threshold_text(points: Sequence[SketchPoint]) -> str:
    """Between which m k / d_lambda success begins."""
    few, least = _threshold(points)
    return f"all FedNS runs with m k > {few:.1f} d_λ reach {GOOD_GAP:g}, the smallest m k that does is {least:.1f} d_λ"


def _threshold(points: Sequence[SketchPoint]) -> tuple[float, float]:
    """The largest m k / d_lambda of a FedNS run that failed (0 where none did), and the smallest of one that did not."""
    sketched = [p for p in points if p.method == "fedns"]
    failed = [p.rows_per_dimension for p in sketched if p.found.final_gap > GOOD_GAP]
    done = [p.rows_per_dimension for p in sketched if p.found.final_gap <= GOOD_GAP]
    return max(failed, default=0.0), min(done, default=0.0)


def _points(case: CaseRuns, known: Sequence[Dimension]) -> list[SketchPoint]:
    dimension = dimension_of(known, case.spec.dataset, case.spec.scale)
    columns = next((d.columns for d in known if d.dataset == case.spec.dataset), 0)
    found = []
    for typed, measured in case.methods.items():
        method, _, rest = typed.partition(":")
        settings = dict(part.split("=") for part in rest.split(";")) if rest else {}
        if "sketch_size" in settings and dimension is not None:
            size = int(settings["sketch_size"])
            found.append(SketchPoint(case, method, settings["sketch"], size, measured, columns, dimension))
    return found


def _chart(case: CaseRuns, points: Sequence[SketchPoint]) -> Chart:
    lines = []
    for (method, sketch), row in grouped(sorted(points, key=lambda p: p.size), lambda p: (p.method, p.sketch)).items():
        ends = [[max(DRAWN_FLOOR, g[: ROUNDS_SHOWN + 1][-1]) for g in map(MethodRuns.gaps, p.found.runs)] for p in row]
        x = {"k": [float(p.size) for p in row], "rows": [p.rows_per_dimension for p in row]}
        lines.append(Curve.over(f"{method}, {sketch}", x, [p.gap for p in row], ends))
    return Chart(
        f"figure2_{case.spec.dataset}_{case.clients}",
        f"{case.spec.dataset}, {case.clients} clients: gap after {ROUNDS_SHOWN} rounds",
        "Lines are medians over trials, bands reach from the smallest to the largest; runs stop at 1e-12.",
        {"k": Scale("sketch size k", logarithmic=True), "rows": Scale("m k / d_λ", logarithmic=True)},
        Scale("suboptimality F(w) − F*", logarithmic=True),
        lines,
        level=CLOSE_GAP,
    )


def _row(p: SketchPoint) -> dict[str, str]:
    return {
        "data set": p.place,
        "method": p.method,
        "sketch": p.sketch,
        "k": str(p.size),
        "m k / d_λ": f"{p.rows_per_dimension:.1f}",
        f"gap after {ROUNDS_SHOWN} rounds": gap_text(p.gap),
        f"rounds to {CLOSE_GAP:g}": rounds_or_more(p.found, CLOSE_GAP),
    }
