"""Theorem 1: how much nearer the optimum a round of FedNS comes, by sketch size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedns.lab.paper.part import Part
from fedns.lab.paper.theorems.contraction_report import charts, tables, verdicts
from fedns.lab.paper.theorems.measure import Path, PowerLaw, fit_power, follow_seeds, geometric_mean
from fedns.lab.paper.theorems.settings import FloatArray, Setting, has_phishing, logistic_setting, ridge_setting
from fedns.methods.fedns import FedNS
from fedns.sketches import SRHT

MULTIPLES = (1, 3, 6, 12, 24, 48)  # of d_lambda, in rows of all clients together
FITTED_FROM = 6  # below it the inverse of a sketched Hessian is biased, and factors are above the square-root law
GROWING_FROM = 3  # rows in round 1, in units of d_lambda
ROUNDS = 60


@dataclass(frozen=True, eq=False)
class Case:
    """FedNS with one sketch size on one setting, over seeds."""

    setting: Setting
    form: str  # "gram", "sum" (one sketch for all clients, as in the proof) or "growing"
    k: int  # in round 1
    paths: list[Path]

    @property
    def size(self) -> int:
        """Rows of the sketch of all the data that the server ends up with."""
        return self.k if self.form == "sum" else self.k * self.setting.clients

    @property
    def predicted(self) -> float:
        return float(np.sqrt(self.setting.local_dimension / self.size))

    @property
    def converged(self) -> float:
        """The share of seeds that came to a hundred-millionth of the first distance."""
        return float(np.mean([path.hessian_distances[-1] <= 1e-8 * path.hessian_distances[0] for path in self.paths]))

    @cached_property
    def samples(self) -> tuple[FloatArray, FloatArray]:
        """Rounds t and factors of all seeds, where they are neither Newton's own error nor rounding."""
        masks = [path.usable(self.setting.local) for path in self.paths]
        rounds = np.concatenate([1.0 + np.flatnonzero(mask) for mask in masks])
        return rounds, np.concatenate([path.factors[mask] for path, mask in zip(self.paths, masks, strict=True)])

    @property
    def factor(self) -> float:
        return geometric_mean(self.samples[1]) if self.converged == 1.0 else float("nan")

    @property
    def trend(self) -> PowerLaw:
        """factor = c log2(1 + t)^exponent: exponent 0 is linear convergence, -1 what Theorem 1 states."""
        rounds, factors = self.samples
        return fit_power(np.log2(1.0 + rounds), factors)


def theorem1(quick: bool, say: Callable[[str], None]) -> Part:
    """Contraction factors with fixed, growing and full sketch sizes, against those claimed."""
    seeds = 3 if quick else 20
    cases: list[Case] = []
    for setting in _settings(quick):
        say(f"theorem 1: {setting.name}, {setting.clients} clients, d_lambda {setting.dimension:.1f}, M {setting.features}")
        cases += measure(setting, seeds)
    findings = summarise(cases)
    return Part("Theorem 1", [], charts(cases), tables(cases), findings, verdicts(findings))


def _settings(quick: bool) -> list[Setting]:
    clients = (10, 40) if has_phishing() else (4, 10)
    chosen = clients[1:] if quick else clients
    return [make(count) for make, counts in ((logistic_setting, chosen), (ridge_setting, (40,))) for count in counts]


def measure(setting: Setting, seeds: int) -> list[Case]:
    """Every sketch size and form on one setting."""
    d, m, M = setting.dimension, setting.clients, setting.features
    # Above an eighth of a client's rows, drawing them without replacement makes a sketch better than the law.
    sizes = {k for k in (max(1, round(multiple * d / m)) for multiple in MULTIPLES) if 8 * k <= setting.rows_padded}
    sizes |= {k for k in (M, 2 * M) if 2 * k <= setting.rows_padded}
    wanted = [("gram", k) for k in sorted(sizes)]
    wanted += [("sum", round(multiple * d)) for multiple in MULTIPLES if multiple * d <= setting.rows_padded]
    wanted += [("growing", max(1, round(GROWING_FROM * d / m)))]
    return [Case(setting, form, k, follow_seeds(setting, _method(form, k), ROUNDS, seeds)) for form, k in wanted]


def _method(form: str, k: int) -> FedNS:
    if form == "growing":
        return FedNS(sketch=SRHT(k), growth="log2")
    return FedNS(sketch=SRHT(k), aggregation="sum" if form == "sum" else "gram")


def size_law(cases: list[Case], form: str, less: float = 0.0) -> PowerLaw:
    """factor = c (rows / d_lambda - less)^exponent over the fixed sizes of one form.

    A sketched Hessian's inverse is too large by rows / (rows - d_lambda) on average, so that less = 1 takes the bias out.
    """
    fitted = [case for case in cases if case.form == form and _is_fitted(case)]
    rows = [case.size / case.setting.local_dimension - less for case in fitted]
    return fit_power(rows, [case.factor for case in fitted])


def _is_fitted(case: Case) -> bool:
    of_client_rows = 1 if case.form == "sum" else 8
    return (
        case.converged == 1.0
        and case.size >= 0.95 * FITTED_FROM * case.setting.dimension
        and of_client_rows * case.k <= case.setting.rows_padded
    )


def summarise(cases: list[Case]) -> dict[str, float]:
    """The numbers that decide; where settings differ, the one that speaks most against what is claimed of it here."""
    gram, summed = size_law(cases, "gram"), size_law(cases, "sum")
    full = [case for case in cases if case.form == "gram" and case.k >= case.setting.features]
    fixed = [case for case in cases if case.form != "growing" and case.converged == 1.0]
    growing = [case.trend.exponent for case in cases if case.form == "growing" and case.converged == 1.0]
    smallest = min((case for case in fixed if case.form == "gram"), key=lambda case: case.k / case.setting.features)
    smallest_sum = min((case for case in fixed if case.form == "sum"), key=lambda case: case.k / case.setting.dimension)
    return {
        "trend_fixed": float(np.median([case.trend.exponent for case in fixed])),
        "trend_full": float(np.median([case.trend.exponent for case in full])) if full else float("nan"),
        "full_sizes": float(len(full)),
        "factor_full": max((case.factor for case in full), default=float("nan")),
        "trend_growing": max(growing, default=float("nan")),
        "exponent_gram": gram.exponent,
        "constant_gram": gram.constant,
        "exponent_gram_unbiased": size_law(cases, "gram", less=1.0).exponent,
        "exponent_sum": summed.exponent,
        "constant_sum": summed.constant,
        "clients_worth": _clients_worth(cases),
        "smallest_k_over_features": smallest.k / smallest.setting.features,
        "smallest_k": float(smallest.k),
        "smallest_rows_over_dimension": smallest.size / smallest.setting.dimension,
        "smallest_sum_over_dimension": smallest_sum.k / smallest_sum.setting.dimension,
        "largest_over_bound": max(_over_bound(case) for case in cases if case.form == "growing" or case in full),
        "smallest_condition": min(case.setting.condition for case in cases),
        "smallest_useful_digits": min(case.setting.condition for case in cases) / math.log(10),
        "start_over_radius": max(_start_over_radius(case) for case in fixed),
    }


def _clients_worth(cases: list[Case]) -> float:
    """How many rows of one sketch for all a row per client is worth, in units of m, by the factors of both forms."""
    ratios = []
    for one in (case for case in cases if case.form == "sum" and _is_fitted(case)):
        same = [case for case in cases if case.setting is one.setting and case.form == "gram" and _is_fitted(case)]
        ratios += [(one.factor / case.factor) ** 2 * one.k / case.k / case.setting.clients for case in same]
    return geometric_mean(ratios)


def _over_bound(case: Case) -> float:
    """The largest of |w_t - w*| / |w_(t-1) - w*| in units of the theorem's (beta / gamma) / log(1 + t)."""
    worst = 0.0
    for path in case.paths:
        mask = path.usable(1.0)
        factors = (path.distances[1:] / path.distances[:-1])[mask]
        bound = case.setting.condition / np.log(2.0 + np.flatnonzero(mask))
        worst = max(worst, float((factors / bound).max(initial=0.0)))
    return worst


def _start_over_radius(case: Case) -> float:
    """How many times farther than Theorem 1's condition allows the start at 0 is; 0 where any start will do."""
    return float(np.linalg.norm(case.setting.optimum.coefficients) / case.setting.safe_radius)
