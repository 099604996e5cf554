"""Estimators in the manner of scikit-learn: the rows belong to sites, the answer is that of all rows together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from fedns.core.errors import ConfigError, DataError, unknown
from fedns.estimators.fitting import Fitted, Settings, fit_rows
from fedns.estimators.onnx import onnx_of
from fedns.estimators.over_sites import fit_federation
from fedns.problems.families import FAMILIES
from fedns.problems.family import Outcomes
from fedns.studies.federation import Federation
from fedns.studies.inference.table import coefficient_text, rows_of

FloatArray = NDArray[np.float64]


class LinearEstimator(BaseEstimator):  # type: ignore[misc]
    """What all of them share: checking, fitting, and what is known afterwards."""

    def _settled(self, rows: float) -> Settings:
        raise NotImplementedError

    def fit_targets(self, X: Any, y: FloatArray, sample_weight: Any, sites: Any, offset: FloatArray | None = None) -> Self:
        """Fit to targets as the loss has them."""
        weights = None if sample_weight is None else check_array(sample_weight, ensure_2d=False, dtype=np.float64)
        if weights is not None and weights.shape != (len(y),):
            raise ValueError(f"sample_weight must have one number for each of {len(y)} rows, got shape {weights.shape}")
        if weights is not None and not weights.any():
            raise ValueError("Sample weights must contain at least one non-zero number.")
        rows = float(len(y)) if weights is None else float(weights.sum())
        return self._found(fit_rows(self._settled(rows), X, y, weights, sites, offset))

    def fit_over(self, federation: Federation, y: Any, sample_weight: Any, sites: Any) -> Self:
        """Over sites that keep their rows, targets and weights."""
        if not (y is None and sample_weight is None and sites is None):
            raise ConfigError("the sites of a federation have their own targets and weights: call fit(federation) alone")
        self._found(fit_federation(self._settled, federation))
        self.n_features_in_ = self.coef_.size
        return self

    def _found(self, found: Fitted) -> Self:
        self.history_, self.inference_, self.meter_ = found.history, found.inference, found.meter
        self.coef_: FloatArray = found.coefficients
        self.intercept_: Any = found.intercept
        self.n_iter_ = max(1, found.history.records[-1].round)
        return self

    def margins_of(self, X: Any) -> FloatArray:
        """What the linear model says of rows, before any link: (rows,), or (rows, classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        if np.ndim(self.coef_) == 2 and len(self.coef_) > 1:
            return np.asarray(X @ self.coef_.T + self.intercept_)
        return np.asarray(X @ np.ravel(self.coef_) + np.ravel(self.intercept_)[0])

    def summary(self, kind: str = "model", level: float = 0.95) -> str:
        """The table of coefficients with standard errors.

        - kind: model, HC0 or HC1 (robust), or site (clustered by site).
        - level: of the intervals.
        """
        check_is_fitted(self)
        if self.inference_ is None:
            raise DataError(
                "there are no standard errors: the rows do not determine the coefficients, or sites did not tell"
            )
        inference = self.inference_
        own = getattr(self, "feature_names_in_", ())  # scikit-learn sets it where the columns have names
        known = {f"x{place}": str(name) for place, name in enumerate(own)}
        parts = [name.rpartition(": ") for name in inference.names]  # a class, where there are several, and the column
        names = tuple(f"{one}{colon}{known.get(name, name)}" for one, colon, name in parts)
        rows = rows_of(replace(inference, names=names), kind, level)
        return "\n".join(coefficient_text(rows, inference.statistic_name(kind), level, inference.family.ratio))

    def to_onnx(self) -> Any:
        """The fitted model as an ONNX graph in double precision (`pip install 'fedns[onnx]'`).

        Input `X`, output `prediction`: probabilities of the classes, or expected outcomes.
        """
        check_is_fitted(self)
        return onnx_of(np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_), self._onnx_output())

    def _onnx_output(self) -> str:
        return "identity"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class FederatedRidge(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Ridge regression over sites, with scikit-learn's penalty.

    - alpha: the penalty's strength, on the sum of squares.
    - fit_intercept: whether there is an intercept, which is not penalised.
    - method: how it is found, as `fedns methods` lists them.
    - tol: the Newton decrement at which it ends.
    - max_iter: most rounds.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        method: str = "fednewton",
        tol: float = 1e-10,
        max_iter: int = 20,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.method = method
        self.tol = tol
        self.max_iter = max_iter

    def _settled(self, rows: float) -> Settings:
        strength = self.alpha / rows
        return Settings(FAMILIES["gaussian"](), strength, self.fit_intercept, self.method, self.tol, self.max_iter)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, sites: Any = None) -> Self:
        """Fit over rows, with the site of each in `sites`; or over a fedns.Federation in place of all of them."""
        if isinstance(X, Federation):
            return self.fit_over(X, y, sample_weight, sites)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        return self.fit_targets(X, np.asarray(y, dtype=np.float64), sample_weight, sites)

    def predict(self, X: Any) -> FloatArray:
        """Expected outcomes."""
        return self.margins_of(X)

    def to_sklearn(self) -> Any:
        """The same model as scikit-learn's own."""
        check_is_fitted(self)
        model = Ridge(alpha=self.alpha, fit_intercept=self.fit_intercept)
        model.coef_, model.intercept_, model.n_features_in_ = self.coef_, self.intercept_, self.n_features_in_
        return model


class FederatedGLM(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """A generalised linear model over sites.

    - family: gaussian, poisson, gamma, or another of fedns.FAMILIES whose outcome is a number.
    - link: of the family; its first unless given.
    - alpha: the penalty's strength, on the mean loss.
    - fit_intercept: whether there is an intercept, which is not penalised.
    - method: how it is found, as `fedns methods` lists them.
    - tol: the Newton decrement at which it ends.
    - max_iter: most rounds.
    """

    def __init__(
        self,
        family: str = "gaussian",
        *,
        link: str = "",
        alpha: float = 0.0,
        fit_intercept: bool = True,
        method: str = "fednewton:line_search=aggregate",
        tol: float = 1e-10,
        max_iter: int = 100,
    ) -> None:
        self.family = family
        self.link = link
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.method = method
        self.tol = tol
        self.max_iter = max_iter

    def _settled(self, rows: float) -> Settings:
        if self.family not in FAMILIES:
            raise ConfigError(unknown("family", self.family, tuple(FAMILIES)))
        if FAMILIES[self.family].outcomes in (Outcomes.CLASS, Outcomes.TIME):
            raise ConfigError(
                f"family {self.family} has an estimator of its own: FederatedLogisticRegression or FederatedCox"
            )
        family = FAMILIES[self.family](link=self.link)
        return Settings(family, self.alpha, self.fit_intercept, self.method, self.tol, self.max_iter)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, sites: Any = None, offset: Any = None) -> Self:
        """Fit over rows, with the site of each in `sites`; or over a fedns.Federation in place of all of them.

        offset is added to every row's margin; the logarithm of an exposure is one.
        """
        if isinstance(X, Federation):
            if offset is not None:
                raise ConfigError("the sites of a federation have their own rows: an offset over them needs a study")
            return self.fit_over(X, y, sample_weight, sites)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        added = None if offset is None else _offset_of(offset, X.shape[0])
        return self.fit_targets(X, np.asarray(y, dtype=np.float64), sample_weight, sites, added)

    def predict(self, X: Any, offset: Any = None) -> FloatArray:
        """Expected outcomes; offset as in `fit`."""
        margins = self.margins_of(X)
        margins = margins if offset is None else margins + _offset_of(offset, margins.size)
        return FAMILIES[self.family](link=self.link).mean(margins)

    def _onnx_output(self) -> str:
        link = FAMILIES[self.family](link=self.link).link
        if link not in ("identity", "log"):
            raise ConfigError(f"to_onnx knows the links identity and log, not {link}")
        return "exp" if link == "log" else "identity"


def _offset_of(offset: Any, rows: int) -> FloatArray:
    values = np.asarray(check_array(offset, ensure_2d=False, dtype=np.float64, input_name="offset"))
    if values.shape != (rows,):
        raise ValueError(f"offset must have one number for each of {rows} rows, got shape {values.shape}")
    return values
