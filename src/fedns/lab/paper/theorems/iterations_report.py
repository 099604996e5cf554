"""Theorem 2 in figures, tables and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedns.lab.paper.part import Findings, NumberedClaim, Table, Verdict, table_of
from fedns.reports.charts import Chart, Line, Scale

if TYPE_CHECKING:
    from fedns.lab.paper.theorems.iterations import Case

SHOWN_DIGITS = (2, 4, 6, 8, 10)
# Rounds from 6 to 10 digits over rounds from 2 to 6: 1 if they grow like log(1/delta), less if like its logarithm.
LOG_LOG_BEND = math.log(10 / 6) / math.log(6 / 2)
BENT_BELOW = (1 + LOG_LOG_BEND) / 2
CLAIMS = (
    NumberedClaim(
        "Theorem 2, iterations",
        "with k = Ω(d_λ) FedNDES takes T = O(log log 1/δ) rounds to |w - w*| <= δ",
        lambda f: f["bend_median"] < BENT_BELOW,
        f"rounds for digits 6 to 10 over rounds for digits 2 to 6 (log(1/δ): 1, log log: {LOG_LOG_BEND:.2f}): "
        "{bend_median:.2f} with d_λ to 8 d_λ (smallest {bend_smallest:.2f}), {bend_exact:.2f} with an exact second sketch, "
        "{bend_newton:.2f} for Newton's method; {rounds_per_digit_mk:.1f} rounds per digit at m k = {first_multiple_mk:.2g} "
        "d_λ and {rounds_per_digit_k:.1f} at k = {first_multiple_k:.2g} d_λ",
        lambda f: f["bend_exact"] < BENT_BELOW,
        "the second sketch has d_λ/δ rows, as in the proof, which is exact for every client",
    ),
    NumberedClaim(
        "Theorem 2, sketch size",
        "k = Ω(d_λ) rows are enough for FedNDES",
        # k = d_lambda at each of m clients is m k = m d_lambda: no constant has to be chosen.
        lambda f: f["rows_enough"] <= f["fewest_clients"],
        "with a line search on the sum of the losses every seed reaches 1e-10 within 80 rounds from m k = "
        "{rows_enough:.2g} d_λ on, far less than d_λ at each of many clients; every unit step is accepted from m k = "
        "{rows_unit_step:.2g} d_λ on",
    ),
    NumberedClaim(
        "Theorem 2, start",
        "FedNDES needs no condition on the start",
        lambda f: f["far_reached"] == 1.0,
        "from up to 1000 |w*| away {far_reached:.0%} of the seeds reach 1e-10 with a line search on the sum of the losses, "
        "{far_reached_without_search:.0%} without one",
    ),
    NumberedClaim(
        "Theorem 2, Algorithm 2",
        "Algorithm 2 as printed, with the smallest of the clients' own steps, reaches any δ",
        lambda f: f["printed_reached"] == 1.0,
        "{printed_reached:.0%} of the seeds reach 1e-10 as printed on the worst problem",
        lambda f: f["rows_enough"] < math.inf,
        "clients search along the step on the sum of their losses",
    ),
)


def verdicts(findings: Findings) -> list[Verdict]:
    """What the numbers say about Theorem 2, by the thresholds above."""
    return [claim.verdict(findings) for claim in CLAIMS]


def tables(cases: Sequence[Case], far: Sequence[tuple[float, Case]]) -> list[Table]:
    return [
        table_of("Theorem 2: mean rounds to |w - w*| <= δ", map(_rounds_row, cases)),
        table_of("Theorem 2: starts far from the optimum", (_far_row(away, case) for away, case in far)),
    ]


def _rounds_row(case: Case) -> dict[str, str]:
    rounds = {digits: case.rounds[digits - 2] for digits in SHOWN_DIGITS}
    return {
        "problem": case.setting.name,
        "m": str(case.setting.clients),
        "method": case.label,
        "k": str(case.k) if case.k else "-",
        "m k / d_λ": f"{case.rows:.2g}" if case.k else "-",
        **{f"to 1e-{digits}": _rounds_text(value) for digits, value in rounds.items()},
        "late / early": f"{case.bend:.2f}" if np.isfinite(rounds[SHOWN_DIGITS[-1]]) else "-",
        "whole steps": f"{case.unit_steps:.0%}",
    }


def _far_row(away: float, case: Case) -> dict[str, str]:
    return {
        "start": f"{away:g} |w*| away",
        "method": case.label,
        "reached 1e-10": f"{case.reached:.0%}",
        "rounds to 1e-2": _rounds_text(case.rounds[0]),
        "rounds to 1e-10": _rounds_text(case.rounds[-1]),
    }


def _rounds_text(rounds: float) -> str:
    return f"{rounds:.1f}" if math.isfinite(rounds) else "never"


def charts(cases: Sequence[Case], far: Sequence[tuple[float, Case]]) -> list[Chart]:
    settings = list(dict.fromkeys(case.setting for case in cases))
    by_setting = [[case for case in cases if case.setting is setting] for setting in settings]
    return [
        *[_accuracy(number, own) for number, own in enumerate(by_setting, start=1)],
        _rows(by_setting),
        _steps(by_setting),
    ]


def _accuracy(number: int, cases: Sequence[Case]) -> Chart:
    digits = [float(d) for d in range(2, 2 + len(cases[0].rounds))]
    lines = [Line(case.label, {"digits": digits}, case.rounds.tolist()) for case in cases if np.isfinite(case.rounds).all()]
    largest = max((case for case in cases if case.scale and case.reached == 1.0), key=lambda case: case.k, default=None)
    if largest is not None:
        # Both shapes go through the measured rounds to two and six digits, and part from there.
        first, middle = largest.rounds[0], largest.rounds[4]
        straight = [first + (middle - first) * (d - 2) / 4 for d in digits]
        bent = [first + (middle - first) * math.log(d / 2) / math.log(3) for d in digits]
        lines.append(Line("log 1/δ", {"digits": digits}, straight, dashed=True))
        lines.append(Line("log log 1/δ", {"digits": digits}, bent, dashed=True))
    setting = cases[0].setting
    return Chart(
        f"theorem2_rounds_{number}",
        f"Rounds to an accuracy: {setting.name}, m = {setting.clients}",
        "FedNDES with one sketch size; dashed lines start as the largest size does and go on like log 1/δ and log log 1/δ.",
        {"digits": Scale("digits: δ = 10^-digits")},
        Scale("rounds to |w - w*| <= δ"),
        lines,
    )


def _positions(cases: Sequence[Case]) -> dict[str, list[float]]:
    return {"rows": [case.rows for case in cases], "k": [case.rows / case.setting.clients for case in cases]}


_SIZES = {"rows": Scale("m k / d_λ", logarithmic=True), "k": Scale("k / d_λ", logarithmic=True)}


def _rows(by_setting: Sequence[Sequence[Case]]) -> Chart:
    lines = []
    for cases in by_setting:
        own = [case for case in cases if case.scale and case.reached == 1.0]
        if own:
            spread = [[path.rounds_to(1e-10) for path in case.paths] for case in own]
            low, high = [min(values) for values in spread], [max(values) for values in spread]
            lines.append(Line(_name(own[0]), _positions(own), [float(case.rounds[-1]) for case in own], low, high))
    return Chart(
        "theorem2_sizes",
        "Rounds to 1e-10 by sketch size",
        "FedNDES where every seed gets there within 80 rounds, with the spread over seeds.",
        _SIZES,
        Scale("rounds to |w - w*| <= 1e-10", logarithmic=True),
        lines,
    )


def _steps(by_setting: Sequence[Sequence[Case]]) -> Chart:
    lines = []
    for cases in by_setting:
        own = [case for case in cases if case.scale]
        lines.append(Line(_name(own[0]), _positions(own), [case.unit_steps for case in own]))
    return Chart(
        "theorem2_steps",
        "Steps that the line search takes whole",
        "The share of rounds of FedNDES, over all seeds, in which the unit step decreases the loss enough.",
        _SIZES,
        Scale("share of unit steps"),
        lines,
    )


def _name(case: Case) -> str:
    return f"{case.setting.name}, m = {case.setting.clients}"
