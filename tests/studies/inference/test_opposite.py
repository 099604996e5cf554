"""A site whose outcome is coded the other way is asked about, and honest sites are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedns.studies.fit import fit_study
from fedns.studies.fitting.estimate import SeparationError
from fedns.studies.inference.opposite import Order, opposites
from fedns.studies.outputs import write_fit
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

ASKED = "says the opposite of the others: is its outcome coded the other way?"
KINDS = ("binomial", "gaussian")
FEW, ALL = 4, 300


def federation(seed: int, kind: str) -> tuple[Study, dict[str, pd.DataFrame]]:
    """Two to eight sites whose effects differ from the common ones by up to as much as these are large."""
    random = np.random.default_rng(seed)
    sites, size, differ = int(random.integers(2, 9)), int(random.integers(2, 7)), float(random.choice([0.2, 0.5, 1.0]))
    common, tables = random.normal(0, 0.6, size), {}
    for place in range(sites):
        rows = int(random.integers(40, 400))
        x = random.normal(random.normal(0, 0.5, size), 1, (rows, size))
        margin = x @ (common + differ * np.abs(common) * random.normal(size=size)) + random.normal(0, 0.7)
        table = pd.DataFrame(x, columns=[f"x{column}" for column in range(size)])
        if kind == "binomial":
            table["y"] = (random.random(rows) < 1 / (1 + np.exp(-margin))).astype(int)
        else:
            table["y"] = margin + random.normal(size=rows)
        tables[f"s{place}"] = table
    options = {} if kind == "gaussian" else {"event": ("1",), "non_event": ("0",)}
    names = [f"x{column}" for column in range(size)]
    rules = {name: ColumnRule(differs_at=tuple(tables)) for name in names}
    return Study(f"y ~ {' + '.join(names)}", kind, columns=rules, **options), tables


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(FEW))
def test_honest_sites_are_not_asked(kind, seed):
    assert fit_study(*federation(seed, kind)).questions == ()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_few_honest_sites_are_asked(kind):
    """Where effects differ by as much as they are large, all of them have another sign at a site now and then: 4 of each."""
    asked_of = 0
    for seed in range(ALL):
        try:
            asked_of += bool(fit_study(*federation(seed, kind)).questions)
        except SeparationError:
            continue
    assert asked_of <= ALL // 60


def turned(tables, site, outcome, how):
    return {**tables, site: tables[site].assign(**{outcome: how(tables[site][outcome])})}


@pytest.mark.parametrize("site", ["cleveland", "hungarian", "va"])
def test_hospitals_with_the_disease_coded_the_other_way(site, heart, heart_study, tmp_path):
    assert fit_study(heart_study, heart).questions == ()
    fit = fit_study(heart_study, turned(heart, site, "disease", lambda y: np.where(y == "yes", "no", "yes")))
    (question,) = fit.questions
    assert question.startswith(f"site '{site}' {ASKED}") and "held out 0." in question
    assert fit.summary().startswith(f"question: {question}\n")
    page = write_fit(fit, tmp_path).read_text(encoding="utf-8")
    assert page.index("says the opposite of the others") < page.index("Converged:")
    assert "question: site" in (tmp_path / "model.json").read_text(encoding="utf-8")


def test_of_two_sites_nobody_knows_which(heart, heart_study):
    two = {site: heart[site] for site in ("cleveland", "hungarian")}
    fit = fit_study(heart_study, turned(two, "hungarian", "disease", lambda y: np.where(y == "yes", "no", "yes")))
    assert fit.questions[0].startswith(
        "sites 'cleveland' and 'hungarian' say the opposite of each other: is the outcome of one coded the other way?"
    )


def slopes(share: float, noise: float, rows: int = 200) -> dict[str, pd.DataFrame]:
    """Two sites with a slope of 1 and one with minus a share of it; residuals are orthogonal to everything."""
    random, tables = np.random.default_rng(3), {}
    for name, slope in (("a", 1.0), ("b", 1.0), ("c", -share)):
        x, residual = random.normal(size=rows), random.normal(size=rows)
        basis = np.column_stack([np.ones(rows), x])
        residual -= basis @ np.linalg.lstsq(basis, residual, rcond=None)[0]
        tables[name] = pd.DataFrame({"x": x, "y": 5.0 + slope * x + noise * residual / residual.std()})
    return tables


def asked(share: float, noise: float) -> tuple[str, ...]:
    return fit_study(Study("y ~ x", "gaussian"), slopes(share, noise)).questions


def test_only_what_the_other_sign_explains():
    """A tenth of the disagreement is left at a slope of -0.5195: (1 - 0.5195)^2 = (1 + 0.5195)^2 / 10."""
    assert asked(0.54, 0.1)[0].startswith(f"site 'c' {ASKED}") and asked(0.5, 0.1) == ()
    assert asked(-0.5, 0.1) == () and asked(-1.0, 0.1) == ()


def test_only_what_is_beyond_chance():
    fits = {noise: fit_study(Study("y ~ x", "gaussian"), slopes(1.0, noise)) for noise in (4.0, 8.0)}
    assert any("'c'" in one for one in fits[4.0].questions) and fits[8.0].questions == ()
    p_values = []
    for noise in np.linspace(4.0, 8.0, 9):
        found = asked(1.0, noise)
        p_values.append(float(found[0].split("(p ")[1].split(")")[0]) if found else None)
    told = [value for value in p_values if value is not None]
    assert told == sorted(told) and 1e-8 < max(told) < 1e-6 and p_values.index(None) == len(told)  # then never again


def test_only_what_is_ordered_worse_than_chance(heart, heart_study):
    fit = fit_study(heart_study, turned(heart, "hungarian", "disease", lambda y: np.where(y == "yes", "no", "yes")))
    names, size = [site.site for site in fit.sites], fit.inference.penalty.size
    for index, named in ((0.5 - 3 * 0.02 - 1e-9, ["hungarian"]), (0.5 - 3 * 0.02 + 1e-9, [])):
        orders = [Order(index, 0.02) for _ in names]
        found = opposites(fit.inference, fit.without, names, range(size - 1), orders)
        assert [one.site for one in found] == named
    unknown = [None] * len(names)
    assert opposites(fit.inference, fit.without, names, range(size - 1), unknown) == []
    gone = replace(fit.without, fitted=np.full_like(fit.without.fitted, np.nan))
    assert opposites(fit.inference, gone, names, range(size - 1), [Order(0.1, 0.01)] * len(names)) == []


def test_what_has_no_other_way_is_not_asked_about():
    """Without a slope there is no sign; counts and classes have no way to be coded the other way round."""
    assert fit_study(Study("y ~ 1", "gaussian"), slopes(1.0, 0.5)).questions == ()
    counts = {name: table.assign(y=np.round(np.exp(table["y"] / 3))) for name, table in slopes(1.0, 0.5).items()}
    assert fit_study(Study("y ~ x", "poisson"), counts).questions == ()
    assert asked(1.0, 0.5)[0].startswith(f"site 'c' {ASKED}") and "held out" not in asked(1.0, 0.5)[0]
