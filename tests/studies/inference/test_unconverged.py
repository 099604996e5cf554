"""A fit that has not converged says so before anything else, and has no standard errors unless asked for them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests.studies.conftest import made_up
from tests.studies.situations import STUDY

from fedns.core.errors import DataError
from fedns.core.termination import Ending, Verdict
from fedns.studies.fit import fit_study
from fedns.studies.fitting.ending import judged
from fedns.studies.outputs import write_fit
from fedns.studies.prediction import Model

SHORT = replace(STUDY, rounds=1)


def test_every_place_says_it_first(tmp_path):
    fit = fit_study(SHORT, made_up())
    words = f"not converged: {fit.reason}"
    assert not fit.converged and "used all 1 rounds" in fit.reason
    lines = fit.summary().splitlines()
    assert lines[0] == words and "--unconverged" in fit.summary() and "<0.001" not in fit.summary()
    assert fit._repr_html_().startswith(f"<p><strong>{words}")
    assert np.isnan(fit.to_frame()["std_error"]).all() and np.isfinite(fit.to_frame()["coefficient"]).all()
    for ask in (fit.standard_errors, fit.conf_int, fit.covariance, fit.term_tests, lambda: fit.goodness):
        with pytest.raises(DataError, match="since the fit has not converged"):
            ask()
    page = write_fit(fit, tmp_path).read_text(encoding="utf-8")
    assert page.index(words) < page.index("<h1>") and "<title>Not converged" in page and "p of the whole model" not in page
    table = pd.read_csv(tmp_path / "coefficients.csv")
    assert table.columns[0] == "converged" and set(table["converged"]) == {"no"} and table["p_value"].isna().all()
    model = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    assert next(iter(model)) == "not_converged" and model["not_converged"] == fit.reason and model["inference"] is None
    found = Model.load(tmp_path / "model.json").predict(made_up()["south"])
    assert np.isfinite(found.means).all() and np.isnan(found.standard_errors).all()


def test_whoever_asks_gets_them_with_the_same_first_words(tmp_path):
    fit = fit_study(SHORT, made_up()).although_unconverged()
    assert fit.summary().startswith("not converged: ") and "P>|z|" in fit.summary() and "log-likelihood" in fit.summary()
    assert np.isfinite(fit.standard_errors()).all()
    write_fit(fit, tmp_path)
    assert pd.read_csv(tmp_path / "coefficients.csv")["p_value"].notna().all()
    assert json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))["inference"]["covariance"]


@pytest.mark.parametrize("method", ["lbfgs", "fednl"])
def test_a_fit_at_the_maximum_has_converged_whatever_its_method_could_tell(method):
    """The gradient of a sum of rows does not reach 0: a tolerance below its rounding used up all rounds."""
    fit = fit_study(replace(STUDY, method=method, tolerance=1e-30, rounds=60), made_up())
    exact = fit_study(STUDY, made_up())
    assert fit.converged and fit.newton_decrement < 1e-8 and "standard errors from the maximum" in fit.reason
    assert fit.coefficients == pytest.approx(exact.coefficients, abs=1e-8)
    assert fit.standard_errors() == pytest.approx(exact.standard_errors(), rel=1e-6)


@pytest.mark.parametrize("ending", list(Ending))
@pytest.mark.parametrize(("left", "near"), [(9e-9, True), (1.1e-8, False), (2e-4, False), (np.nan, False)])
def test_where_the_coefficients_are_decides_in_both_directions(ending, left, near):
    found = judged(Verdict(ending, "it ended"), left, 1e-9).ending.converged
    if ending.converged:
        assert found == (left <= 1e-4)
    else:
        assert found == (near and ending.used_all_rounds)


def test_a_wider_tolerance_counts_too():
    assert judged(Verdict(Ending.OUT_OF_ROUNDS, ""), 1e-6, 1e-5).ending.converged
    assert not judged(Verdict(Ending.OUT_OF_ROUNDS, ""), 1e-6, 1e-7).ending.converged
