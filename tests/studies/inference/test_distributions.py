"""Tails and quantiles are scipy.stats' own."""

import numpy as np
import pytest
import scipy.stats

from fedns.studies.inference.distributions import Student, chi2_sf, f_sf

X = np.array([0.0, 0.3, 1.7, 6.0, 30.0])


@pytest.mark.parametrize("df", [1.0, 3.7, 50.0, 1e6])
def test_they_are_scipys(df):
    assert Student(df).sf(X) == pytest.approx(scipy.stats.t(df).sf(X), rel=1e-9)
    assert Student(df).ppf(0.975) == pytest.approx(scipy.stats.t(df).ppf(0.975), rel=1e-9)
    for x in X:
        assert chi2_sf(df, x) == pytest.approx(scipy.stats.chi2(df).sf(x), rel=1e-9)
        assert f_sf(df, 40.5, x) == pytest.approx(scipy.stats.f(df, 40.5).sf(x), rel=1e-8)


def test_the_normal_one():
    assert Student().sf(X) == pytest.approx(scipy.stats.norm.sf(X), rel=1e-12)
    assert Student().ppf(0.9) == pytest.approx(scipy.stats.norm.ppf(0.9), rel=1e-12)
