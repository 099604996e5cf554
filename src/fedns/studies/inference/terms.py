"""Tests of whole terms, how far columns say the same, and two models compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedns.core.errors import ConfigError
from fedns.core.types import FloatArray
from fedns.studies.inference.distributions import chi2_sf, f_sf
from fedns.studies.inference.estimates import ROUNDING, Inference
from fedns.studies.tables.formula import INTERCEPT


@dataclass(frozen=True)
class TermTest:
    """Whether all coefficients of a term are 0, by Wald's test, and the term's variance inflation."""

    term: str
    test: str  # "F" or "chi2"
    statistic: float  # NaN where the covariance, clustered by few sites, says nothing of the whole term
    df: int
    p_value: float
    inflation: float  # GVIF ** (1 / df): the VIF of a term with one column; NaN where it is the only one


def term_tests(inference: Inference, terms: Mapping[str, Sequence[str]], kind: str = "model") -> tuple[TermTest, ...]:
    """terms: names of the coefficients of each."""
    covariance, model = inference.covariance(kind), inference.covariance("model")
    kept = [place for place, value in enumerate(inference.coefficients) if not math.isnan(value)]
    columns = [place for place in kept if inference.names[place] not in terms.get(INTERCEPT, ())]
    found = []
    for term, names in terms.items():
        places = [inference.names.index(name) for name in names if inference.names.index(name) in kept]
        if not places or term == INTERCEPT:
            continue
        own = np.ix_(places, places)
        statistic = _wald(inference.coefficients[places], covariance[own], model[own])
        found.append(_test(inference, kind, term, statistic, len(places), _inflation(model, places, columns)))
    return tuple(found)


def _wald(estimates: FloatArray, covariance: FloatArray, model: FloatArray) -> float:
    """estimates' covariance^-1 estimates; NaN where in some direction the covariance is 0 but for rounding.

    So it is where errors are clustered by site and a term has as many coefficients as there are sites, or more, and
    everywhere where the outcome never differs from what is predicted.
    """
    if not model.any():
        return math.nan
    shares = np.linalg.eigvals(np.linalg.solve(model, covariance)).real
    if shares.min() <= ROUNDING * max(1.0, shares.max()):
        return math.nan
    return float(estimates @ np.linalg.solve(covariance, estimates))


def _test(inference: Inference, kind: str, term: str, statistic: float, df: int, inflation: float) -> TermTest:
    if inference.statistic_name(kind) == "t":
        p_value = f_sf(df, inference.residual_df, statistic / df)
        return TermTest(term, "F", statistic / df, df, p_value, inflation)
    return TermTest(term, "chi2", statistic, df, chi2_sf(df, statistic), inflation)


def _inflation(covariance: FloatArray, places: list[int], columns: list[int]) -> float:
    """Fox and Monette's generalised variance inflation: how much wider the term's region is for the other columns."""
    others = [place for place in columns if place not in places]
    if not (others and covariance[places, places].any()):
        return math.nan
    roots = np.sqrt(np.diag(covariance))
    correlation = covariance / roots[:, None] / roots
    own, rest, whole = (np.linalg.slogdet(correlation[np.ix_(part, part)])[1] for part in (places, others, columns))
    return float(math.exp((own + rest - whole) / len(places)))


class LikelihoodRatio(NamedTuple):
    """The likelihood-ratio test of a smaller model within a larger one; an F test where the dispersion is estimated."""

    test: str
    statistic: float
    df: float
    p_value: float


def likelihood_ratio(smaller: Inference, larger: Inference) -> LikelihoodRatio:
    """Whether the larger model fits better than by chance; both are of the same rows."""
    if larger.is_sample:
        raise ConfigError("rows that stand for others have no likelihood to compare models by: see term_tests()")
    df = larger.used - smaller.used
    deviances = [float(2.0 * one.curvature.weights @ one.need_sums().losses) for one in (smaller, larger)]
    if larger.family.dispersion_is_known:
        statistic = deviances[0] - deviances[1]
        return LikelihoodRatio("chi2", statistic, df, chi2_sf(df, statistic))
    statistic = (deviances[0] - deviances[1]) / df / larger.dispersion
    return LikelihoodRatio("F", statistic, df, f_sf(df, larger.residual_df, statistic))
