"""Random Cox studies with covariates of sites, and what a stratified partial likelihood in plain numpy makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

_GONE = 1e-12  # of a column's sum of squares over all rows: R's coxph has 1.8e-12
_LEVELS = {"arm": ("a", "b"), "kind": ("city", "country", "teaching")}


@dataclass
class RandomTimes:
    """A study, its tables, and the columns of its formula in order, coded independently."""

    study: Study
    tables: dict[str, pd.DataFrame]
    columns: dict[str, np.ndarray]  # over the rows of all sites, back to back

    @property
    def rows(self) -> pd.DataFrame:
        return pd.concat([table.assign(site=site) for site, table in self.tables.items()], ignore_index=True)

    def strata(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Of each site the places of its rows, their times, and whether they had their event."""
        rows = self.rows
        parts = [np.flatnonzero(rows["site"] == site) for site in self.tables]
        return [(p, rows["months"].to_numpy()[p], (rows["died"] == "yes").to_numpy()[p]) for p in parts]


def random_times(seed: int) -> RandomTimes:
    """Some covariates differ among rows, some among sites alone, and of some no risk set tells the rows apart."""
    random = np.random.default_rng(90_000 + seed)
    sites = [f"s{place}" for place in range(int(random.integers(2, 7)))]
    beds, kinds = random.integers(100, 900, len(sites)), random.choice(_LEVELS["kind"], len(sites))
    academic = random.integers(0, 2, len(sites))
    tables = {}
    for place, site in enumerate(sites):
        count = int(random.integers(60, 160))
        table = pd.DataFrame({"age": random.normal(60, 9, count).round(1), "arm": random.choice(["a", "b"], count)})
        table["dose"] = random.gamma(4.0, 2.0, count).round(2)
        table["beds"], table["academic"], table["kind"] = int(beds[place]), int(academic[place]), kinds[place]
        risk = 0.04 * (table["age"] - 60) + 0.5 * (table["arm"] == "b") + 0.002 * beds[place]
        months = random.exponential(24 * np.exp(-risk)).round(1) + 0.5
        until = random.uniform(3, 60, count).round(1)
        table["months"], table["died"] = np.minimum(months, until), np.where(months <= until, "yes", "no")
        table["withdrew"] = 0
        early = random.choice(count, int(random.integers(6, 12)), replace=False)
        table.loc[early, ["months", "died", "withdrew"]] = [0.2, "no", 1]  # gone before anything had happened
        table["shifted"] = 0.1 * table["age"] + 0.01 * beds[place]  # within a site it says what the age does
        tables[site] = table
    of_sites = ["beds", "academic", "C(kind)", "withdrew", "shifted", "academic:beds"]
    chosen = [str(one) for one in random.choice(of_sites, int(random.integers(1, 4)), replace=False)]
    terms = ["age", "arm", *(["dose"] if random.random() < 0.5 else []), *chosen]
    if random.random() < 0.3:
        terms.append(str(random.choice(["age:academic", "arm:C(kind)"])))
    random.shuffle(terms)
    terms.sort(key=lambda term: ":" in term)  # as a formula has them: main effects first
    rules = {name: ColumnRule(differs_at=tuple(sites)) for name in ("beds", "shifted") if any(name in t for t in terms)}
    rules |= {"kind": ColumnRule(levels=_LEVELS["kind"])} if any("kind" in t for t in terms) else {}
    study = Study(f"months ~ {' + '.join(terms)}", "cox", status="died", event=("yes",), non_event=("no",), columns=rules)
    rows = pd.concat(tables.values(), ignore_index=True)
    return RandomTimes(study, tables, _coded(terms, rows))


def _coded(terms: list[str], rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Columns by the names that a fit gives them; a category keeps all levels where the term without it is missing."""
    found: dict[str, np.ndarray] = {}
    for term in terms:
        parts: dict[str, np.ndarray] = {"": np.ones(len(rows))}
        for factor in term.split(":"):
            name = factor.removeprefix("C(").removesuffix(")")
            others = [part for part in term.split(":") if part != factor]
            if name not in _LEVELS:
                own = {factor: rows[name].to_numpy(dtype=float)}
            else:
                levels = _LEVELS[name]
                whole = bool(others) and ":".join(others) not in terms
                own = {f"{name}[{level}]": (rows[name] == level).to_numpy(dtype=float) for level in levels[int(not whole) :]}
            parts = {f"{a}:{b}" if a else b: x * y for b, y in own.items() for a, x in parts.items()}
        found |= parts
    return found


def told_apart(problem: RandomTimes) -> list[str]:
    """The columns that R keeps: in order, those that say something within risk sets which the ones before do not."""
    kept: list[str] = []
    basis = np.zeros((len(problem.rows), 0))
    for name, x in problem.columns.items():
        within = np.zeros_like(x)
        for places, months, died in problem.strata():
            there = places[months >= months[died].min()]
            within[there] = x[there] - x[there].mean()
        left = within - basis @ (basis.T @ within)
        left -= basis @ (basis.T @ left)
        if left @ left > _GONE * len(x) * max(x.var(), 1e-300) and np.ptp(x) > 0:
            kept.append(name)
            basis = np.column_stack([basis, left / np.linalg.norm(left)])
    return kept


def stratified_efron(problem: RandomTimes, names: list[str]) -> np.ndarray:
    """The maximum of the partial likelihood, event by event in plain loops, by Newton's method."""
    x = np.column_stack([problem.columns[name] for name in names])
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / spread
    b = np.zeros(len(names))
    for _ in range(50):
        gradient, information = np.zeros(b.size), np.zeros((b.size, b.size))
        for places, months, died in problem.strata():
            own, r = x[places], np.exp(x[places] @ b)
            for time in np.unique(months[died]):
                risk, now = months >= time, (months == time) & died
                gradient += own[now].sum(axis=0)
                for number in range(int(now.sum())):
                    share = r * (risk - now * (number / now.sum()))
                    mean = share @ own / share.sum()
                    gradient -= mean
                    information += (own - mean).T @ ((own - mean) * share[:, None]) / share.sum()
        step = np.linalg.solve(information, gradient)
        b = b + step
        if np.abs(step).max() < 1e-12:
            break
    return b / spread
