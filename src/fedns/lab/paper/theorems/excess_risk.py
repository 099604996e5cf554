"""Theorem 3: the excess risk of federated kernel ridge regression by the number of samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.types import FloatArray
from fedns.lab.paper.part import Claim, Findings, Part, Table, claim_by_numbers, table_of_rows, verdicts_on
from fedns.lab.paper.theorems.known_kernel import FEATURES, KnownKernel, exact_solution
from fedns.lab.paper.theorems.measure import StepsObserver, fit_power
from fedns.methods.fedndes import FedNDES
from fedns.methods.fedns import FedNS
from fedns.numerics.linalg import single_threaded_blas
from fedns.reports.charts import Chart, Curve, Scale, grouped
from fedns.simulation.simulator import simulate
from fedns.sketches import SRHT

CLIENTS = 8
KERNELS = (KnownKernel(1 / 2, 1 / 2), KnownKernel(3 / 4, 1 / 3), KnownKernel(1 / 2, 2 / 3))
POOLED, NS, NDES, SHARED = "pooled KRR", "FedNS, k = M", "FedNDES, k = N^a", "FedNDES, m k = N^a"
METHODS = (POOLED, NS, NDES, SHARED)
NEARLY = 1.05  # times the pooled risk: near enough to count as there
SLOPE_TOLERANCE = 0.05  # beside two standard errors: what lower-order terms do to a slope over these N
LARGEST_ERROR = 0.05  # a slope that is less certain than this does not get the benefit of it
RISK_TOLERANCE = 1.1  # times the pooled risk


@dataclass(frozen=True, eq=False)
class RiskCurve:
    """Excess risks of one method on one kernel."""

    kernel: KnownKernel
    method: str
    samples: list[int]
    risks: FloatArray  # (seeds, sample sizes)
    needed: FloatArray  # rounds until nearly the pooled risk, infinite where T are not enough: (seeds, sample sizes)
    dimensions: FloatArray  # empirical effective dimensions: (seeds, sample sizes)

    @property
    def slope(self) -> float:
        """The exponent of N in the mean risk."""
        return fit_power(self.samples, self.risks.mean(axis=0)).exponent

    @property
    def slope_error(self) -> float:
        """Its standard error, by leaving out one draw of the data at a time."""
        draws = len(self.risks)
        without = [fit_power(self.samples, np.delete(self.risks, i, axis=0).mean(axis=0)).exponent for i in range(draws)]
        return float(np.sqrt((draws - 1) * np.var(without)))


def theorem3(quick: bool, say: Callable[[str], None]) -> Part:
    """Excess risks by N with the theorem's penalty, rounds and sketch sizes, beside pooled kernel ridge regression's."""
    powers = range(8, 13) if quick else range(8, 15)
    kernels, seeds = (KERNELS[:2], 8) if quick else (KERNELS, 30)
    curves: list[RiskCurve] = []
    for kernel in kernels:
        say(f"theorem 3: {kernel.label}, N from {2 ** powers[0]} to {2 ** powers[-1]}, {seeds} draws of the data")
        curves += measure(kernel, [2**power for power in powers], seeds)
    findings = findings_of(curves)
    return Part("Theorem 3", [], charts(curves), tables(curves), findings, verdicts_on(claims(findings), findings))


def measure(kernel: KnownKernel, samples: list[int], seeds: int, methods: tuple[str, ...] = METHODS) -> list[RiskCurve]:
    """One curve per method."""
    shape = (len(methods), seeds, len(samples))
    risks, needed, dimensions = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    with single_threaded_blas():
        for seed in range(seeds):
            for place, count in enumerate(samples):
                risks[:, seed, place], needed[:, seed, place], dimensions[:, seed, place] = _once(
                    kernel, count, seed, methods
                )
    return [RiskCurve(kernel, name, samples, risks[i], needed[i], dimensions[i]) for i, name in enumerate(methods)]


def _once(kernel: KnownKernel, samples: int, seed: int, methods: tuple[str, ...]) -> tuple[list[float], list[float], float]:
    """Final risks and rounds needed of every method on one draw of the data, and its effective dimension."""
    problem, shards = kernel.draw(samples, CLIENTS, seed)
    optimum, dimension = exact_solution(problem, shards)
    pooled = kernel.excess_risk(optimum.coefficients)
    risks, needed = [], []
    for name in methods:
        path = [pooled]
        if name != POOLED:
            watcher = StepsObserver()
            simulate(
                _method(name, kernel.dimension_power(samples)),
                problem,
                shards,
                rounds=kernel.rounds(samples),
                seed=seed,
                optimum=optimum,
                threads=1,
                observers=[watcher],
            )
            path = [kernel.excess_risk(w) for w in watcher.coefficients]
        far = [t for t, risk in enumerate(path) if risk > NEARLY * pooled]
        risks.append(path[-1])
        needed.append(float("inf") if far and far[-1] == len(path) - 1 else float(far[-1] + 1 if far else 0))
    return risks, needed, dimension


def _method(name: str, power: float) -> Algorithm:
    if name == NS:
        return FedNS(sketch=SRHT(FEATURES))
    k = math.ceil(power if name == NDES else power / CLIENTS)
    return FedNDES(sketch=SRHT(k), second_size=k, decrement_tolerance=0.0)


def findings_of(curves: list[RiskCurve]) -> dict[str, float]:
    """Slopes of every curve, and over all kernels what speaks most against the theorem."""
    findings: dict[str, float] = {}
    for short, method in (("krr", POOLED), ("fedns", NS), ("fedndes", NDES), ("shared", SHARED)):
        own = [curve for curve in curves if curve.method == method]
        for curve in own:
            findings[f"slope_{short} ({curve.kernel.label})"] = curve.slope
            findings[f"slope_error_{short} ({curve.kernel.label})"] = curve.slope_error
        findings[f"slower_{short}"] = max(curve.slope - curve.kernel.rate for curve in own)
        findings[f"slower_error_{short}"] = max(curve.slope_error for curve in own)
        findings[f"over_pooled_{short}"] = max(_over_pooled(curve, curves) for curve in own)
    for kernel in dict.fromkeys(curve.kernel for curve in curves):
        findings[f"claimed ({kernel.label})"] = kernel.rate
    ratios = np.concatenate([_dimension_ratios(curve).ravel() for curve in curves])
    findings["smallest_dimension_ratio"], findings["largest_dimension_ratio"] = float(ratios.min()), float(ratios.max())
    efficient = [curve for curve in curves if curve.method == NDES]
    findings["rows_over_dimension"] = min(float(_rows_over_dimension(curve).min()) for curve in efficient)
    return findings


def _rows_over_dimension(curve: RiskCurve) -> FloatArray:
    """m k / d_lambda for k = N^a, by sample size."""
    rows = np.array([CLIENTS * math.ceil(curve.kernel.dimension_power(count)) for count in curve.samples])
    return np.asarray(rows / curve.dimensions.mean(axis=0))


def _over_pooled(curve: RiskCurve, curves: list[RiskCurve]) -> float:
    """The mean risk over the pooled one, at the sample size where it is largest."""
    pooled = next(other for other in curves if other.kernel == curve.kernel and other.method == POOLED)
    return float((curve.risks.mean(axis=0) / pooled.risks.mean(axis=0)).max())


def _dimension_ratios(curve: RiskCurve) -> FloatArray:
    powers = np.array([curve.kernel.dimension_power(count) for count in curve.samples])
    return np.asarray(curve.dimensions / powers)


def claims(f: Findings) -> Iterator[Claim]:
    """The claims; their evidence names the kernels that were measured."""
    # Where it holds for k = N^a at each client but not for m k = N^a, FedNDES holds by its clients' number.
    yield claim_by_numbers(
        "Theorem 3, FedNDES",
        "with k = Ω(N^(γ/(2r+γ))) and T = (2r/(2r+γ)) log N rounds the excess risk is O(N^(-2r/(2r+γ)))",
        lambda f: _as_claimed(f, "fedndes") and _as_claimed(f, "shared"),
        f"{_slopes(f, 'fedndes')}; at most {{over_pooled_fedndes:.3f}} times the risk of pooled kernel ridge "
        "regression; with m k = N^(γ/(2r+γ)), what one client would send, {over_pooled_shared:.1f} times",
        lambda f: _as_claimed(f, "fedndes"),
        "all clients' rows together, m k, are some times d_λ, here at least {rows_over_dimension:.1f}",
    )
    yield claim_by_numbers(
        "Theorem 3, FedNS",
        "with k = Ω(M) and T = (2r/(2r+γ)) log N rounds the excess risk is O(N^(-2r/(2r+γ)))",
        lambda f: _as_claimed(f, "fedns"),
        f"{_slopes(f, 'fedns')}; at most {{over_pooled_fedns:.3f}} times the risk of pooled kernel ridge regression",
    )
    yield claim_by_numbers(
        "Theorem 3, proof",
        "the empirical effective dimension is between 1/3 and 3 times N^(γ/(2r+γ))",
        lambda f: f["smallest_dimension_ratio"] >= 1 / 3 and f["largest_dimension_ratio"] <= 3,
        "between {smallest_dimension_ratio:.2f} and {largest_dimension_ratio:.2f} times it on these kernels; a constant Q² "
        "of the capacity condition is left out",
    )


def _as_claimed(f: Findings, short: str) -> bool:
    """Say whether the risk falls at least as fast as claimed, and is nearly the pooled one."""
    allowed = SLOPE_TOLERANCE + 2 * min(f[f"slower_error_{short}"], LARGEST_ERROR)
    return f[f"slower_{short}"] <= allowed and f[f"over_pooled_{short}"] <= RISK_TOLERANCE


def _slopes(f: Findings, short: str) -> str:
    kernels = [key.removeprefix("claimed ") for key in f if key.startswith("claimed ")]
    return "exponents " + "; ".join(
        f"{kernel}: {f[f'slope_{short} {kernel}']:.3f} ± {f[f'slope_error_{short} {kernel}']:.3f}, "
        f"claimed {f[f'claimed {kernel}']:.3f}, pooled {f[f'slope_krr {kernel}']:.3f}"
        for kernel in kernels
    )


def tables(curves: Sequence[RiskCurve]) -> list[Table]:
    """Exponents by method, and the risks that they are fitted to at both ends."""
    return [
        table_of_rows("Theorem 3: exponents of N in the excess risk", map(_slope_row, curves)),
        table_of_rows("Theorem 3: smallest and largest sample", _risk_rows(curves)),
    ]


def _slope_row(curve: RiskCurve) -> dict[str, str]:
    expected = [curve.kernel.expected_risk(count) for count in curve.samples]
    return {
        "kernel": curve.kernel.label,
        "method": curve.method,
        "fitted exponent": f"{curve.slope:.3f} ± {curve.slope_error:.3f}",
        "claimed": f"{curve.kernel.rate:.3f}",
        "by bias and variance": f"{fit_power(curve.samples, expected).exponent:.3f}",
    }


def _risk_rows(curves: Sequence[RiskCurve]) -> Iterator[dict[str, str]]:
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


def charts(curves: Sequence[RiskCurve]) -> list[Chart]:
    """Risks by samples, for every kernel."""
    by_kernel = grouped(curves, lambda curve: curve.kernel)
    return [_chart(number, own) for number, own in enumerate(by_kernel.values(), start=1)]


def _chart(number: int, curves: Sequence[RiskCurve]) -> Chart:
    kernel, samples = curves[0].kernel, [float(count) for count in curves[0].samples]
    lines = []
    for curve in curves:
        mean = curve.risks.mean(axis=0)
        error = curve.risks.std(axis=0, ddof=1) / np.sqrt(len(curve.risks))
        label = f"{curve.method}: {curve.slope:.2f}"
        lines.append(Curve(label, {"N": samples}, mean.tolist(), (mean - error).tolist(), (mean + error).tolist()))
    middle = len(samples) // 2
    anchor = float(curves[0].risks[:, middle].mean())
    claimed = [anchor * (count / samples[middle]) ** kernel.rate for count in samples]
    lines.append(Curve(f"claimed: {kernel.rate:.2f}", {"N": samples}, claimed, dashed=True))
    return Chart(
        f"theorem3_risk_{number}",
        f"Excess risk by samples: {kernel.label}",
        "Means over draws of the data, with standard errors; numbers are fitted exponents of N, a is γ/(2r+γ).",
        {"N": Scale("samples N", logarithmic=True)},
        Scale("excess risk", logarithmic=True),
        lines,
    )
