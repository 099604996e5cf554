"""Random problems: correctly coded rows, tables of sites made of them with ordinary mishaps, and the right answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm

from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

OTHERS = ("multinomial", "cox")  # families that statsmodels has models of their own for
FAMILIES = {"binomial": sm.families.Binomial, "gaussian": sm.families.Gaussian, "poisson": sm.families.Poisson}


@dataclass
class RandomProblem:
    """A study, the tables of its sites, and how to tell whether an answer to it is right."""

    study: Study
    tables: dict[str, pd.DataFrame]
    rows: pd.DataFrame  # all of them, coded correctly, with the outcome as a number in `y` and the site in `site`
    locations: dict[str, tuple[float, float]]  # by numeric column: what it is centred and scaled by for the oracle
    mishaps: list[str] = field(default_factory=list)  # each must be refused
    words: list[str] = field(default_factory=list)  # that the refusal may name
    left_out: tuple[str, ...] = ()  # a column that says what others say
    near_separated: bool = False


def random_problem(seed: int, families: tuple[str, ...] = tuple(FAMILIES)) -> RandomProblem:
    """The problem with this number, of one of these families."""
    random = np.random.default_rng(seed)
    family = str(random.choice(list(families)))
    rows, locations, levels = _rows(random, family)
    numbers = list(locations)
    terms = [*numbers, *levels]
    if levels and random.random() < 0.3:
        terms.append(f"{numbers[0]}:{next(iter(levels))}")
    missing = str(random.choice(["refuse", "complete", "mean"], p=[0.5, 0.3, 0.2]))
    options: dict[str, Any] = {"missing": missing}
    offset = family == "poisson" and random.random() < 0.4
    if offset:
        rows["time"] = random.uniform(0.5, 3.0, len(rows)).round(3)
        options["offset"] = "offset(log(time))"
    if random.random() < 0.3 and family != "cox":  # by Efron's rule a weight of 2 is not two rows
        rows["weight"] = random.integers(1, 4, len(rows))
        options["weights"] = "weight"
    problem = RandomProblem(_study(family, terms, levels, options, random), {}, rows, locations)
    if random.random() < 0.15:
        _make_collinear(problem, numbers, random)
    if family == "binomial" and random.random() < 0.2:
        problem.near_separated = True
        steep = 12 * (rows[numbers[0]] - locations[numbers[0]][0]) / locations[numbers[0]][1]
        rows["y"] = (random.random(len(rows)) < 1 / (1 + np.exp(-steep))).astype(float)
    _hand_out(problem, random)
    _mishap(problem, random)
    return problem


def _rows(random, family: str) -> tuple[pd.DataFrame, dict[str, tuple[float, float]], dict[str, list[str]]]:
    count = int(random.integers(80, 400))
    rows = pd.DataFrame(index=range(count))
    locations, margin = {}, np.zeros(count)
    for place in range(int(random.integers(1, 4))):
        location = float(random.choice([0.0, 1.0, 60.0, 2020.0]))
        scale = float(random.choice([1e-3, 0.3, 1.0, 15.0])) * (1.0 if location else float(random.choice([1.0, 1e4])))
        values = random.normal(size=count)
        rows[f"x{place}"] = location + scale * values
        locations[f"x{place}"] = (location, scale)
        margin += random.normal(0, 0.5) * values
    levels = {}
    for place in range(int(random.integers(0, 3))):
        names = [f"{'abcd'[number]}{place}" for number in range(int(random.integers(2, 5)))]
        rows[f"c{place}"] = random.choice(names, count)
        levels[f"c{place}"] = names
        margin += random.normal(0, 0.5, len(names))[rows[f"c{place}"].map(names.index)]
    if family == "binomial":
        rows["y"] = (random.random(count) < 1 / (1 + np.exp(-margin))).astype(float)
    elif family == "poisson":
        rows["y"] = random.poisson(np.exp(margin)).astype(float)
    elif family == "multinomial":
        pulls = np.outer(margin, [0.0, 1.0, -0.7, 0.4][: int(random.integers(3, 5))])
        rows["y"] = (pulls + random.gumbel(size=pulls.shape)).argmax(axis=1)
    elif family == "cox":
        rows["y"] = np.ceil(random.exponential(9 * np.exp(-margin)))
        rows["status"] = np.where(random.random(count) < 0.75, "sick", "well")
    else:
        rows["y"] = margin * 3 + random.normal(size=count)
    return rows, locations, levels


def _study(family: str, terms: list[str], levels: dict[str, list[str]], options: dict[str, Any], random) -> Study:
    right = " + ".join([*terms, *([options.pop("offset")] if "offset" in options else [])])
    rules = {name: ColumnRule(levels=tuple(names)) for name, names in levels.items() if random.random() < 0.7}
    if family in ("binomial", "cox"):
        options |= {"event": ("sick",), "non_event": ("well",)}
    if family == "cox":
        options["status"] = "status"
    return Study(f"outcome ~ {right}", family, columns=rules, **options)


def _make_collinear(problem: RandomProblem, numbers: list[str], random) -> None:
    rows = problem.rows
    rows["same"] = 2.0 * rows[numbers[0]] + 3.0
    study = problem.study
    problem.study = Study(**{**vars_of(study), "formula": f"{study.formula} + same"})
    classes = [str(one) for one in sorted(set(rows["y"]))[1:]] if study.family == "multinomial" else []
    problem.left_out = tuple(f"k{one}: same" for one in classes) or ("same",)


def vars_of(study: Study) -> dict[str, Any]:
    names = ("formula", "family", "event", "non_event", "status", "columns", "missing", "weights")
    return {name: getattr(study, name) for name in names}


def _hand_out(problem: RandomProblem, random) -> None:
    """Rows to sites, some levels kept away from one of them, columns in any order and others beside them."""
    rows, sites = problem.rows, [f"site{number}" for number in range(int(random.integers(2, 6)))]
    rows["site"] = random.choice(sites, len(rows), p=random.dirichlet(np.full(len(sites), 3.0)))
    for name in [column for column in rows if str(column).startswith("c")]:
        if random.random() < 0.3:
            gone = random.choice(rows[name].unique())
            here = (rows["site"] == sites[0]) & (rows[name] == gone)
            rows.loc[here, "site"] = sites[1]
    if problem.study.family == "binomial":
        rows["outcome"] = np.where(rows["y"] > 0, "sick", "well")
    elif problem.study.family == "multinomial":
        rows["outcome"] = "k" + rows["y"].astype(str)
    else:
        rows["outcome"] = rows["y"]
    for site in rows["site"].unique():
        table = rows[rows["site"] == site].drop(columns=["y", "site"]).reset_index(drop=True)
        if random.random() < 0.5:
            table = table[random.permutation(table.columns)]
        if random.random() < 0.3:
            table = table.assign(remark="free text", visits=random.integers(0, 9, len(table)))
        problem.tables[str(site)] = table


def _mishap(problem: RandomProblem, random) -> None:
    """With some luck, one thing that is wrong at one site."""
    site = str(random.choice(list(problem.tables)))
    table, study = problem.tables[site], problem.study
    number = next(iter(problem.locations))
    kind = str(random.choice(["none", "renamed", "labels", "units", "missing"], p=[0.5, 0.1, 0.1, 0.15, 0.15]))
    if kind == "renamed":
        table = table.rename(columns={number: f"{number}_new"})
        problem.words = [f"site '{site}'", number]
    elif kind == "labels" and study.family == "binomial":
        pair = [("1", "0"), ("2", "1"), ("Sick", "Well"), ("yes", "no")][random.integers(4)]
        table = table.assign(outcome=np.where(table["outcome"] == "sick", *pair))
        problem.words = [f"site '{site}'", "outcome"]
    elif kind == "units" and problem.locations[number][0] >= 1.0:
        factor = float(random.choice([1000.0, 1 / 1000, 18.0182, 1 / 38.67]))
        table = table.assign(**{number: table[number] * factor})
        problem.words = ["site '", number]
    elif kind == "missing":
        gaps = random.random(len(table)) < 0.2
        table = table.assign(**{number: table[number].where(~gaps)})
        whose = problem.rows.index[problem.rows["site"] == site]
        problem.rows.loc[whose[gaps], number] = np.nan
        if study.missing != "refuse" or not gaps.any():
            kind = "none"
        problem.words = [f"site '{site}'", number]
    else:
        kind = "none"
    problem.mishaps = [] if kind == "none" else [kind]
    problem.tables[site] = table


def right_answer(problem: RandomProblem, names: tuple[str, ...], fills: dict[str, float]) -> np.ndarray:
    """What statsmodels makes of the pooled rows."""
    study = problem.study
    matrix, back, rows = pooled_design(problem, names, fills)
    weights = rows["weight"].to_numpy(dtype=float) if study.weights else None
    offset = np.log(rows["time"].to_numpy()) if study.parsed.offset else None
    fitted = sm.GLM(rows["y"].to_numpy(), matrix, family=FAMILIES[study.family](), freq_weights=weights, offset=offset)
    return back @ fitted.fit(tol=1e-15, maxiter=200).params


def pooled_design(
    problem: RandomProblem, names: tuple[str, ...], fills: dict[str, float]
) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Centred and scaled columns, since statsmodels works on them as they are; the way back to the original scale; rows."""
    rows = problem.rows.dropna() if problem.study.missing == "complete" else problem.rows
    design, back = {}, np.eye(len(names))
    place = {name: number for number, name in enumerate(names)}
    for name in names:
        values, scale, shifts = np.ones(len(rows)), 1.0, []
        for part in name.split(":"):
            if part in problem.locations:
                location, unit = problem.locations[part]
                values = values * (rows[part].fillna(fills.get(part, np.nan)) - location) / unit
                scale, shifts = scale * unit, [*shifts, (part, location)]
            elif part.endswith("[missing]"):
                values = values * rows[part[:-9]].isna()
            elif part != "Intercept":
                column, level = part[:-1].split("[")
                values = values * (rows[column] == level)
        design[name] = values
        back[place[name], place[name]] = 1 / scale
        for part, location in shifts:
            rest = ":".join(other for other in name.split(":") if other != part) or "Intercept"
            if rest in place:  # in Cox regression there is no intercept
                back[place[rest], place[name]] -= location / scale
    return np.column_stack(list(design.values())).astype(float), back, rows
