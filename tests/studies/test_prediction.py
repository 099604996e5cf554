"""Predictions are those of statsmodels, and a row that the model cannot speak of is refused by itself."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from tests.studies.conftest import made_up

from fedns.cli import main
from fedns.core.errors import ConfigError, DataError
from fedns.studies.fit import fit_study
from fedns.studies.outputs import write_fit
from fedns.studies.prediction import Model
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

CASE = {"event": ("case",), "non_event": ("control",)}


def saved(study, folder):
    write_fit(fit_study(study, made_up()), folder)
    return Model.load(folder / "model.json")


@pytest.fixture(scope="module")
def rows():
    frame = pd.concat(made_up().values(), ignore_index=True)
    return frame.assign(y=(frame["ill"] == "case").astype(float))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rules = {"age": ColumnRule(range=(18.0, 110.0))}
    return saved(
        Study("ill ~ age * sex + log(dose) + arm", "binomial", columns=rules, **CASE), tmp_path_factory.mktemp("model")
    )


def test_events_as_statsmodels(model, rows):
    rival = smf.glm("y ~ age * C(sex) + np.log(dose) + C(arm)", rows, family=sm.families.Binomial()).fit(tol=1e-14)
    new = made_up(seed=5)["north"].drop(columns=["ill"])
    theirs = rival.get_prediction(new).summary_frame(alpha=0.1)
    found = model.predict(new, level=0.9)
    assert found.means == pytest.approx(theirs["mean"].to_numpy(), rel=1e-7)
    assert found.standard_errors == pytest.approx(theirs["mean_se"].to_numpy(), rel=1e-6)
    assert found.low == pytest.approx(theirs["mean_ci_lower"].to_numpy(), rel=1e-6)
    assert found.high == pytest.approx(theirs["mean_ci_upper"].to_numpy(), rel=1e-6)


def test_numbers_and_counts_with_an_offset_as_statsmodels(rows, tmp_path):
    new = made_up(seed=5)["south"]
    linear = smf.ols("score ~ age + dose", rows).fit().get_prediction(new).summary_frame()
    found = saved(Study("score ~ age + dose", "gaussian"), tmp_path / "a").predict(new)
    columns = found.means, found.standard_errors, found.low, found.high
    for own, name in zip(columns, ("mean", "mean_se", "mean_ci_lower", "mean_ci_upper"), strict=True):
        assert own == pytest.approx(linear[name].to_numpy(), rel=1e-7)
    counts = smf.glm("falls ~ age", rows, family=sm.families.Poisson(), offset=np.log(rows["time"])).fit(tol=1e-14)
    expected = counts.predict(new, offset=np.log(new["time"]))
    found = saved(Study("falls ~ age + offset(log(time))", "poisson"), tmp_path / "b").predict(new)
    assert found.means == pytest.approx(expected.to_numpy(), rel=1e-7)


def test_every_row_is_refused_by_itself(model):
    good = {"age": 60.0, "dose": 90.0, "arm": "low", "sex": "f"}
    new = pd.DataFrame(
        [good, {**good, "arm": "middle"}, {**good, "age": np.nan}, {**good, "age": 140.0}, {**good, "dose": -1.0}]
    )
    found = model.predict(new)
    words = (
        "",
        "'arm' has the level 'middle'",
        "'age' is missing",
        "'age' is 140, outside",
        "log(dose) is not defined at -1",
    )
    assert all(
        reason.startswith(word) and bool(reason) == bool(word) for reason, word in zip(found.refusals, words, strict=True)
    )
    assert np.isfinite(found.means[0]) and np.isnan(found.means[1:]).all() and found.refused == 4


def test_what_cannot_be_used_is_refused(model, tmp_path):
    with pytest.raises(DataError, match="no column 'arm'"):
        model.predict(pd.DataFrame({"age": [1.0], "dose": [2.0], "sex": ["f"]}))
    with pytest.raises(ConfigError, match="level of an interval"):
        model.predict(pd.DataFrame(), level=2.0)
    with pytest.raises(ConfigError, match="HC7"):
        model.predict(pd.DataFrame(), kind="HC7")
    path = tmp_path / "other.json"
    for text in ("{}", "[", json.dumps({"study": {}})):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="is no model of fedns"):
            Model.load(path)


def test_the_command_writes_a_table(tmp_path, capsys):
    saved(Study("score ~ age + arm", "gaussian"), tmp_path)
    new = tmp_path / "new.csv"
    pd.DataFrame({"age": [50, 60], "arm": ["low", "other"]}).to_csv(new, index=False)
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path / "model.json"), str(new), "--out", str(tmp_path / "out.csv")])
    assert ended.value.code == 1 and "row 2: 'arm' has the level 'other'" in capsys.readouterr().out
    found = pd.read_csv(tmp_path / "out.csv")
    assert list(found.columns) == ["row", "prediction", "std_error", "low", "high", "refused"]
    assert found["prediction"].notna().tolist() == [True, False]
