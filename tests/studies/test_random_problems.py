"""Every random problem ends in the pooled answer or in a refusal that names the reason: never in anything else."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.studies.random_problems import random_problem, right_answer

from fedns.core.errors import FednsError
from fedns.studies.fit import fit_study
from fedns.studies.fitting.estimate import SeparationError

FEW, ALL = 25, 500


@pytest.mark.parametrize("seed", [*range(FEW), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(FEW, ALL))])
def test_the_pooled_answer_or_a_reason(seed):
    problem = random_problem(seed)
    try:
        fit = fit_study(problem.study, problem.tables)
    except SeparationError as refusal:
        assert problem.study.family != "gaussian" and "separate" in str(refusal)
        return
    except FednsError as refusal:
        assert problem.mishaps, f"a clean problem was refused: {refusal}"
        assert all(word in str(refusal) for word in problem.words), str(refusal)
        return
    assert not problem.mishaps, f"{problem.mishaps[0]} went unnoticed"
    assert fit.converged, fit.reason
    kept = [name for name in fit.names if name not in problem.left_out]
    assert tuple(alias.name for alias in fit.aliased) == problem.left_out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels warns where outcomes are nearly separated
        expected = right_answer(problem, tuple(kept), dict(fit.agreed.design.agreement.fills))
    found = np.array([fit[name] for name in kept])
    if problem.left_out:
        assert np.isnan(fit["same"])
    assert (np.abs(found - expected) <= 1e-8 * (1 + np.abs(expected))).all()
