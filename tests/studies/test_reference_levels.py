"""One rule for the reference level of a category, and every result says which level it is."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.genmod.families import Binomial

from fedns.studies.draft import draft_study, draft_text
from fedns.studies.fit import fit_study
from fedns.studies.outputs import write_fit
from fedns.studies.prediction import Model
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import read_frame


def tables(seed=0, rows=240):
    """Two sites; the most common level is the last by name, and numbers are codes."""
    draw = np.random.default_rng(seed)
    found = {}
    for site in ("north", "south"):
        frame = pd.DataFrame(
            {
                "sex": np.where(draw.random(rows) < 0.75, "male", "female"),
                "ward": draw.choice(["10", "9", "2"], rows, p=[0.6, 0.2, 0.2]).astype(int),
                "age": draw.normal(50, 9, rows).round(1),
            }
        )
        margin = 0.05 * (frame["age"] - 50) + 0.8 * (frame["sex"] == "male") - 0.5 * (frame["ward"] == 9)
        frame["disease"] = np.where(draw.random(rows) < 1 / (1 + np.exp(-margin)), "yes", "no")
        found[site] = frame
    return found


FORMULA = "disease ~ sex + C(ward) + age"
BINOMIAL = {"family": "binomial", "event": ("yes",), "non_event": ("no",)}


def drafted(frames, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(draft_text(draft_study({name: read_frame(frame) for name, frame in frames.items()})), encoding="utf-8")
    return Study.read(path)


def test_a_draft_and_python_give_the_same_coefficients(tmp_path):
    frames = tables()
    study = drafted(frames, tmp_path)
    assert study.formula == FORMULA
    by_command, by_hand = fit_study(study, frames), fit_study(Study(FORMULA, **BINOMIAL), frames)
    assert by_command.names == by_hand.names == ("Intercept", "sex[male]", "ward[9]", "ward[10]", "age")
    assert np.array_equal(by_command.coefficients, by_hand.coefficients)
    rows = pd.concat(frames.values()).assign(y=lambda f: (f["disease"] == "yes").astype(float))
    oracle = smf.glm("y ~ C(sex) + C(ward) + age", rows, family=Binomial()).fit(tol=1e-14)  # the first by name, the least
    assert np.allclose(by_hand.coefficients, oracle.params, atol=1e-9)


def test_classes_of_an_outcome_too(tmp_path):
    frames = {
        site: frame.assign(disease=np.where(frame["ward"] == 10, "severe", np.where(frame["age"] > 50, "mild", "well")))
        for site, frame in tables().items()
    }
    assert drafted(frames, tmp_path).rule("disease").levels == ("mild", "severe", "well")


@pytest.mark.parametrize(
    ("formula", "told", "silent"),
    [
        (FORMULA, {"sex": "female", "ward": "2"}, set()),
        ("disease ~ 0 + sex + C(ward)", {"ward": "2"}, {"sex"}),  # every level of sex has a coefficient
        ("disease ~ age + sex:age", {"sex": "female"}, set()),
        ("disease ~ sex * C(ward)", {"sex": "female", "ward": "2"}, set()),
        ("disease ~ age", {}, {"sex", "ward"}),
    ],
)
def test_every_result_says_the_reference_of_every_category(formula, told, silent, tmp_path):
    fit = fit_study(Study(formula, **BINOMIAL), tables())
    write_fit(fit, tmp_path)
    words = [" ".join(line.split()) for line in fit.summary().splitlines()]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    stored = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    for column, level in told.items():
        assert f"{column} reference: {level}" in words
        assert f">{column}</td>" in page and f">reference: {level}</td>" in page
        assert f">{column}</td>" in fit._repr_html_() and f">reference: {level}</td>" in fit._repr_html_()
    for column in silent:
        assert not any(line.startswith(f"{column} reference") for line in words)
    assert ("reference: " in page) == bool(told)
    assert stored["references"] == Model.load(tmp_path / "model.json").design.references == told


def test_the_table_of_coefficients_has_the_reference_beside_the_level(tmp_path):
    write_fit(fit_study(Study("disease ~ sex * C(ward) + age", **BINOMIAL), tables()), tmp_path)
    with (tmp_path / "coefficients.csv").open(encoding="utf-8", newline="") as file:
        lines = {line["name"]: (line["level"], line["reference"]) for line in csv.DictReader(file)}
    assert lines["sex[male]"] == ("male", "female") and lines["ward[9]"] == ("9", "2") and lines["age"] == ("", "")
    assert lines["sex[male]:ward[10]"] == ("male:10", "female:2")


def test_the_reference_that_a_study_names_is_the_one_told(tmp_path):
    text = f'formula = "{FORMULA}"\nfamily = "binomial"\n[outcome]\nevent = ["yes"]\nnon_event = ["no"]\n'
    (tmp_path / "study.toml").write_text(text + '[columns.sex]\nreference = "male"\n', encoding="utf-8")
    fit = fit_study(Study.read(tmp_path / "study.toml"), tables())
    assert "sex[female]" in fit.names and fit.agreed.design.references["sex"] == "male"
    assert any(" ".join(line.split()) == "sex reference: male" for line in fit.summary().splitlines())
