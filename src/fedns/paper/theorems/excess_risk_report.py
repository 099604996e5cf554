"""Theorem 3 in figures, tables and words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedns.paper.verdict import Outcome, Verdict
from fedns.reporting.charts import Chart, Line, Scale

if TYPE_CHECKING:
    from fedns.paper.theorems.excess_risk import Curve

Table = tuple[str, list[str], list[list[str]]]
SLOPE_TOLERANCE = 0.05  # beside two standard errors: what lower-order terms do to a slope over these N
LARGEST_ERROR = 0.05  # a slope that is less certain than this does not get the benefit of it
RISK_TOLERANCE = 1.1  # times the pooled risk


def verdicts(findings: dict[str, float]) -> list[Verdict]:
    """What the numbers say about Theorem 3, by the thresholds above."""
    return [_efficient(findings), _full(findings), _dimension(findings)]


def _efficient(f: dict[str, float]) -> Verdict:
    """FedNDES; where it holds for k = N^a at each client but not for m k = N^a, it holds by its clients' number."""
    outcome: Outcome = "does not hold"
    if _as_claimed(f, "fedndes"):
        outcome = "holds" if _as_claimed(f, "shared") else "holds if"
    rows = f["rows_over_dimension"]
    return Verdict(
        "Theorem 3, FedNDES",
        "with k = Ω(N^(γ/(2r+γ))) and T = (2r/(2r+γ)) log N rounds the excess risk is O(N^(-2r/(2r+γ)))",
        outcome,
        f"all clients' rows together, m k, are some times d_λ, here at least {rows:.1f}" if outcome == "holds if" else "",
        f"{_slopes(f, 'fedndes')}; at most {f['over_pooled_fedndes']:.3f} times the risk of pooled kernel ridge regression; "
        f"with m k = N^(γ/(2r+γ)), what one client would send, {f['over_pooled_shared']:.1f} times",
    )


def _full(f: dict[str, float]) -> Verdict:
    return Verdict(
        "Theorem 3, FedNS",
        "with k = Ω(M) and T = (2r/(2r+γ)) log N rounds the excess risk is O(N^(-2r/(2r+γ)))",
        "holds" if _as_claimed(f, "fedns") else "does not hold",
        "",
        f"{_slopes(f, 'fedns')}; at most {f['over_pooled_fedns']:.3f} times the risk of pooled kernel ridge regression",
    )


def _as_claimed(f: dict[str, float], short: str) -> bool:
    """Whether the risk falls at least as fast as claimed, and is nearly the pooled one."""
    allowed = SLOPE_TOLERANCE + 2 * min(f[f"slower_error_{short}"], LARGEST_ERROR)
    return f[f"slower_{short}"] <= allowed and f[f"over_pooled_{short}"] <= RISK_TOLERANCE


def _slopes(f: dict[str, float], short: str) -> str:
    kernels = [key.removeprefix("claimed ") for key in f if key.startswith("claimed ")]
    return "exponents " + "; ".join(
        f"{kernel}: {f[f'slope_{short} {kernel}']:.3f} ± {f[f'slope_error_{short} {kernel}']:.3f}, "
        f"claimed {f[f'claimed {kernel}']:.3f}, pooled {f[f'slope_krr {kernel}']:.3f}"
        for kernel in kernels
    )


def _dimension(f: dict[str, float]) -> Verdict:
    low, high = f["smallest_dimension_ratio"], f["largest_dimension_ratio"]
    return Verdict(
        "Theorem 3, proof",
        "the empirical effective dimension is between 1/3 and 3 times N^(γ/(2r+γ))",
        "holds" if low >= 1 / 3 and high <= 3 else "does not hold",
        "",
        f"between {low:.2f} and {high:.2f} times it on these kernels; a constant Q² of the capacity condition is left out",
    )


def tables(curves: Sequence[Curve]) -> list[Table]:
    return [_slope_table(curves), _risk_table(curves)]


def _slope_table(curves: Sequence[Curve]) -> Table:
    headings = ["kernel", "method", "fitted exponent", "claimed", "by bias and variance"]
    rows = []
    for curve in curves:
        expected = [curve.kernel.expected_risk(count) for count in curve.samples]
        formula = np.polyfit(np.log(curve.samples), np.log(expected), 1)[0]
        rows.append(
            [
                curve.kernel.label,
                curve.method,
                f"{curve.slope:.3f} ± {curve.slope_error:.3f}",
                f"{curve.kernel.rate:.3f}",
                f"{formula:.3f}",
            ]
        )
    return "Theorem 3: exponents of N in the excess risk", headings, rows


def _risk_table(curves: Sequence[Curve]) -> Table:
    headings = ["kernel", "N", "λ", "T", "N^a", "d_λ", "method", "excess risk", "of pooled", "rounds needed"]
    rows = []
    for curve in curves:
        pooled = next(other for other in curves if other.kernel == curve.kernel and other.method == curves[0].method)
        for place in (0, len(curve.samples) - 1):
            count, needed = curve.samples[place], np.median(curve.needed[:, place])
            risk = curve.risks[:, place].mean()
            rows.append(
                [
                    curve.kernel.label,
                    str(count),
                    f"{curve.kernel.strength(count):.4f}",
                    str(curve.kernel.rounds(count)),
                    f"{curve.kernel.dimension_power(count):.1f}",
                    f"{curve.dimensions[:, place].mean():.1f}",
                    curve.method,
                    f"{risk:.2e}",
                    f"{risk / pooled.risks[:, place].mean():.3f}",
                    f"{needed:.0f}" if np.isfinite(needed) else "more than T",
                ]
            )
    return "Theorem 3: smallest and largest sample", headings, rows


def charts(curves: Sequence[Curve]) -> list[Chart]:
    kernels = list(dict.fromkeys(curve.kernel for curve in curves))
    return [_chart(number, [c for c in curves if c.kernel == kernel]) for number, kernel in enumerate(kernels, start=1)]


def _chart(number: int, curves: Sequence[Curve]) -> Chart:
    kernel, samples = curves[0].kernel, [float(count) for count in curves[0].samples]
    lines = []
    for curve in curves:
        mean = curve.risks.mean(axis=0)
        error = curve.risks.std(axis=0, ddof=1) / np.sqrt(len(curve.risks))
        label = f"{curve.method}: {curve.slope:.2f}"
        lines.append(Line(label, {"N": samples}, mean.tolist(), (mean - error).tolist(), (mean + error).tolist()))
    middle = len(samples) // 2
    anchor = float(curves[0].risks[:, middle].mean())
    claimed = [anchor * (count / samples[middle]) ** kernel.rate for count in samples]
    lines.append(Line(f"claimed: {kernel.rate:.2f}", {"N": samples}, claimed, dashed=True))
    return Chart(
        f"theorem3_risk_{number}",
        f"Excess risk by samples: {kernel.label}",
        "Means over draws of the data, with standard errors; numbers are fitted exponents of N, a is γ/(2r+γ).",
        {"N": Scale("samples N", logarithmic=True)},
        Scale("excess risk", logarithmic=True),
        lines,
    )
