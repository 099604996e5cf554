"""Fits of outcomes of any size, by every second-order method: statsmodels' coefficients, or a sentence."""

from __future__ import annotations

import pytest
from tests.oracle.any_mean import EQUAL, METHODS, judged, problem_of

SAMPLE = (12, 1, 14, 3, 4, 5)  # two of each family
HUNDREDS = range(5)


@pytest.mark.parametrize("seed", SAMPLE)
def test_outcomes_of_any_size(seed):
    problem = problem_of(seed)
    expected = problem.expected()
    assert expected is not None
    method = METHODS[seed % len(METHODS)]
    assert judged(problem, method, expected) == EQUAL, problem.words


@pytest.mark.nightly
@pytest.mark.parametrize("hundred", HUNDREDS)
def test_of_five_hundred_98_in_100_are_those_of_statsmodels_and_none_is_silently_wrong(hundred):
    found = []
    for seed in range(100 * hundred, 100 * hundred + 100):
        problem = problem_of(seed)
        expected = problem.expected()
        if expected is not None:
            method = METHODS[(seed // 3) % len(METHODS)]
            found.append(judged(problem, method, expected))
    assert not [one for one in found if one.startswith(("WRONG", "CRASH"))]
    assert found.count(EQUAL) >= 0.98 * len(found), [one for one in found if one != EQUAL]
