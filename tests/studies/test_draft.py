"""Drafts from tables at hand are fitted as they are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import statsmodels.formula.api as smf
from statsmodels.genmod.families import Binomial

from fedns.core.errors import DataError
from fedns.studies.draft import draft_study, draft_text
from fedns.studies.fit import fit_study
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import read_frame


def drafted(frames, tmp_path, outcome=None):
    """The draft, by way of its file, and its fit."""
    draft = draft_study(frames, outcome)
    path = tmp_path / "study.toml"
    path.write_text(draft_text(draft), encoding="utf-8")
    study = Study.read(path)
    assert study.digest == draft.study.digest
    return draft, fit_study(study, frames)


def test_the_four_hospitals(heart, tmp_path):
    frames = {name: read_frame(frame) for name, frame in heart.items()}
    draft, fit = drafted(frames, tmp_path)
    assert fit.converged and draft.study.event == ("yes",) and draft.study.missing == "complete"
    assert draft.left_out["chol"] == "100% of its values are missing at switzerland, where 0 means missing"
    rows = pd.concat(heart.values()).drop(columns="chol").dropna()
    rows = rows.assign(y=(rows["disease"] == "yes").astype(float))
    oracle = smf.glm("y ~ age + sex + C(cp) + trestbps + thalach + exang", rows, family=Binomial()).fit(tol=1e-14)
    assert abs(fit["age"] - oracle.params["age"]) < 1e-10


@pytest.mark.parametrize(
    "name", ["school_139clients", "cal_housing", "abalone_scale", "a9a", pytest.param("w8a", marks=pytest.mark.nightly)]
)
def test_real_sets(name, real_data, tmp_path):
    dataset = real_data(name)
    features = dataset.features.toarray() if scipy.sparse.issparse(dataset.features) else np.asarray(dataset.features)
    frame = pd.DataFrame(features.astype(float), columns=[f"x{column}" for column in range(features.shape[1])])
    frame["outcome"] = np.asarray(dataset.targets)
    sites = dataset.groups if dataset.groups is not None else np.arange(len(frame)) % 5
    frames = {f"site{site}": read_frame(frame[sites == site]) for site in np.unique(sites)}
    draft, fit = drafted(frames, tmp_path)
    assert fit.converged, fit.reason
    assert draft.study.family == ("gaussian" if dataset.task == "regression" else "binomial")
    assert fit.newton_decrement < 1e-8


def test_what_is_no_measurement_is_left_out_and_said_so(three_sites):
    tables = {
        name: frame.assign(
            id=range(len(frame)), born="1970-01-01", constant=1, name=[f"{name} {i}" for i in range(len(frame))]
        )
        for name, frame in three_sites.items()
    }
    tables["south"] = tables["south"].assign(extra=1)
    draft = draft_study({name: read_frame(table) for name, table in tables.items()}, "score")
    assert set(draft.left_out) == {"id", "born", "constant", "name", "extra"}
    assert draft.study.family == "gaussian"


def test_codes_for_missing_values_are_recognised(three_sites):
    north = three_sites["north"].copy()
    north.loc[:5, "dose"] = -999
    draft = draft_study({name: read_frame(frame) for name, frame in (three_sites | {"north": north}).items()}, "score")
    assert draft.study.rule("dose").missing_codes == (-999.0,) and draft.study.missing == "complete"


def test_tables_without_a_common_column_are_refused(three_sites):
    frames = {"a": read_frame(three_sites["north"][["age", "score"]]), "b": read_frame(three_sites["west"][["dose", "arm"]])}
    with pytest.raises(DataError, match="no column in common"):
        draft_study(frames)
