"""Estimators in the manner of scikit-learn: the rows belong to sites, the answer is that of all rows together."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from fedns.core.errors import ConfigError, DataError, unknown
from fedns.core.types import FloatArray
from fedns.models.families import FAMILIES
from fedns.models.family import Family, Outcomes
from fedns.runs.methods import EXACT, EXACT_WITH_SEARCH
from fedns.studies.estimators.fitting import Fitted, Settings, fit_rows, fit_sites
from fedns.studies.estimators.onnx import onnx_of
from fedns.studies.federation import Federation
from fedns.studies.inference.estimates import Inference
from fedns.studies.inference.table import coefficient_text, rows_of


@dataclass(eq=False, repr=False)  # which writes the signature that scikit-learn reads parameters from
class LinearEstimator(BaseEstimator):  # type: ignore[misc]
    """What all of them share: checking, fitting, and what is known afterwards."""

    _n_iter_is_array: ClassVar[bool] = False  # whether rounds are counted for each problem that scikit-learn's would solve
    _: KW_ONLY
    method: str = EXACT_WITH_SEARCH
    tol: float = 1e-10
    max_iter: int = 100

    def _settled(self, rows: float) -> Settings:
        raise NotImplementedError

    def settings_of(self, family: Family, strength: float, *, intercept: bool) -> Settings:
        """The settings of a fit by the method that was chosen."""
        return Settings(family, strength, intercept, self.method, self.tol, self.max_iter)

    def _rows_and_targets(self, X: Any, y: Any) -> tuple[Any, FloatArray]:
        """Check rows and outcomes; targets as the loss has them."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        return X, np.asarray(y, dtype=np.float64)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, sites: Any = None) -> Self:
        """Fit over rows, with the site of each in `sites`; or over a fedns.Federation in place of all of them."""
        if isinstance(X, Federation):
            return self.fit_over(X, y, sample_weight, sites)
        return self.fit_targets(*self._rows_and_targets(X, y), sample_weight, sites)

    def fit_targets(self, X: Any, y: FloatArray, sample_weight: Any, sites: Any, offset: FloatArray | None = None) -> Self:
        """Fit to targets as the loss has them."""
        weights = None if sample_weight is None else _weights_of(sample_weight, len(y))
        rows = float(len(y)) if weights is None else float(weights.sum())
        settings = self._settled(rows)._replace(columns=tuple(map(str, getattr(self, "feature_names_in_", ()))))
        return self._found(fit_rows(settings, X, y, weights, sites, offset))

    def fit_over(self, federation: Federation, y: Any, sample_weight: Any, sites: Any) -> Self:
        """Over sites that keep their rows, targets and weights."""
        if not (y is None and sample_weight is None and sites is None):
            raise ConfigError("the sites of a federation have their own targets and weights: call fit(federation) alone")
        self._found(fit_sites(self._settled, federation))
        self.n_features_in_ = self.coef_.size
        return self

    def _found(self, found: Fitted) -> Self:
        self.history_, self.meter_ = found.reached.history, found.cohort.session.meter
        ended = found.reached.ended
        self.converged_, self.ending_ = ended.ending.converged, ended.reason
        self._worked_out = found.inference
        self.inference_ = found.inference if self.converged_ and isinstance(found.inference, Inference) else None
        coefficients, intercepts = found.table
        several = len(coefficients) > 1
        self.coef_: FloatArray = coefficients if several else coefficients[0]
        self.intercept_: Any = intercepts if several else float(intercepts[0])
        rounds = self.history_.records[-1].round
        self.n_iter_: Any = np.array([rounds], dtype=np.int32) if self._n_iter_is_array else rounds
        if found.warning:
            warnings.warn(found.warning, ConvergenceWarning, stacklevel=3)
        return self

    def margins_of(self, X: Any) -> FloatArray:
        """What the linear model says of rows, before any link: (rows,), or (rows, classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        if np.ndim(self.coef_) == 2 and len(self.coef_) > 1:
            return np.asarray(X @ self.coef_.T + self.intercept_)
        return np.asarray(X @ np.ravel(self.coef_) + np.ravel(self.intercept_)[0])

    def summary(self, kind: str = "model", level: float = 0.95, *, unconverged: bool = False) -> str:
        """The table of coefficients with standard errors.

        - kind: model, HC0 or HC1 (robust), or site (clustered by site).
        - level: of the intervals.
        - unconverged: show it also where the fit has not converged, which its first line then says.
        """
        check_is_fitted(self)
        if not (self.converged_ or unconverged):
            raise DataError(
                f"there are no standard errors, since the fit has not converged ({self.ending_}): give it more rounds, or "
                "see them all the same with summary(unconverged=True)"
            )
        found = self._worked_out
        if isinstance(found, str):
            raise DataError(f"there are no standard errors: {found}")
        table = coefficient_text(rows_of(found, kind, level), found.statistic_name(kind), level, found.family.ratio)
        first = [] if self.converged_ else [f"not converged: {self.ending_}"]
        notes = [f"note: {one}" for one in found.remarks(kind)] if found.missing else []
        return "\n".join([*first, *self._first_lines(), *table, *notes])

    def _first_lines(self) -> list[str]:
        """The lines that a reader of the table must know before it."""
        return []

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


@dataclass(eq=False, repr=False)
class FederatedRidge(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Ridge regression over sites, with scikit-learn's penalty.

    - alpha: the penalty's strength, on the sum of squares.
    - method: how it is found, as `fedns methods` lists them.
    - tol: the Newton decrement at which it ends.
    - max_iter: most rounds.
    - fit_intercept: whether there is an intercept, which is not penalised.
    """

    _n_iter_is_array: ClassVar[bool] = True
    alpha: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    method: str = EXACT
    max_iter: int = 20

    def _settled(self, rows: float) -> Settings:
        return self.settings_of(FAMILIES["gaussian"](), self.alpha / rows, intercept=self.fit_intercept)

    def predict(self, X: Any) -> FloatArray:
        """Expected outcomes."""
        return self.margins_of(X)

    def to_sklearn(self) -> Any:
        """The same model as scikit-learn's own."""
        check_is_fitted(self)
        model = Ridge(alpha=self.alpha, fit_intercept=self.fit_intercept)
        model.coef_, model.intercept_, model.n_features_in_ = self.coef_, self.intercept_, self.n_features_in_
        return model


@dataclass(eq=False, repr=False)
class FederatedGLM(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """A generalised linear model over sites.

    - family: gaussian, poisson, gamma, binomial, or another of fedns.FAMILIES whose outcome is a number or an event.
    - method: how it is found, as `fedns methods` lists them.
    - tol: the Newton decrement at which it ends.
    - max_iter: most rounds.
    - link: of the family; its first unless given.
    - dispersion: of family negative_binomial, a in the variance m + a m^2 of counts with mean m; it is not estimated.
    - alpha: the penalty's strength, on the mean loss.
    - fit_intercept: whether there is an intercept, which is not penalised.
    """

    family: str = "gaussian"
    _: KW_ONLY
    link: str = ""
    dispersion: float | None = None
    alpha: float = 0.0
    fit_intercept: bool = True

    def _kind(self) -> type[Family]:
        if self.family not in FAMILIES:
            raise ConfigError(unknown("family", self.family, tuple(FAMILIES)))
        if FAMILIES[self.family].outcomes in (Outcomes.CLASS, Outcomes.TIME):
            raise ConfigError(
                f"family {self.family} has an estimator of its own: FederatedLogisticRegression or FederatedCox"
            )
        return FAMILIES[self.family]

    def _distribution(self) -> Family:
        """The family with its link and its parameters."""
        parameters = {} if self.dispersion is None else {"dispersion": self.dispersion}
        return self._kind().made_of(self.link, parameters)

    def _settled(self, rows: float) -> Settings:
        return self.settings_of(self._distribution(), self.alpha, intercept=self.fit_intercept)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, sites: Any = None, offset: Any = None) -> Self:
        """Fit over rows, with the site of each in `sites`; or over a fedns.Federation in place of all of them.

        An event of family binomial is written as 1 or True, its absence as 0, -1 or False; `event_` says which was found.
        offset is added to every row's margin; the logarithm of an exposure is one.
        """
        if isinstance(X, Federation):
            if offset is not None:
                raise ConfigError("the sites of a federation have their own rows: an offset over them needs a study")
            return self.fit_over(X, y, sample_weight, sites)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        if self._kind().outcomes is Outcomes.EVENT:
            self.event_ = np.max(y)
        added = None if offset is None else _offset_of(offset, X.shape[0])
        return self.fit_targets(X, self._targets_of(y), sample_weight, sites, added)

    def _targets_of(self, y: Any) -> FloatArray:
        """Outcomes as the loss has them."""
        values = np.asarray(y, dtype=np.float64)
        if self._kind().outcomes is not Outcomes.EVENT:
            return values
        found = np.unique(values)
        if not (np.isin(found, (0.0, 1.0)).all() or np.isin(found, (-1.0, 1.0)).all()):
            shown = ", ".join(f"{value:g}" for value in found[:5]) + (", ..." if found.size > 5 else "")
            raise ValueError(
                f"family {self.family} needs events written as 0 and 1, -1 and 1, or False and True, found {shown}: "
                "write them so"
            )
        return np.where(values > 0, 1.0, -1.0)

    def predict(self, X: Any, offset: Any = None) -> FloatArray:
        """Expected outcomes, of an event its probability; offset as in `fit`."""
        return self._distribution().mean(self._margins(X, offset))

    def _margins(self, X: Any, offset: Any) -> FloatArray:
        margins = self.margins_of(X)
        return margins if offset is None else margins + _offset_of(offset, margins.size)

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """D², the share of the deviance that is explained: 1 for a perfect fit, 0 for the mean of these outcomes.

        Of family gaussian it is R². offset as in `fit`.
        """
        family, margins = self._distribution(), self._margins(X, offset)
        targets = self._targets_of(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
        check_consistent_length(margins, targets)
        weights = None if sample_weight is None else _weights_of(sample_weight, targets.size)
        mean = float(np.average(family.outcome(targets), weights=weights))
        null = family.deviance_at(targets, np.full(targets.size, family.margin(mean)), weights)
        return 1.0 - family.deviance_at(targets, margins, weights) / null

    def _first_lines(self) -> list[str]:
        known = self._kind().outcomes is Outcomes.EVENT and hasattr(self, "event_")  # sites name it in their own files
        return [f"event: {self.event_}"] if known else []

    def _onnx_output(self) -> str:
        link = self._distribution().link
        if link not in ("identity", "log"):
            raise ConfigError(f"to_onnx knows the links identity and log, not {link}")
        return "exp" if link == "log" else "identity"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        possible = (Outcomes.POSITIVE, Outcomes.COUNT)
        tags.target_tags.positive_only = self.family in FAMILIES and FAMILIES[self.family].outcomes in possible
        return tags


def _weights_of(given: Any, rows: int) -> FloatArray:
    """One for each row; a single number is for all of them."""
    if np.isscalar(given):
        given = np.full(rows, given)
    values = np.asarray(check_array(given, ensure_2d=False, dtype=np.float64, input_name="sample_weight"))
    if values.shape != (rows,):
        raise ValueError(f"sample_weight must have one number for each of {rows} rows, got shape {values.shape}")
    if (values < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`: a row has a weight of at least 0")
    if not values.any():
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return values


def _offset_of(offset: Any, rows: int) -> FloatArray:
    values = np.asarray(check_array(offset, ensure_2d=False, dtype=np.float64, input_name="offset"))
    if values.shape != (rows,):
        raise ValueError(f"offset must have one number for each of {rows} rows, got shape {values.shape}")
    return values
