"""Theorem 3: the excess risk of federated kernel ridge regression by the number of samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.lab.paper.part import Part
from fedns.lab.paper.theorems.excess_risk_report import charts, tables, verdicts
from fedns.lab.paper.theorems.known_kernel import FEATURES, KnownKernel, exact_solution
from fedns.lab.paper.theorems.measure import Watcher, fit_power
from fedns.methods.fedndes import FedNDES
from fedns.methods.fedns import FedNS
from fedns.numerics.linalg import FloatArray, single_threaded_blas
from fedns.simulation.simulator import simulate
from fedns.sketches import SRHT

CLIENTS = 8
KERNELS = (KnownKernel(1 / 2, 1 / 2), KnownKernel(3 / 4, 1 / 3), KnownKernel(1 / 2, 2 / 3))
POOLED, NS, NDES, SHARED = "pooled KRR", "FedNS, k = M", "FedNDES, k = N^a", "FedNDES, m k = N^a"
METHODS = (POOLED, NS, NDES, SHARED)
NEARLY = 1.05  # times the pooled risk: near enough to count as there


@dataclass(frozen=True, eq=False)
class Curve:
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
    curves: list[Curve] = []
    for kernel in kernels:
        say(f"theorem 3: {kernel.label}, N from {2 ** powers[0]} to {2 ** powers[-1]}, {seeds} draws of the data")
        curves += measure(kernel, [2**power for power in powers], seeds)
    findings = summarise(curves)
    return Part("Theorem 3", [], charts(curves), tables(curves), findings, verdicts(findings))


def measure(kernel: KnownKernel, samples: list[int], seeds: int, methods: tuple[str, ...] = METHODS) -> list[Curve]:
    """One curve per method."""
    shape = (len(methods), seeds, len(samples))
    risks, needed, dimensions = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    with single_threaded_blas():
        for seed in range(seeds):
            for place, count in enumerate(samples):
                risks[:, seed, place], needed[:, seed, place], dimensions[:, seed, place] = _once(
                    kernel, count, seed, methods
                )
    return [Curve(kernel, name, samples, risks[i], needed[i], dimensions[i]) for i, name in enumerate(methods)]


def _once(kernel: KnownKernel, samples: int, seed: int, methods: tuple[str, ...]) -> tuple[list[float], list[float], float]:
    """Final risks and rounds needed of every method on one draw of the data, and its effective dimension."""
    problem, shards = kernel.draw(samples, CLIENTS, seed)
    optimum, dimension = exact_solution(problem, shards)
    pooled = kernel.excess_risk(optimum.coefficients)
    risks, needed = [], []
    for name in methods:
        path = [pooled]
        if name != POOLED:
            watcher = Watcher()
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


def summarise(curves: list[Curve]) -> dict[str, float]:
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


def _rows_over_dimension(curve: Curve) -> FloatArray:
    """m k / d_lambda for k = N^a, by sample size."""
    rows = np.array([CLIENTS * math.ceil(curve.kernel.dimension_power(count)) for count in curve.samples])
    return np.asarray(rows / curve.dimensions.mean(axis=0))


def _over_pooled(curve: Curve, curves: list[Curve]) -> float:
    """The mean risk over the pooled one, at the sample size where it is largest."""
    pooled = next(other for other in curves if other.kernel == curve.kernel and other.method == POOLED)
    return float((curve.risks.mean(axis=0) / pooled.risks.mean(axis=0)).max())


def _dimension_ratios(curve: Curve) -> FloatArray:
    powers = np.array([curve.kernel.dimension_power(count) for count in curve.samples])
    return np.asarray(curve.dimensions / powers)
