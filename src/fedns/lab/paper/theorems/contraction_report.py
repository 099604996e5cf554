"""Theorem 1 in figures, tables and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedns.lab.paper.part import Findings, NumberedClaim, Table, Verdict, table_of
from fedns.lab.paper.theorems.measure import geometric_mean
from fedns.lab.paper.theorems.settings import ROUNDING, Setting
from fedns.reports.charts import Chart, Line, Scale

if TYPE_CHECKING:
    from fedns.lab.paper.theorems.contraction import Case

SUPERLINEAR_BELOW = -0.5  # half way between a factor that stays and one that falls like 1 / log t
FULL_SKETCH_ABOVE = 0.5  # k / M from which "of the order of M" is granted
ONE_SKETCH_BELOW = 0.5  # rows of a client worth fewer than m / 2 rows of one sketch: Grams would be no better than the sum
CLAIMS = (
    NumberedClaim(
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
    NumberedClaim(
        "Theorem 1, bound",
        "|w_t - w*| is at most (β/γ) / log(1+t) times |w_(t-1) - w*|",
        lambda f: f["largest_over_bound"] <= 1,
        "at most {largest_over_bound:.2g} of the bound in any round; but with β/γ of {smallest_condition:.0f} "
        "or more it promises a decrease only after 10^{smallest_useful_digits:.0f} rounds",
    ),
    NumberedClaim(
        "Theorem 1, sketch size",
        "FedNS takes a sketch of k ≳ M rows from every client",
        lambda f: f["smallest_k_over_features"] >= FULL_SKETCH_ABOVE,
        "every seed converges with k = {smallest_k:.0f}, {smallest_k_over_features:.2f} of M, where m k is "
        "{smallest_rows_over_dimension:.1f} d_λ; summed as in the proof, k = {smallest_sum_over_dimension:.1f} d_λ will do",
    ),
    NumberedClaim(
        "Theorem 1, proof",
        "FedNS is Newton's method with one sketch of k rows, the sum of the clients' sketches",
        lambda f: f["clients_worth"] < ONE_SKETCH_BELOW,
        "by its factors a row per client is worth {clients_worth:.2f} m rows of one sketch; "
        "exponents {exponent_gram:.2f} in m k and, for the sum, {exponent_sum:.2f} in k",
    ),
)


def verdicts(findings: Findings) -> list[Verdict]:
    """What the numbers say about Theorem 1, by the thresholds above."""
    return [claim.verdict(findings) for claim in CLAIMS]


def tables(cases: Sequence[Case]) -> list[Table]:
    settings = dict.fromkeys(case.setting for case in cases)
    return [
        table_of("Theorem 1: contraction factors in the Hessian norm", map(_factors_row, cases)),
        table_of("Theorem 1: what it asks for", map(_constants_row, settings)),
    ]


def _factors_row(case: Case) -> dict[str, str]:
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


def charts(cases: Sequence[Case]) -> list[Chart]:
    settings = list(dict.fromkeys(case.setting for case in cases))
    shown = [case for case in cases if case.form != "sum" and case.converged == 1.0]
    drawn = []
    for number, setting in enumerate(settings, start=1):
        own = [case for case in shown if case.setting is setting]
        starts = {case.k for case in own if case.form == "growing"}
        telling = [case for case in own if case.k in starts or case.k >= setting.features]
        drawn += [_distances(number, setting, own), _factors(number, setting, telling)]
    return [*drawn, _sizes(cases, settings)]


def _distances(number: int, setting: Setting, cases: Sequence[Case]) -> Chart:
    lines = []
    for case in cases:
        length = min(path.hessian_distances.size for path in case.paths)
        relative = np.array([path.hessian_distances[:length] / path.hessian_distances[0] for path in case.paths])
        relative = np.maximum(relative, ROUNDING / 1000)
        lines.append(_line(_label(case), np.arange(length), relative))
    return Chart(
        f"theorem1_distance_{number}",
        f"Distance to the optimum: {setting.name}, m = {setting.clients}",
        "Relative to the start, in the Hessian norm; spread over seeds. Straight lines are linear convergence.",
        {"rounds": Scale("rounds")},
        Scale("distance to the optimum", logarithmic=True),
        lines,
        level=ROUNDING,
    )


def _factors(number: int, setting: Setting, cases: Sequence[Case]) -> Chart:
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
            lines.append(Line("∝ 1 / log(1+t)", {"rounds": common}, (height * shape).tolist(), dashed=True))
    return Chart(
        f"theorem1_factors_{number}",
        f"Contraction factors: {setting.name}, m = {setting.clients}",
        "Distance after a round over distance before it, without the first rounds and those at rounding; geometric means.",
        {"rounds": Scale("round t")},
        Scale("contraction factor", logarithmic=True),
        lines,
    )


def _sizes(cases: Sequence[Case], settings: Sequence[Setting]) -> Chart:
    lines = []
    for setting in settings:
        for form in ("gram", "sum"):
            own = [c for c in cases if c.setting is setting and c.form == form and c.converged == 1.0]
            if not own:
                continue
            positions = {
                "rows": [c.size / c.setting.local_dimension for c in own],
                "k": [c.k / c.setting.local_dimension for c in own],
            }
            label = f"{own[0].setting.name}, m = {own[0].setting.clients}, {form}"
            spread = [[geometric_mean(p.factors[p.usable(c.setting.local)]) for p in c.paths] for c in own]
            lines.append(Line(label, positions, [c.factor for c in own], [min(s) for s in spread], [max(s) for s in spread]))
    widest = np.geomspace(3, max(max(line.x["rows"]) for line in lines), 20)
    lines.append(Line("√(d_λ / rows)", {"rows": list(widest)}, list(widest**-0.5), dashed=True))
    return Chart(
        "theorem1_sizes",
        "Contraction factor by sketch size",
        "Rows are m k where Grams are added (Algorithm 1) and k where sketches are (its proof); d_λ is that at the optimum. "
        "By rows all curves agree, by k they do not.",
        {"rows": Scale("rows / d_λ", logarithmic=True), "k": Scale("k / d_λ", logarithmic=True)},
        Scale("contraction factor", logarithmic=True),
        lines,
    )


def _label(case: Case) -> str:
    if case.form == "growing":
        return f"k = {case.k} log2²(1+t)"
    return f"k = {case.k}" + (" = M" if case.k == case.setting.features else "")


def _line(label: str, rounds: np.ndarray, values: np.ndarray) -> Line:
    """Geometric mean over seeds, (seeds, rounds), and their range."""
    mean = np.exp(np.log(values).mean(axis=0))
    return Line(label, {"rounds": rounds.tolist()}, mean.tolist(), values.min(axis=0).tolist(), values.max(axis=0).tolist())
