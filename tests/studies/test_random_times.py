"""Cox studies whose sites are strata: what no risk set tells apart is left out as R does, and the rest is right."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from tests.studies.random_times import random_times, stratified_efron, told_apart

from fedns.studies.fit import fit_study

FEW, ALL = 12, 80


@pytest.mark.parametrize("seed", [*range(FEW), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(FEW, ALL))])
def test_right_or_left_out_as_in_r(seed):
    problem = random_times(seed)
    fit = fit_study(problem.study, problem.tables)
    kept = told_apart(problem)
    assert fit.names == tuple(problem.columns)
    assert [alias.name for alias in fit.aliased] == [name for name in fit.names if name not in kept]
    assert fit.converged, fit.reason
    expected = stratified_efron(problem, kept)
    assert np.allclose([fit[name] for name in kept], expected, rtol=1e-8, atol=1e-10)
    assert np.isfinite([fit.standard_errors()[fit.names.index(name)] for name in kept]).all()
    assert all(f"column {alias.name} was left out" in fit.summary() for alias in fit.aliased)


def test_the_oracle_is_that_of_statsmodels():
    problem = random_times(1)
    rows, kept = problem.rows, told_apart(problem)
    x = np.column_stack([problem.columns[name] for name in kept])
    model = sm.PHReg(rows["months"], x, (rows["died"] == "yes").astype(float), strata=rows["site"], ties="efron")
    assert np.allclose(model.fit().params, stratified_efron(problem, kept), rtol=1e-6)
