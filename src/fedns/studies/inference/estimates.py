"""Covariances of the coefficients: from the model, robust, or clustered by site; standard errors and intervals from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg

from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError, DataError, unknown
from fedns.core.types import FloatArray, IntArray
from fedns.models.family import Family
from fedns.models.problem import Problem
from fedns.numerics.linalg import symmetric_of
from fedns.studies.inference.distributions import Student
from fedns.studies.questions.asking import UNANSWERED
from fedns.studies.questions.fit_sums import FitSums, SiteSums, ask_sums
from fedns.studies.questions.information import SiteCurvature, ask_curvature, expected_information, triangle_part

KINDS = {
    "model": "from the model: the inverse of the information, times the dispersion",
    "HC0": "robust: right also where the variance is not what the family says",
    "HC1": "robust, times n / (n - p) for small samples",
    "site": "clustered: rows of one site may depend on each other; needs many sites",
}
_OF_SAMPLE = "robust, times n / (n - 1), since weights are those of a sample: as R's svyglm and Stata's pweight"
_WEIGHTED = {
    "precision": "weights are precisions: a row of weight 2 is one row with half the variance, and n counts rows",
    "sampling": "weights are those of a sample: there is no likelihood of the rows, hence no AIC and no test by it",
}
ROUNDING = 1e-10  # of the model's variance: a variance below is 0 but for rounding
_SINGULAR = 1e-13  # what is left of a column of unit length, squared, after those before it are taken out
_NO_COLUMN = 1e-12  # of the joint information: a column that a site has nothing of
_ENOUGH_SITES = 10  # fewer clusters than that give standard errors that are too small


@dataclass(frozen=True, eq=False)
class Inference:
    """The worth of coefficients, by the curvature and the sums of all sites.

    Fitted coefficients are those that were kept, on the scale of the fit; `transform` makes reported ones of them.
    """

    names: tuple[str, ...]
    coefficients: FloatArray  # (names,), NaN for a column that was left out
    family: Family
    transform: FloatArray  # (names, fitted), zeros for a column that was left out
    curvature: SiteCurvature  # of the fitted coefficients
    fitted: FloatArray  # (fitted,)
    penalty: FloatArray  # (fitted,) second derivatives of the penalty, in the mean
    expected_triangle: FloatArray | None = None  # (entries,) the expected information of all sites, where it is another
    sums: SiteSums | None = None
    missing: str = ""  # why there are no sums
    weights_are: str = "counts"  # or precision, or sampling
    rows: FloatArray | None = None  # (sites,), needed where weights are no counts

    @cached_property
    def weight(self) -> float:
        """The sum of the weights."""
        return float(self.curvature.weights.sum())

    @cached_property
    def site_rows(self) -> FloatArray:
        """The rows of each site, which a weight that is a count says itself: (sites,)."""
        return self.curvature.weights if self.rows is None or self.weights_are == "counts" else self.rows

    @cached_property
    def observations(self) -> float:
        return float(self.site_rows.sum())

    @property
    def is_sample(self) -> bool:
        """Whether rows stand for others: then there is no likelihood, and what is known of the errors is robust."""
        return self.weights_are == "sampling"

    @cached_property
    def hessians(self) -> FloatArray:
        """The Hessian of each site, in the mean over its rows: (sites, fitted, fitted)."""
        return symmetric_of(self.curvature.triangles, self.penalty.size)

    @cached_property
    def information(self) -> FloatArray:
        """The data's information: (fitted, fitted)."""
        return np.asarray(np.einsum("j,jab->ab", self.curvature.weights, self.hessians))

    def alone(self, site: int) -> tuple[IntArray, FloatArray] | None:
        """Coefficients that a site tells of by itself, and the inverse of its own Hessian there; None where it cannot."""
        hessian, joint = self.hessians[site], np.diag(self.information) / self.weight
        has = np.flatnonzero(np.diag(hessian) > _NO_COLUMN * joint)
        if self.site_rows[site] <= has.size:
            return None
        try:
            return has, inverse(hessian[np.ix_(has, has)])
        except DataError:
            return None

    @cached_property
    def bread(self) -> FloatArray:
        """The inverse of the information, with the penalty's curvature: (fitted, fitted)."""
        return inverse(self.information + self.weight * np.diag(self.penalty))

    @cached_property
    def model_bread(self) -> FloatArray:
        """The same from the expected information, which standard errors from the model are made of."""
        if self.expected_triangle is None:
            return self.bread
        expected = symmetric_of(self.weight * self.expected_triangle, self.penalty.size)
        return inverse(expected + self.weight * np.diag(self.penalty))

    @cached_property
    def used(self) -> float:
        """Coefficients, or with a penalty the effective number of them."""
        return float(np.einsum("ab,ba->", self.bread, self.information)) if self.penalised else float(self.penalty.size)

    @property
    def penalised(self) -> bool:
        return bool(self.penalty.any())

    @property
    def residual_df(self) -> float:
        return self.observations - self.used

    @cached_property
    def dispersion(self) -> float:
        if self.family.dispersion_is_known:
            return 1.0
        pearson = float(self.curvature.weights @ self.need_sums().pearson)
        scale = self.observations / self.weight if self.is_sample else 1.0  # only shares matter where rows stand for others
        return self.family.estimated_dispersion(scale * pearson, self.observations, self.used)

    def need_sums(self) -> SiteSums:
        """The sums, or a refusal that says why they are not there."""
        if self.sums is None:
            raise DataError(f"the sites' sums are not there: {self.missing}")
        return self.sums

    def covariance(self, kind: str = "model") -> FloatArray:
        """The covariance of the reported coefficients: (names, names), NaN for columns that were left out."""
        found = self.transform @ self._fitted_covariance(self.kind(kind)) @ self.transform.T
        # Clustered by site, a coefficient that one site alone tells of has a variance of 0: rounding may bring it below.
        np.fill_diagonal(found, np.maximum(found.diagonal(), 0.0))
        gone = np.isnan(self.coefficients)
        found[gone], found[:, gone] = np.nan, np.nan
        return found

    def kind(self, kind: str) -> str:
        """The kind of standard errors that is meant: without a likelihood there are none from the model."""
        if kind not in KINDS:
            raise ConfigError(unknown("kind of standard errors", kind, tuple(KINDS)))
        return "HC1" if kind == "model" and not self.family.has_likelihood else kind

    def _fitted_covariance(self, kind: str) -> FloatArray:
        if kind == "model" and not self.is_sample:
            return self.dispersion * self.model_bread
        sites, size, rows = self.curvature.weights.size, self.penalty.size, self.observations
        if kind == "site":
            if sites < 2:
                raise DataError("standard errors clustered by site need at least two sites")
            totals = self.curvature.weights[:, None] * self.curvature.gradients
            scores = totals.T @ totals
            factor = sites / (sites - 1) * (rows - 1) / (rows - size) if rows > size else math.nan
        else:
            scores = symmetric_of(self.curvature.weights @ self.need_sums().score_triangles, size)
            lost = {"model": 1, "HC1": size, "HC0": 0}[kind]
            factor = rows / (rows - lost) if rows > lost else math.nan
        return factor * self.bread @ scores @ self.bread

    def standard_errors(self, kind: str = "model") -> FloatArray:
        return np.sqrt(np.diag(self.covariance(kind)))

    def distribution(self, kind: str = "model") -> Student:
        """The distribution of statistics: t where the dispersion is estimated, as in R, else normal."""
        if self.statistic_name(kind) == "t":
            return Student(self.residual_df)
        return Student()

    def statistic_name(self, kind: str = "model") -> str:
        estimated = self.is_sample or not self.family.dispersion_is_known
        return "t" if self.kind(kind) == "model" and estimated else "z"

    def statistics(self, kind: str = "model") -> FloatArray:
        """Coefficients over their standard errors, NaN where an error is 0 but for rounding: it tells nothing."""
        errors = self.standard_errors(kind)
        tells = errors**2 > ROUNDING * self.standard_errors() ** 2
        return np.asarray(np.divide(self.coefficients, errors, out=np.full(errors.size, np.nan), where=tells))

    def p_values(self, kind: str = "model") -> FloatArray:
        return np.asarray(2.0 * self.distribution(kind).sf(np.abs(self.statistics(kind))))

    def intervals(self, level: float = 0.95, kind: str = "model") -> FloatArray:
        """Lower and upper ends: (names, 2)."""
        if not 0 < level < 1:
            raise ConfigError(f"the level of an interval must be above 0 and below 1, got {level}")
        half = self.distribution(kind).ppf(0.5 + level / 2) * self.standard_errors(kind)
        return np.stack([self.coefficients - half, self.coefficients + half], axis=1)

    def remarks(self, kind: str = "model") -> list[str]:
        """Sentences that a reader of the standard errors must know."""
        kind = self.kind(kind)
        found = [f"standard errors are {_OF_SAMPLE if self.is_sample and kind == 'model' else KINDS[kind]}"]
        if self.weights_are in _WEIGHTED:
            found.append(_WEIGHTED[self.weights_are])
        if not self.family.has_likelihood:
            found.append(f"family {self.family.name} has no likelihood: no AIC, and no standard errors from a model")
        if self.penalised:
            found.append(
                "a penalty pulls coefficients towards 0: standard errors are those of the penalised fit and know nothing of "
                "that pull, so that intervals need not cover the true value and p values are no exact tests"
            )
        if kind == "site" and self.curvature.weights.size < _ENOUGH_SITES:
            found.append(
                f"{self.curvature.weights.size} sites are too few for standard errors clustered by site: they are too small"
            )
        if self.expected_triangle is None and self.family.loss.expected != self.family.loss:
            found.append("the expected information is not known: standard errors from the model take the observed one")
        if self.sums is None:
            found.append(f"no likelihood and no robust standard errors: {self.missing}")
        return found


def infer(
    cohort: Cohort,
    asked: FitSums,
    curvature: SiteCurvature,
    w: FloatArray,
    names: Sequence[str],
    coefficients: FloatArray,
    *,
    intercept: bool,
    transform: FloatArray | None = None,
    kept: list[int] | None = None,
) -> Inference:
    """Find out what the coefficients are worth, by asking the sites for the sums at w.

    names, coefficients: as they are reported. transform: from those of w that were kept to them, the same unless given.
    kept: which of w were not left out, all unless given.
    """
    problem: Problem = cohort.session.problem
    kept = list(range(w.size)) if kept is None else kept
    expected, sums, missing = None, None, ""
    try:
        if asked.family.loss.expected != asked.family.loss:  # the observed information, which a fit uses, is another
            expected = ask_curvature(cohort, w, expected_information).part(kept).triangle
        sums = ask_sums(cohort, asked, w, intercept=intercept)
        sums = replace(sums, score_triangles=triangle_part(sums.score_triangles, kept, w.size))
    except UNANSWERED as refusal:
        missing = str(refusal)
    return Inference(
        names=tuple(names),
        coefficients=coefficients,
        family=asked.family,
        transform=np.eye(w.size) if transform is None else transform,
        curvature=curvature.part(kept),
        fitted=w[kept],
        penalty=problem.penalty_curvature(w)[kept],
        expected_triangle=expected,
        sums=sums,
        missing=missing,
        weights_are=asked.weights_are,
        rows=cohort.rows,
    )


def inverse(matrix: FloatArray) -> FloatArray:
    """Invert a positive definite matrix, after scaling to a unit diagonal; refused where it has no inverse."""
    diagonal = np.diag(matrix)
    if not (diagonal > 0).all():
        raise DataError("the information about the coefficients is singular: there are no standard errors")
    scale = 1.0 / np.sqrt(diagonal)
    try:
        factor = np.linalg.cholesky(matrix * scale[:, None] * scale)
    except np.linalg.LinAlgError:
        factor = np.zeros((1, 1))
    if np.diag(factor).min() ** 2 < _SINGULAR:
        raise DataError("the information about the coefficients is singular: there are no standard errors")
    found = scipy.linalg.cho_solve((factor, True), np.eye(len(matrix))) * scale[:, None] * scale
    return np.asarray(0.5 * (found + found.T))
