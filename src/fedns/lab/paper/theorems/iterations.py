"""Theorem 2: how many rounds FedNDES takes to an accuracy, with sketches of about the effective dimension."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.lab.paper.part import Part
from fedns.lab.paper.theorems.iterations_report import charts, tables, verdicts
from fedns.lab.paper.theorems.measure import Path, follow
from fedns.lab.paper.theorems.settings import FloatArray, Setting, has_phishing, logistic_setting, ridge_setting
from fedns.methods.fedndes import FedNDES
from fedns.methods.fedns import FedNS
from fedns.methods.newton import FedNewton
from fedns.methods.searches import ArmijoSearch, LocalSearch
from fedns.numerics.rng import generator
from fedns.sketches import SRHT

MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of d_lambda
DIGITS = np.arange(2, 11)  # delta = 10^-digits
PRINTED_ROUNDS = 40  # it has stalled by then, and each round is dear: clients try 40 halvings
FAR = (10.0, 100.0, 1000.0)  # starts, in units of |w*|
SAFE_MULTIPLE = 4.0  # of d_lambda in rows, for far starts
ROUNDS = 80
EXACT, PRINTED, NEWTON = "second size d_λ/δ", "as printed", "exact Newton"


@dataclass(frozen=True, eq=False)
class Case:
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
    cases: list[Case] = []
    for setting, scale in _settings(quick, few, many):
        say(
            f"theorem 2: {setting.name}, {setting.clients} clients, {scale} at multiples of d_lambda {setting.dimension:.1f}"
        )
        cases += measure(setting, scale, seeds)
    say("theorem 2: starts far away")
    far = far_starts(logistic_setting(many), seeds)
    findings = summarise(cases, far)
    return Part("Theorem 2", [], charts(cases, far), tables(cases, far), findings, verdicts(findings))


def _settings(quick: bool, few: int, many: int) -> list[tuple[Setting, str]]:
    chosen = [(logistic_setting(few), "m k"), (logistic_setting(many), "k")]
    return chosen if quick else [*chosen, (ridge_setting(few), "m k"), (ridge_setting(many), "k")]


def measure(setting: Setting, scale: str, seeds: int) -> list[Case]:
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


def _case(label: str, setting: Setting, scale: str, k: int, method: Algorithm, seeds: int, rounds: int = ROUNDS) -> Case:
    return Case(label, setting, scale, k, [follow(setting, method, rounds, seed) for seed in range(seeds)])


def far_starts(setting: Setting, seeds: int) -> list[tuple[float, Case]]:
    """(distance in units of |w*|, case) for FedNDES and, without its line search, FedNS."""
    k = max(1, round(SAFE_MULTIPLE * setting.dimension / setting.clients))
    found = []
    for away in FAR:
        for label, method in (("FedNDES", _ndes(k)), ("FedNS", FedNS(sketch=SRHT(k)))):
            paths = [follow(setting, method, ROUNDS, seed, _start(setting, away, seed)) for seed in range(seeds)]
            found.append((away, Case(label, setting, "m k", k, paths)))
    return found


def _start(setting: Setting, away: float, seed: int) -> FloatArray:
    best = setting.optimum.coefficients
    direction = generator(seed, "far start").standard_normal(best.size)
    return np.asarray(best + away * np.linalg.norm(best) * direction / np.linalg.norm(direction))


def summarise(cases: list[Case], far: list[tuple[float, Case]]) -> dict[str, float]:
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


def _largest_bend(cases: list[Case], label: str) -> float:
    """Over the problems that an exact step does not solve at once: there, rounds say nothing of how they grow."""
    bends = [case.bend for case in cases if case.label == label and not case.setting.quadratic]
    return max(bends, default=float("nan"))


def _multiple(case: Case) -> float:
    return case.rows if case.scale == "m k" else case.rows / case.setting.clients


def _from_where(cases: list[Case], good: Callable[[Case], bool]) -> float:
    """The fewest rows, in units of d_lambda, from which on every case is good; infinite where the largest is not."""
    ordered = sorted(cases, key=lambda case: case.rows)
    bad = [index for index, case in enumerate(ordered) if not good(case)]
    first = bad[-1] + 1 if bad else 0
    return ordered[first].rows if first < len(ordered) else float("inf")
