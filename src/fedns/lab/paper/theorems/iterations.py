"""Theorem 2: how many rounds FedNDES takes to an accuracy, with sketches of about the effective dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.types import FloatArray
from fedns.lab.paper.part import Part, Table, claim_by_numbers, table_of_rows, verdicts_on
from fedns.lab.paper.theorems.measure import Path, follow, follow_seeds
from fedns.lab.paper.theorems.settings import Setting, has_phishing, logistic_setting, ridge_setting
from fedns.methods.fedndes import FedNDES
from fedns.methods.fedns import FedNS
from fedns.methods.newton import FedNewton
from fedns.methods.searches import ArmijoSearch, LocalSearch
from fedns.numerics.rng import generator
from fedns.reports.charts import Chart, Curve, Scale, grouped
from fedns.sketches import SRHT

MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of d_lambda
DIGITS = np.arange(2, 11)  # delta = 10^-digits
PRINTED_ROUNDS = 40  # it has stalled by then, and each round is dear: clients try 40 halvings
FAR = (10.0, 100.0, 1000.0)  # starts, in units of |w*|
SAFE_MULTIPLE = 4.0  # of d_lambda in rows, for far starts
ROUNDS = 80
EXACT, PRINTED, NEWTON = "second size d_λ/δ", "as printed", "exact Newton"
SHOWN_DIGITS = (2, 4, 6, 8, 10)
# Rounds from 6 to 10 digits over rounds from 2 to 6: 1 if they grow like log(1/delta), less if like its logarithm.
LOG_LOG_BEND = math.log(10 / 6) / math.log(6 / 2)
BENT_BELOW = (1 + LOG_LOG_BEND) / 2
CLAIMS = (
    claim_by_numbers(
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
    claim_by_numbers(
        "Theorem 2, sketch size",
        "k = Ω(d_λ) rows are enough for FedNDES",
        # k = d_lambda at each of m clients is m k = m d_lambda: no constant has to be chosen.
        lambda f: f["rows_enough"] <= f["fewest_clients"],
        "with a line search on the sum of the losses every seed reaches 1e-10 within 80 rounds from m k = "
        "{rows_enough:.2g} d_λ on, far less than d_λ at each of many clients; every unit step is accepted from m k = "
        "{rows_unit_step:.2g} d_λ on",
    ),
    claim_by_numbers(
        "Theorem 2, start",
        "FedNDES needs no condition on the start",
        lambda f: f["far_reached"] == 1.0,
        "from up to 1000 |w*| away {far_reached:.0%} of the seeds reach 1e-10 with a line search on the sum of the losses, "
        "{far_reached_without_search:.0%} without one",
    ),
    claim_by_numbers(
        "Theorem 2, Algorithm 2",
        "Algorithm 2 as printed, with the smallest of the clients' own steps, reaches any δ",
        lambda f: f["printed_reached"] == 1.0,
        "{printed_reached:.0%} of the seeds reach 1e-10 as printed on the worst problem",
        lambda f: f["rows_enough"] < math.inf,
        "clients search along the step on the sum of their losses",
    ),
)


@dataclass(frozen=True, eq=False)
class RoundsCase:
    """One method on one setting, over seeds."""

    label: str
    setting: Setting
    scale: str  # what is the multiple of d_lambda: "m k" or "k"; empty for methods that a sketch size does not describe
    k: int
    paths: list[Path]

    @property
    def rows(self) -> float:
        """m k / d_lambda."""
        return self.k * self.setting.clients / self.setting.dimension

    @property
    def rounds(self) -> FloatArray:
        """Mean rounds to |w - w*| <= 10^-digits, for each of DIGITS; infinite where a seed does not get there."""
        return np.array([np.mean([path.rounds_to(10.0**-digits) for path in self.paths]) for digits in DIGITS])

    @property
    def reached(self) -> float:
        """The share of seeds that come to the smallest delta."""
        return float(np.mean([np.isfinite(path.rounds_to(10.0 ** -DIGITS[-1])) for path in self.paths]))

    @property
    def bend(self) -> float:
        """Rounds for the later half of the digits over rounds for the earlier: 1 for log(1/delta)."""
        first, middle, last = self.rounds[[0, len(DIGITS) // 2, -1]]
        return float((last - middle) / (middle - first))

    @property
    def rounds_per_digit(self) -> float:
        return float((self.rounds[-1] - self.rounds[0]) / (DIGITS[-1] - DIGITS[0]))

    @property
    def unit_steps(self) -> float:
        """The share of steps taken whole, until the smallest delta."""
        steps = [path.steps[: np.count_nonzero(path.distances > 10.0 ** -DIGITS[-1])] for path in self.paths]
        return float(np.mean(np.concatenate(steps) == 1.0))


def theorem2(quick: bool, say: Callable[[str], None]) -> Part:
    """Rounds to delta from 1e-2 to 1e-10 at multiples of the effective dimension, near and far starts."""
    seeds = 2 if quick else 10
    few, many = (4, 40) if has_phishing() else (4, 10)
    cases: list[RoundsCase] = []
    for setting, scale in _settings(quick, few, many):
        say(
            f"theorem 2: {setting.name}, {setting.clients} clients, {scale} at multiples of d_lambda {setting.dimension:.1f}"
        )
        cases += measure(setting, scale, seeds)
    say("theorem 2: starts far away")
    far = far_starts(logistic_setting(many), seeds)
    findings = findings_of(cases, far)
    return Part("Theorem 2", [], charts(cases, far), tables(cases, far), findings, verdicts_on(CLAIMS, findings))


def _settings(quick: bool, few: int, many: int) -> list[tuple[Setting, str]]:
    chosen = [(logistic_setting(few), "m k"), (logistic_setting(many), "k")]
    return chosen if quick else [*chosen, (ridge_setting(few), "m k"), (ridge_setting(many), "k")]


def measure(setting: Setting, scale: str, seeds: int) -> list[RoundsCase]:
    """FedNDES with each sketch size, with a second size as large as the proof's, as printed, and Newton's method."""
    per_client = setting.clients if scale == "m k" else 1
    sizes = sorted({max(1, round(multiple * setting.dimension / per_client)) for multiple in MULTIPLES})
    sizes = [k for k in sizes if k < setting.rows_padded]  # from there on a sketch is exact
    cases = [
        _case(f"{scale} = {k * per_client / setting.dimension:.2g} d_λ", setting, scale, k, _ndes(k), seeds) for k in sizes
    ]
    k = max(1, round(SAFE_MULTIPLE * setting.dimension / per_client))
    # The proof's second size d_lambda / delta is more than any client's rows already at delta = 0.01: it is exact.
    exact = FedNDES(sketch=SRHT(k), second_size=setting.rows_padded, decrement_tolerance=0.0)
    printed = FedNDES(sketch=SRHT(k), line_search=LocalSearch(), decrement_tolerance=0.0)
    return [
        *cases,
        _case(EXACT, setting, "", k, exact, seeds),
        _case(PRINTED, setting, "", k, printed, seeds, PRINTED_ROUNDS),
        _case(NEWTON, setting, "", 0, FedNewton(line_search=ArmijoSearch()), 1),
    ]


def _ndes(k: int) -> FedNDES:
    """One size for all rounds, so that its multiple of d_lambda is what is measured."""
    return FedNDES(sketch=SRHT(k), second_size=k, decrement_tolerance=0.0)


def _case(
    label: str, setting: Setting, scale: str, k: int, method: Algorithm, seeds: int, rounds: int = ROUNDS
) -> RoundsCase:
    return RoundsCase(label, setting, scale, k, follow_seeds(setting, method, rounds, seeds))


def far_starts(setting: Setting, seeds: int) -> list[tuple[float, RoundsCase]]:
    """(distance in units of |w*|, case) for FedNDES and, without its line search, FedNS."""
    k = max(1, round(SAFE_MULTIPLE * setting.dimension / setting.clients))
    found = []
    for away in FAR:
        for label, method in (("FedNDES", _ndes(k)), ("FedNS", FedNS(sketch=SRHT(k)))):
            paths = [follow(setting, method, ROUNDS, seed, _start(setting, away, seed)) for seed in range(seeds)]
            found.append((away, RoundsCase(label, setting, "m k", k, paths)))
    return found


def _start(setting: Setting, away: float, seed: int) -> FloatArray:
    best = setting.optimum.coefficients
    direction = generator(seed, "far start").standard_normal(best.size)
    return np.asarray(best + away * np.linalg.norm(best) * direction / np.linalg.norm(direction))


def findings_of(cases: list[RoundsCase], far: list[tuple[float, RoundsCase]]) -> dict[str, float]:
    """The numbers that decide."""
    sized = [case for case in cases if case.scale]
    enough = [case for case in sized if case.reached == 1.0 and _multiple(case) >= 0.9]
    findings = {
        "bend_smallest": min((case.bend for case in enough), default=float("nan")),
        "bend_median": float(np.median([case.bend for case in enough])) if enough else float("nan"),
        "bend_exact": _largest_bend(cases, EXACT),
        "bend_newton": _largest_bend(cases, NEWTON),
        "printed_reached": min(case.reached for case in cases if case.label == PRINTED),
        "far_reached": min(case.reached for _, case in far if case.label == "FedNDES"),
        "far_reached_without_search": min(case.reached for _, case in far if case.label == "FedNS"),
        "rows_enough": _from_where(sized, lambda case: case.reached == 1.0),
        "fewest_clients": float(min(case.setting.clients for case in sized)),
        "rows_unit_step": _from_where(sized, lambda case: case.unit_steps == 1.0),
    }
    for scale in ("m k", "k"):
        own = [case for case in enough if case.scale == scale]
        first = min(own, key=_multiple) if own else None
        name = scale.replace(" ", "")
        findings[f"first_multiple_{name}"] = _multiple(first) if first else float("nan")
        findings[f"rounds_per_digit_{name}"] = first.rounds_per_digit if first else float("nan")
    return findings


def _largest_bend(cases: list[RoundsCase], label: str) -> float:
    """Over the problems that an exact step does not solve at once: there, rounds say nothing of how they grow."""
    bends = [case.bend for case in cases if case.label == label and not case.setting.quadratic]
    return max(bends, default=float("nan"))


def _multiple(case: RoundsCase) -> float:
    return case.rows if case.scale == "m k" else case.rows / case.setting.clients


def _from_where(cases: list[RoundsCase], good: Callable[[RoundsCase], bool]) -> float:
    """The fewest rows, in units of d_lambda, from which on every case is good; infinite where the largest is not."""
    ordered = sorted(cases, key=lambda case: case.rows)
    bad = [index for index, case in enumerate(ordered) if not good(case)]
    first = bad[-1] + 1 if bad else 0
    return ordered[first].rows if first < len(ordered) else float("inf")


def tables(cases: Sequence[RoundsCase], far: Sequence[tuple[float, RoundsCase]]) -> list[Table]:
    """A row for every method, and one for every start far away."""
    return [
        table_of_rows("Theorem 2: mean rounds to |w - w*| <= δ", map(_rounds_row, cases)),
        table_of_rows("Theorem 2: starts far from the optimum", (_far_row(away, case) for away, case in far)),
    ]


def _rounds_row(case: RoundsCase) -> dict[str, str]:
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


def _far_row(away: float, case: RoundsCase) -> dict[str, str]:
    return {
        "start": f"{away:g} |w*| away",
        "method": case.label,
        "reached 1e-10": f"{case.reached:.0%}",
        "rounds to 1e-2": _rounds_text(case.rounds[0]),
        "rounds to 1e-10": _rounds_text(case.rounds[-1]),
    }


def _rounds_text(rounds: float) -> str:
    return f"{rounds:.1f}" if math.isfinite(rounds) else "never"


def charts(cases: Sequence[RoundsCase], far: Sequence[tuple[float, RoundsCase]]) -> list[Chart]:
    """Rounds by accuracy for every setting, and by sketch size for all; and where the unit step is taken."""
    by_setting = list(grouped(cases, lambda case: case.setting).values())
    rounds = [_accuracy(number, own) for number, own in enumerate(by_setting, start=1)]
    return [*rounds, _rows(by_setting), _steps(by_setting)]


def _accuracy(number: int, cases: Sequence[RoundsCase]) -> Chart:
    digits = [float(d) for d in range(2, 2 + len(cases[0].rounds))]
    lines = [Curve(case.label, {"digits": digits}, case.rounds.tolist()) for case in cases if np.isfinite(case.rounds).all()]
    largest = max((case for case in cases if case.scale and case.reached == 1.0), key=lambda case: case.k, default=None)
    if largest is not None:
        # Both shapes go through the measured rounds to two and six digits, and part from there.
        first, middle = largest.rounds[0], largest.rounds[4]
        straight = [first + (middle - first) * (d - 2) / 4 for d in digits]
        bent = [first + (middle - first) * math.log(d / 2) / math.log(3) for d in digits]
        lines.append(Curve("log 1/δ", {"digits": digits}, straight, dashed=True))
        lines.append(Curve("log log 1/δ", {"digits": digits}, bent, dashed=True))
    return Chart(
        f"theorem2_rounds_{number}",
        f"Rounds to an accuracy: {cases[0].setting.label}",
        "FedNDES with one sketch size; dashed lines start as the largest size does and go on like log 1/δ and log log 1/δ.",
        {"digits": Scale("digits: δ = 10^-digits")},
        Scale("rounds to |w - w*| <= δ"),
        lines,
    )


def _positions(cases: Sequence[RoundsCase]) -> dict[str, list[float]]:
    return {"rows": [case.rows for case in cases], "k": [case.rows / case.setting.clients for case in cases]}


_SIZES = {"rows": Scale("m k / d_λ", logarithmic=True), "k": Scale("k / d_λ", logarithmic=True)}


def _rows(by_setting: Sequence[Sequence[RoundsCase]]) -> Chart:
    lines = []
    for cases in by_setting:
        own = [case for case in cases if case.scale and case.reached == 1.0]
        if own:
            spread = [[path.rounds_to(1e-10) for path in case.paths] for case in own]
            lines.append(Curve.over(own[0].setting.label, _positions(own), [float(case.rounds[-1]) for case in own], spread))
    return Chart(
        "theorem2_sizes",
        "Rounds to 1e-10 by sketch size",
        "FedNDES where every seed gets there within 80 rounds, with the spread over seeds.",
        _SIZES,
        Scale("rounds to |w - w*| <= 1e-10", logarithmic=True),
        lines,
    )


def _steps(by_setting: Sequence[Sequence[RoundsCase]]) -> Chart:
    lines = []
    for cases in by_setting:
        own = [case for case in cases if case.scale]
        lines.append(Curve(own[0].setting.label, _positions(own), [case.unit_steps for case in own]))
    return Chart(
        "theorem2_steps",
        "Steps that the line search takes whole",
        "The share of rounds of FedNDES, over all seeds, in which the unit step decreases the loss enough.",
        _SIZES,
        Scale("share of unit steps"),
        lines,
    )
