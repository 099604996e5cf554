"""Theorem 1: how much nearer the optimum a round of FedNS comes, by sketch size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedns.core.types import FloatArray
from fedns.lab.paper.part import Part, Table, claim_by_numbers, table_of_rows, verdicts_on
from fedns.lab.paper.theorems.measure import Path, PowerLaw, fit_power, follow_seeds, geometric_mean
from fedns.lab.paper.theorems.settings import ROUNDING, Setting, has_phishing, logistic_setting, ridge_setting
from fedns.methods.fedns import FedNS
from fedns.reports.charts import Chart, Curve, Scale, grouped
from fedns.sketches import SRHT

MULTIPLES = (1, 3, 6, 12, 24, 48)  # of d_lambda, in rows of all clients together
FITTED_FROM = 6  # below it the inverse of a sketched Hessian is biased, and factors are above the square-root law
GROWING_FROM = 3  # rows in round 1, in units of d_lambda
ROUNDS = 60
SUPERLINEAR_BELOW = -0.5  # half way between a factor that stays and one that falls like 1 / log t
FULL_SKETCH_ABOVE = 0.5  # k / M from which "of the order of M" is granted
ONE_SKETCH_BELOW = 0.5  # rows of a client worth fewer than m / 2 rows of one sketch: Grams would be no better than the sum
CLAIMS = (
    claim_by_numbers(
        "Theorem 1, rate",
        "with k = Ω(M) rows |w_t - w*| / |w_(t-1) - w*| tends to 0: super-linear convergence",
        lambda f: f["trend_full"] < SUPERLINEAR_BELOW,
        "factor ∝ log(1+t)^s (claimed s = -1): in the median s = {trend_full:.2f} with k = M and 2M, where the factor "
        "is up to {factor_full:.3f}, and {trend_fixed:.2f} with any fixed k; at worst {trend_growing:.2f} with k growing "
        "like log²(1+t). A fixed k gives a factor of {constant_gram:.2f} (m k / d_λ)^{exponent_gram:.2f}, an exponent of "
        "{exponent_gram_unbiased:.2f} in m k - d_λ",
        lambda f: f["trend_growing"] < SUPERLINEAR_BELOW,
        "k grows like log²(1 + t)",
    ),
    claim_by_numbers(
        "Theorem 1, bound",
        "|w_t - w*| is at most (β/γ) / log(1+t) times |w_(t-1) - w*|",
        lambda f: f["largest_over_bound"] <= 1,
        "at most {largest_over_bound:.2g} of the bound in any round; but with β/γ of {smallest_condition:.0f} "
        "or more it promises a decrease only after 10^{smallest_useful_digits:.0f} rounds",
    ),
    claim_by_numbers(
        "Theorem 1, sketch size",
        "FedNS takes a sketch of k ≳ M rows from every client",
        lambda f: f["smallest_k_over_features"] >= FULL_SKETCH_ABOVE,
        "every seed converges with k = {smallest_k:.0f}, {smallest_k_over_features:.2f} of M, where m k is "
        "{smallest_rows_over_dimension:.1f} d_λ; summed as in the proof, k = {smallest_sum_over_dimension:.1f} d_λ will do",
    ),
    claim_by_numbers(
        "Theorem 1, proof",
        "FedNS is Newton's method with one sketch of k rows, the sum of the clients' sketches",
        lambda f: f["clients_worth"] < ONE_SKETCH_BELOW,
        "by its factors a row per client is worth {clients_worth:.2f} m rows of one sketch; "
        "exponents {exponent_gram:.2f} in m k and, for the sum, {exponent_sum:.2f} in k",
    ),
)


@dataclass(frozen=True, eq=False)
class FactorCase:
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
    cases: list[FactorCase] = []
    for setting in _settings(quick):
        say(f"theorem 1: {setting.name}, {setting.clients} clients, d_lambda {setting.dimension:.1f}, M {setting.features}")
        cases += measure(setting, seeds)
    findings = findings_of(cases)
    return Part("Theorem 1", [], charts(cases), tables(cases), findings, verdicts_on(CLAIMS, findings))


def _settings(quick: bool) -> list[Setting]:
    clients = (10, 40) if has_phishing() else (4, 10)
    chosen = clients[1:] if quick else clients
    return [make(count) for make, counts in ((logistic_setting, chosen), (ridge_setting, (40,))) for count in counts]


def measure(setting: Setting, seeds: int) -> list[FactorCase]:
    """Every sketch size and form on one setting."""
    d, m, M = setting.dimension, setting.clients, setting.features
    # Above an eighth of a client's rows, drawing them without replacement makes a sketch better than the law.
    sizes = {k for k in (max(1, round(multiple * d / m)) for multiple in MULTIPLES) if 8 * k <= setting.rows_padded}
    sizes |= {k for k in (M, 2 * M) if 2 * k <= setting.rows_padded}
    wanted = [("gram", k) for k in sorted(sizes)]
    wanted += [("sum", round(multiple * d)) for multiple in MULTIPLES if multiple * d <= setting.rows_padded]
    wanted += [("growing", max(1, round(GROWING_FROM * d / m)))]
    return [FactorCase(setting, form, k, follow_seeds(setting, _method(form, k), ROUNDS, seeds)) for form, k in wanted]


def _method(form: str, k: int) -> FedNS:
    if form == "growing":
        return FedNS(sketch=SRHT(k), growth="log2")
    return FedNS(sketch=SRHT(k), aggregation="sum" if form == "sum" else "gram")


def size_law(cases: list[FactorCase], form: str, less: float = 0.0) -> PowerLaw:
    """factor = c (rows / d_lambda - less)^exponent over the fixed sizes of one form.

    A sketched Hessian's inverse is too large by rows / (rows - d_lambda) on average, so that less = 1 takes the bias out.
    """
    fitted = [case for case in cases if case.form == form and _is_fitted(case)]
    rows = [case.size / case.setting.local_dimension - less for case in fitted]
    return fit_power(rows, [case.factor for case in fitted])


def _is_fitted(case: FactorCase) -> bool:
    of_client_rows = 1 if case.form == "sum" else 8
    return (
        case.converged == 1.0
        and case.size >= 0.95 * FITTED_FROM * case.setting.dimension
        and of_client_rows * case.k <= case.setting.rows_padded
    )


def findings_of(cases: list[FactorCase]) -> dict[str, float]:
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


def _clients_worth(cases: list[FactorCase]) -> float:
    """The rows of one sketch for all that a row per client is worth, in units of m, by the factors of both forms."""
    ratios = []
    for one in (case for case in cases if case.form == "sum" and _is_fitted(case)):
        same = [case for case in cases if case.setting is one.setting and case.form == "gram" and _is_fitted(case)]
        ratios += [(one.factor / case.factor) ** 2 * one.k / case.k / case.setting.clients for case in same]
    return geometric_mean(ratios)


def _over_bound(case: FactorCase) -> float:
    """The largest of |w_t - w*| / |w_(t-1) - w*| in units of the theorem's (beta / gamma) / log(1 + t)."""
    worst = 0.0
    for path in case.paths:
        mask = path.usable(1.0)
        factors = (path.distances[1:] / path.distances[:-1])[mask]
        bound = case.setting.condition / np.log(2.0 + np.flatnonzero(mask))
        worst = max(worst, float((factors / bound).max(initial=0.0)))
    return worst


def _start_over_radius(case: FactorCase) -> float:
    """The distance of the start at 0 in units of what Theorem 1's condition allows; 0 where any start will do."""
    return float(np.linalg.norm(case.setting.optimum.coefficients) / case.setting.safe_radius)


def tables(cases: Sequence[FactorCase]) -> list[Table]:
    """A row for every sketch size, and one for every setting."""
    return [
        table_of_rows("Theorem 1: contraction factors in the Hessian norm", map(_factors_row, cases)),
        table_of_rows("Theorem 1: what it asks for", map(_constants_row, _by_setting(cases))),
    ]


def _by_setting(cases: Sequence[FactorCase]) -> dict[Setting, list[FactorCase]]:
    return grouped(cases, lambda case: case.setting)


def _factors_row(case: FactorCase) -> dict[str, str]:
    known = case.converged == 1.0
    law = case.form != "growing" and known
    return {
        "problem": case.setting.name,
        "m": str(case.setting.clients),
        "form": case.form,
        "k": str(case.k) + (" log2²(1+t)" if case.form == "growing" else ""),
        "rows / d_λ": f"{case.size / case.setting.dimension:.1f}",
        "factor": f"{case.factor:.3f}" if law else "falling" if known else "-",
        "√(d/rows)": f"{case.predicted:.3f}" if case.form != "growing" else "-",
        "ratio": f"{case.factor / case.predicted:.2f}" if law else "-",
        "trend in log t": f"{case.trend.exponent:+.2f} ± {case.trend.error:.2f}" if known else "-",
        "converged": f"{case.converged:.0%}",
    }


def _constants_row(setting: Setting) -> dict[str, str]:
    return {
        "problem": setting.name,
        "m": str(setting.clients),
        "M": str(setting.features),
        "d_λ": f"{setting.dimension:.2f}",
        "d_λ at w*": f"{setting.local_dimension:.2f}",
        "β/γ": f"{setting.condition:.0f}",
        "bound < 1 after": f"10^{setting.condition / math.log(10):.0f} rounds",
        "start must be within": "any" if setting.quadratic else f"{setting.safe_radius:.1e}",
        "start at 0 is away": f"{np.linalg.norm(setting.optimum.coefficients):.1f}",
    }


def charts(cases: Sequence[FactorCase]) -> list[Chart]:
    """Distances and factors by round for every setting, and factors by sketch size for all."""
    drawn = []
    for number, (setting, all_sizes) in enumerate(_by_setting(cases).items(), start=1):
        own = [case for case in all_sizes if case.form != "sum" and case.converged == 1.0]
        starts = {case.k for case in own if case.form == "growing"}
        telling = [case for case in own if case.k in starts or case.k >= setting.features]
        drawn += [_distances(number, setting, own), _factors(number, setting, telling)]
    return [*drawn, _sizes(cases)]


def _distances(number: int, setting: Setting, cases: Sequence[FactorCase]) -> Chart:
    lines = []
    for case in cases:
        length = min(path.hessian_distances.size for path in case.paths)
        relative = np.array([path.hessian_distances[:length] / path.hessian_distances[0] for path in case.paths])
        relative = np.maximum(relative, ROUNDING / 1000)
        lines.append(_line(_label(case), np.arange(length), relative))
    return Chart(
        f"theorem1_distance_{number}",
        f"Distance to the optimum: {setting.label}",
        "Relative to the start, in the Hessian norm; spread over seeds. Straight lines are linear convergence.",
        {"rounds": Scale("rounds")},
        Scale("distance to the optimum", logarithmic=True),
        lines,
        level=ROUNDING,
    )


def _factors(number: int, setting: Setting, cases: Sequence[FactorCase]) -> Chart:
    lines = []
    for case in cases:
        rounds, factors = case.samples
        common = [t for t in np.unique(rounds) if (rounds == t).sum() == len(case.paths)]
        if not common:
            continue
        by_round = np.array([factors[rounds == t] for t in common]).T
        lines.append(_line(_label(case), np.array(common), by_round))
        if case.form == "growing":
            shape = 1.0 / np.log2(1.0 + np.array(common))
            # Claimed is the shape; its height is that of the measured mean.
            height = geometric_mean(by_round.reshape(-1)) / geometric_mean(shape)
            lines.append(Curve("∝ 1 / log(1+t)", {"rounds": common}, (height * shape).tolist(), dashed=True))
    return Chart(
        f"theorem1_factors_{number}",
        f"Contraction factors: {setting.label}",
        "Distance after a round over distance before it, without the first rounds and those at rounding; geometric means.",
        {"rounds": Scale("round t")},
        Scale("contraction factor", logarithmic=True),
        lines,
    )


def _sizes(cases: Sequence[FactorCase]) -> Chart:
    lines = []
    fixed = [case for case in cases if case.form != "growing" and case.converged == 1.0]
    for (setting, form), own in grouped(fixed, lambda case: (case.setting, case.form)).items():
        positions = {
            "rows": [c.size / setting.local_dimension for c in own],
            "k": [c.k / setting.local_dimension for c in own],
        }
        spread = [[geometric_mean(path.factors[path.usable(setting.local)]) for path in c.paths] for c in own]
        lines.append(Curve.over(f"{setting.label}, {form}", positions, [c.factor for c in own], spread))
    widest = np.geomspace(3, max(max(line.x["rows"]) for line in lines), 20)
    lines.append(Curve("√(d_λ / rows)", {"rows": list(widest)}, list(widest**-0.5), dashed=True))
    return Chart(
        "theorem1_sizes",
        "Contraction factor by sketch size",
        "Rows are m k where Grams are added (Algorithm 1) and k where sketches are (its proof); d_λ is that at the optimum. "
        "By rows all curves agree, by k they do not.",
        {"rows": Scale("rows / d_λ", logarithmic=True), "k": Scale("k / d_λ", logarithmic=True)},
        Scale("contraction factor", logarithmic=True),
        lines,
    )


def _label(case: FactorCase) -> str:
    if case.form == "growing":
        return f"k = {case.k} log2²(1+t)"
    return f"k = {case.k}" + (" = M" if case.k == case.setting.features else "")


def _line(label: str, rounds: np.ndarray, values: np.ndarray) -> Curve:
    """Geometric mean over seeds, (seeds, rounds), and their range."""
    mean = np.exp(np.log(values).mean(axis=0))
    return Curve.over(label, {"rounds": rounds.tolist()}, mean.tolist(), values.T.tolist())
