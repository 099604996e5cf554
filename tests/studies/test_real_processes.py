"""Studies, random problems and situations over sites as processes of their own, on each engine: the simulator's answers."""

from __future__ import annotations

import contextlib
import importlib.util
import json

import numpy as np
import pytest
from tests.studies.random_problems import OTHERS, random_problem
from tests.studies.real_sites import SITES, place_table, provision, real_sites
from tests.studies.situations import SITUATIONS, save

from fedns.cli import main
from fedns.core.errors import FednsError
from fedns.lab.comparison.federation_demo import site_processes
from fedns.studies.fit import fit_study
from fedns.studies.inference.estimates import KINDS
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule
from fedns.studies.tables.feature_map import MapRule

CASE = {"event": ("case",), "non_event": ("control",)}
AGE = {"age": ColumnRule(range=(10.0, 120.0), unit="years")}
STUDIES = [
    Study("ill ~ age + dose + arm + sex", "binomial", **CASE),
    Study("ill ~ age * arm", "binomial", **CASE),
    Study("ill ~ poly(age, 2) + log(dose)", "binomial", **CASE),
    Study("ill ~ bs(age, df=4) + sex", "binomial", columns=AGE, **CASE),
    Study("ill ~ age + arm", "binomial", weights="weight", **CASE),
    Study("ill ~ age + arm", "binomial", strength=1e-3, **CASE),
    Study("ill ~ age + twin + sex", "binomial", **CASE),
    Study("ill ~ age + twin", "binomial", aliased="refuse", **CASE),
    Study("ill ~ dose_there", "binomial", **CASE),
    Study("ill ~ age + typo", "binomial", **CASE),
    Study("ill ~ age + code", "binomial", **CASE),
    Study("ill ~ gap + sex", "binomial", **CASE),
    Study("ill ~ gap + sex", "binomial", missing="complete", **CASE),
    Study("ill ~ gap + sex", "binomial", missing="mean", **CASE),
    Study("ill_there ~ age", "binomial", **CASE),
    Study("never ~ age + arm", "binomial", **CASE),
    Study("nothing ~ age", "gaussian"),
    Study("score ~ age + arm:sex", "gaussian"),
    Study("score ~ 0 + arm + offset(time)", "gaussian", strengths={"arm": 1e-2}),
    Study("falls ~ age + arm + offset(log(time))", "poisson"),
    Study("ill ~ age + dose + arm", "binomial", strength=1e-2, feature_map=MapRule("nystroem", 9), **CASE),
    Study("score ~ age + dose", "gaussian", strength=1e-2, feature_map=MapRule("fourier", 10)),
]
REFUSED = {7, 8, 9, 10, 11, 14, 15, 16}


def tables_of(three_sites):
    tables = {}
    for name, frame in three_sites.items():
        south = name == "south"
        tables[name] = frame.assign(
            twin=2 * frame["age"] + 1,
            dose_there=frame["dose"] / (1000 if south else 1),
            typo=frame["arm"].replace("placebo", "plasebo") if south else frame["arm"],
            code=(frame["sex"] == "m") + (1 if south else 0),
            gap=frame["age"].where(frame["age"] > 52) if south else frame["age"],
            ill_there=frame["ill"].str.title() if south else frame["ill"],
            never=frame["ill"].where(frame["arm"] != "low", "control"),
        )
    return tables


FEW_STUDIES = (0, 8, 13, 20)  # an answer, a refusal (a unit), missing values, a feature map
# From 40 on they are of classes and of times until an event. All in all 25 end in a fit, the others in a refusal.
PROBLEMS, FEW_PROBLEMS, FITTED = (*range(30), *range(40, 50)), (0, 40, 42), 25
FEW_SITUATIONS = ("decimal commas",)
WITHHELD = "it cannot answer; why stands in its own log"


def sample(everything, few):
    """All of them in the nightly tests, a few always."""
    return [one if one in few else pytest.param(one, marks=pytest.mark.nightly) for one in everything]


@pytest.fixture(scope="module", params=["flower", "nvflare"])
def federation(request, tmp_path_factory):
    if importlib.util.find_spec({"flower": "flwr"}.get(request.param, request.param)) is None:
        pytest.skip(f"{request.param} is not installed")
    with real_sites(tmp_path_factory.mktemp(request.param) / "trial", request.param) as running:
        yield running


def same_ending(federation, study, paths):
    """Both give the same coefficients, or the same sentence; the sentence, if there is one."""
    try:
        here = fit_study(study, paths)
    except FednsError as refusal:
        with pytest.raises(FednsError) as there:
            federation.fit(study, paths)
        assert str(there.value) == str(refusal)
        return str(refusal)
    there = federation.fit(study, paths)
    assert there.coefficients.tobytes() == here.coefficients.tobytes(), study.formula
    assert there.reason == here.reason and there.notes == here.notes
    for kind in KINDS:
        assert there.covariance(kind).tobytes() == here.covariance(kind).tobytes(), kind
    assert str(there.goodness) == str(here.goodness) and there.term_tests() == here.term_tests()
    assert np.array_equal(there.site_estimates.without, here.site_estimates.without, equal_nan=True)
    assert _said(there.prediction) == _said(here.prediction)
    return ""


def _said(prediction):
    return prediction if isinstance(prediction, str) else str(prediction.as_dict())


@pytest.mark.slow
@pytest.mark.parametrize("number", sample(range(len(STUDIES)), FEW_STUDIES))
def test_a_study_over_real_sites(number, federation, three_sites, tmp_path):
    refusal = same_ending(federation, STUDIES[number], save(tables_of(three_sites), tmp_path))
    assert bool(refusal) == (number in REFUSED)


def problem_of(seed):
    return random_problem(seed) if seed < 40 else random_problem(seed, OTHERS)


@pytest.mark.nightly
def test_most_random_problems_end_in_a_fit():
    """So that what a fit is worth is compared over each engine for more than twenty."""
    fitted = 0
    for seed in PROBLEMS:
        with contextlib.suppress(FednsError):
            fit_study(problem_of(seed).study, problem_of(seed).tables)
            fitted += 1
    assert fitted == FITTED


@pytest.mark.slow
@pytest.mark.parametrize("seed", sample(PROBLEMS, FEW_PROBLEMS))
def test_a_random_problem_over_real_sites(seed, federation, tmp_path):
    problem = problem_of(seed)
    renamed = dict(zip(SITES, problem.tables.values(), strict=False))
    same_ending(federation, problem.study, save(renamed, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", sample([situation.name for situation in SITUATIONS], FEW_SITUATIONS))
def test_a_situation_over_real_sites(name, federation, three_sites, tmp_path):
    situation = next(situation for situation in SITUATIONS if situation.name == name)
    paths = situation.write(three_sites, tmp_path)
    if name == "two columns of one name":  # such a table is not read: the owner is told why, the coordinator is not
        with pytest.raises(FednsError, match=f"site 'south': refuses: R7: {WITHHELD}"):
            federation.fit(situation.study, paths)
        assert "more than one column called 'age'" in federation.log_of("south")
        return
    refusal = same_ending(federation, situation.study, paths)
    assert bool(refusal) == bool(situation.refusal)


@pytest.mark.slow
def test_the_command_over_real_sites(federation, three_sites, tmp_path, capsys):
    """`fedns fit --federation` opens the engine itself, so it gets a federation of its own."""
    engine = federation.experiment.engine
    folder, paths = tmp_path / "trial", save(three_sites, tmp_path)
    provision(folder, engine, tuple(paths))
    for name, path in paths.items():
        place_table(folder / "sites" / name, path.read_bytes())
    study = tmp_path / "study.toml"
    study.write_text('formula = "score ~ age + arm"\nfamily = "gaussian"\n', encoding="utf-8")
    with site_processes(folder), pytest.raises(SystemExit) as ended:
        main(["fit", str(study), "--federation", str(folder), "--out", str(tmp_path / "fit")])
    assert ended.value.code in (0, None)
    model = json.loads((tmp_path / "fit" / "model.json").read_text(encoding="utf-8"))
    here = fit_study(Study("score ~ age + arm", "gaussian"), paths)
    assert np.array_equal(list(model["coefficients"].values()), here.coefficients)
    assert "converged" in capsys.readouterr().out
