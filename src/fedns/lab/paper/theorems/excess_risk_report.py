"""Theorem 3 in figures, tables and words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedns.lab.paper.part import Findings, NumberedClaim, Table, Verdict, table_of
from fedns.lab.paper.theorems.measure import fit_power
from fedns.reports.charts import Chart, Line, Scale

if TYPE_CHECKING:
    from fedns.lab.paper.theorems.excess_risk import Curve

SLOPE_TOLERANCE = 0.05  # beside two standard errors: what lower-order terms do to a slope over these N
LARGEST_ERROR = 0.05  # a slope that is less certain than this does not get the benefit of it
RISK_TOLERANCE = 1.1  # times the pooled risk


def verdicts(findings: Findings) -> list[Verdict]:
    """What the numbers say about Theorem 3, by the thresholds above."""
    return [claim.verdict(findings) for claim in _claims(findings)]


def _claims(f: Findings) -> Iterator[NumberedClaim]:
    # Where it holds for k = N^a at each client but not for m k = N^a, FedNDES holds by its clients' number.
    yield NumberedClaim(
        "Theorem 3, FedNDES",
        "with k = Ω(N^(γ/(2r+γ))) and T = (2r/(2r+γ)) log N rounds the excess risk is O(N^(-2r/(2r+γ)))",
        lambda f: _as_claimed(f, "fedndes") and _as_claimed(f, "shared"),
        f"{_slopes(f, 'fedndes')}; at most {{over_pooled_fedndes:.3f}} times the risk of pooled kernel ridge "
        "regression; with m k = N^(γ/(2r+γ)), what one client would send, {over_pooled_shared:.1f} times",
        lambda f: _as_claimed(f, "fedndes"),
        "all clients' rows together, m k, are some times d_λ, here at least {rows_over_dimension:.1f}",
    )
    yield NumberedClaim(
        "Theorem 3, FedNS",
        "with k = Ω(M) and T = (2r/(2r+γ)) log N rounds the excess risk is O(N^(-2r/(2r+γ)))",
        lambda f: _as_claimed(f, "fedns"),
        f"{_slopes(f, 'fedns')}; at most {{over_pooled_fedns:.3f}} times the risk of pooled kernel ridge regression",
    )
    yield NumberedClaim(
        "Theorem 3, proof",
        "the empirical effective dimension is between 1/3 and 3 times N^(γ/(2r+γ))",
        lambda f: f["smallest_dimension_ratio"] >= 1 / 3 and f["largest_dimension_ratio"] <= 3,
        "between {smallest_dimension_ratio:.2f} and {largest_dimension_ratio:.2f} times it on these kernels; a constant Q² "
        "of the capacity condition is left out",
    )


def _as_claimed(f: Findings, short: str) -> bool:
    """Whether the risk falls at least as fast as claimed, and is nearly the pooled one."""
    allowed = SLOPE_TOLERANCE + 2 * min(f[f"slower_error_{short}"], LARGEST_ERROR)
    return f[f"slower_{short}"] <= allowed and f[f"over_pooled_{short}"] <= RISK_TOLERANCE


def _slopes(f: Findings, short: str) -> str:
    kernels = [key.removeprefix("claimed ") for key in f if key.startswith("claimed ")]
    return "exponents " + "; ".join(
        f"{kernel}: {f[f'slope_{short} {kernel}']:.3f} ± {f[f'slope_error_{short} {kernel}']:.3f}, "
        f"claimed {f[f'claimed {kernel}']:.3f}, pooled {f[f'slope_krr {kernel}']:.3f}"
        for kernel in kernels
    )


def tables(curves: Sequence[Curve]) -> list[Table]:
    return [
        table_of("Theorem 3: exponents of N in the excess risk", map(_slope_row, curves)),
        table_of("Theorem 3: smallest and largest sample", _risk_rows(curves)),
    ]


def _slope_row(curve: Curve) -> dict[str, str]:
    expected = [curve.kernel.expected_risk(count) for count in curve.samples]
    return {
        "kernel": curve.kernel.label,
        "method": curve.method,
        "fitted exponent": f"{curve.slope:.3f} ± {curve.slope_error:.3f}",
        "claimed": f"{curve.kernel.rate:.3f}",
        "by bias and variance": f"{fit_power(curve.samples, expected).exponent:.3f}",
    }


def _risk_rows(curves: Sequence[Curve]) -> Iterator[dict[str, str]]:
    for curve in curves:
        kernel = curve.kernel
        pooled = next(other for other in curves if other.kernel == kernel and other.method == curves[0].method)
        for place in (0, len(curve.samples) - 1):
            count, needed = curve.samples[place], np.median(curve.needed[:, place])
            risk = curve.risks[:, place].mean()
            yield {
                "kernel": kernel.label,
                "N": str(count),
                "λ": f"{kernel.strength(count):.4f}",
                "T": str(kernel.rounds(count)),
                "N^a": f"{kernel.dimension_power(count):.1f}",
                "d_λ": f"{curve.dimensions[:, place].mean():.1f}",
                "method": curve.method,
                "excess risk": f"{risk:.2e}",
                "of pooled": f"{risk / pooled.risks[:, place].mean():.3f}",
                "rounds needed": f"{needed:.0f}" if np.isfinite(needed) else "more than T",
            }


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
