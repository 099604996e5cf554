"""Seeded problems with outcomes of any size: counts and amounts from 1e-8 to 1e9, skewed columns, exposures.

`python -m tests.oracle.any_mean FIRST LAST [METHOD ...]` fits the problems of these numbers and prints what came of them, by
family and by method; without methods each problem has the next of all.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm

from fedns.core.errors import FednsError
from fedns.studies.fit import fit_study
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

METHODS = (
    "default",
    "fednewton",
    "fednewton:line_search=aggregate",
    "auto:prefer=bytes",
    "auto:prefer=balanced",
    "auto:prefer=rounds",
    "fedns:sketch_size=256;line_search=aggregate",
    "fedndes:sketch_size=256",
    "giant",
    "shed:eigenpairs=20",
    "fednl:line_search=aggregate",
    "localnewton:finish=giant",
)
EQUAL, WRONG = "equal", "WRONG: converged elsewhere"
ROUNDS = 200  # methods that average the clients' own steps need more than a study's 50 where sites are few and small
TOLERANCE = 1e-9  # of the fits, in standard errors: below what they are compared within
WITHIN = 1e-8  # of a coefficient, or of its standard error where that is larger


@dataclass
class Problem:
    """A study, the tables of its sites, and what statsmodels is given in their place."""

    study: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    y: np.ndarray
    x: np.ndarray  # centred and scaled, the constant first
    family: Any
    offset: np.ndarray | None
    locations: np.ndarray  # (2, columns): what the columns are centred and scaled by
    words: str  # what kind of problem it is

    def expected(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Coefficients on the original scale and the allowed errors, None where statsmodels finds none."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = sm.GLM(self.y, self.x, self.family, offset=self.offset)
                fit = model.fit(tol_criterion="params", tol=1e-12, rtol=1e-12, maxiter=300)
            except (ValueError, np.linalg.LinAlgError):
                return None
        if not (fit.converged and np.isfinite(fit.params).all() and np.isfinite(fit.bse).all()):
            return None
        centre, scale = self.locations
        to_original = np.diag([1.0, *(1.0 / scale)])
        to_original[0, 1:] = -centre / scale
        errors = np.sqrt(np.diag(to_original @ fit.cov_params() @ to_original.T))
        coefficients = to_original @ fit.params
        return coefficients, WITHIN * np.maximum(np.abs(coefficients), errors)


def problem_of(seed: int) -> Problem:
    """The problem with this number."""
    random = np.random.default_rng([2026, seed])
    name = ("poisson", "gamma", "negative_binomial")[seed % 3]
    columns = int(np.exp(random.uniform(np.log(3), np.log(60.99))))
    rows, sites = int(random.integers(200, 400)) + 8 * columns, int(random.integers(2, 6))
    skewed, exposed = random.random(columns) < (0.5 if random.random() < 0.5 else 0.0), random.random() < 0.4
    x = np.where(skewed, np.exp(random.normal(size=(rows, columns))), random.normal(size=(rows, columns)))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    margins = x @ random.normal(0, random.uniform(0.1, 0.8) / np.sqrt(columns), columns)
    # An outcome that counts must be seen: a rate of 1e-8 needs exposures that are as long.
    mean = 10 ** random.uniform(-8 if name == "gamma" else 0, 9)
    offset = np.log(10) * (random.uniform(-8, 8)) + random.normal(size=rows) if exposed else None
    expected = mean * np.exp(margins + (0.0 if offset is None else offset - offset.mean()))
    dispersion = round(float(random.uniform(0.05, 2.0)), 3)
    if name == "poisson":
        y, family, own = random.poisson(expected).astype(float), sm.families.Poisson(), {}
    elif name == "gamma":
        y = np.maximum(random.gamma(2.0, expected / 2.0), 1e-6 * expected)
        family, own = sm.families.Gamma(sm.families.links.Log()), {}
    else:
        y = random.poisson(expected * random.gamma(1 / dispersion, dispersion, rows)).astype(float)
        family, own = sm.families.NegativeBinomial(alpha=dispersion), {"parameters": {"dispersion": dispersion}}
    locations = np.stack([random.normal(0, 3, columns), 10 ** random.uniform(-3, 3, columns)])
    locations[0] *= locations[1]
    names = [f"x{place}" for place in range(columns)]
    table = pd.DataFrame(locations[0] + locations[1] * x, columns=names).assign(y=y)
    formula = "y ~ " + " + ".join(names)
    if offset is not None:
        table["exposure"] = np.exp(offset)
        formula += " + offset(log(exposure))"
    site = random.integers(0, sites, rows)
    tables = {f"site{one}": table[site == one].reset_index(drop=True) for one in range(sites)}
    rules = {name: ColumnRule(differs_at=tuple(tables)) for name in table}  # skewed columns differ, and are meant to
    words = f"{name}, mean {mean:.0e}, {columns} columns{', skewed' if skewed.any() else ''}{', offset' if exposed else ''}"
    return Problem(
        {"formula": formula, "family": name, "columns": rules, **own},
        tables,
        y,
        sm.add_constant(x),
        family,
        offset,
        locations,
        words,
    )


def judged(problem: Problem, method: str, expected: tuple[np.ndarray, np.ndarray]) -> str:
    """What came of the fit: EQUAL, WRONG, or the sentence that it ended with."""
    try:
        fit = fit_study(Study(**problem.study, method=method, rounds=ROUNDS, tolerance=TOLERANCE), problem.tables)
    except FednsError as refusal:
        return f"refused: {refusal}"
    except ArithmeticError as error:
        return f"CRASH: {error!r}"
    if not fit.converged:
        return f"{fit.ending.label}: {fit.reason}"
    coefficients, allowed = expected
    return EQUAL if (np.abs(fit.coefficients - coefficients) <= allowed).all() else WRONG


def cause(sentence: str) -> str:
    """A sentence without its numbers."""
    return re.sub(r"[-+]?\d[\d.]*(e[-+]?\d+)?", "N", sentence)[:110]


def main(first: int, last: int, *methods: str) -> None:
    counted: Counter[tuple[str, str]] = Counter()
    causes: Counter[str] = Counter()
    without = 0
    for seed in range(first, last):
        problem = problem_of(seed)
        expected = problem.expected()
        without += expected is None
        for method in (methods or (METHODS[(seed // 3) % len(METHODS)],)) if expected is not None else ():
            found = judged(problem, method, expected)
            for group in (problem.study["family"], method, "all"):
                counted[group, "equal" if found == EQUAL else "wrong" if found == WRONG else "sentence"] += 1
            if found != EQUAL:
                causes[f"{method}: {cause(found)}"] += 1
                print(f"{seed}: {problem.words}; {method}: {found}", flush=True)
    print(f"\nstatsmodels does not converge: {without} of {last - first}")
    for group in dict.fromkeys(group for group, _ in counted):
        print(group, {kind: counted[group, kind] for kind in ("equal", "sentence", "wrong")})
    for words, number in causes.most_common():
        print(number, words)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
