"""Logistic regression over sites, of two classes or more, in the manner of scikit-learn."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedns.core.errors import ConfigError, DataError
from fedns.core.types import FloatArray
from fedns.models.families import FAMILIES
from fedns.models.softmax import Softmax
from fedns.studies.estimators.fitting import Settings
from fedns.studies.estimators.linear import LinearEstimator
from fedns.studies.federation import Federation


@dataclass(eq=False, repr=False)
class FederatedLogisticRegression(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Logistic regression over sites, with scikit-learn's penalty; of more than two classes it is multinomial.

    - C: the inverse of the penalty's strength; numpy.inf for none.
    - method: how it is found, as `fedns methods` lists them.
    - tol: the Newton decrement at which it ends.
    - max_iter: most rounds.
    - fit_intercept: whether there is an intercept, which is not penalised.
    - class_weight: "balanced", or a weight for each class, times those of the rows; None for none.
    """

    _n_iter_is_array: ClassVar[bool] = True

    C: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    class_weight: Any = None
    method: str = "fednewton:line_search=aggregate;trials=5;backtrack_factor=0.2"

    def _settled(self, rows: float) -> Settings:
        if not self.C > 0:
            raise ConfigError(f"C must be above 0, got {self.C}")
        strength, count = 1.0 / (self.C * rows), self.classes_.size
        if count == 2:
            return self.settings_of(FAMILIES["binomial"](), strength, intercept=self.fit_intercept)
        # A penalty makes the classes' coefficients sum to 0; without one only differences from one class are determined.
        loss = Softmax(count, reference=not strength)
        own = tuple(map(str, self.classes_[count - loss.outputs :]))
        settings = self.settings_of(FAMILIES["multinomial"](), strength, intercept=self.fit_intercept)
        return settings._replace(loss=loss, classes=own)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, sites: Any = None) -> Self:
        """Fit over rows, with the site of each in `sites`; or over a fedns.Federation in place of all of them."""
        if isinstance(X, Federation):
            if self.class_weight is not None:
                raise ConfigError("the sites of a federation weight their own rows: leave class_weight out")
            self.classes_ = np.array([-1, 1])  # as sites write them, by `positive` of their files
            self.fit_over(X, y, sample_weight, sites)
            self.coef_, self.intercept_ = self.coef_[None, :], np.array([self.intercept_])
            return self
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if self.classes_.size < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        numbers = np.searchsorted(self.classes_, y)
        if self.class_weight is not None:
            weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
            own = compute_class_weight(self.class_weight, classes=self.classes_, y=y, sample_weight=weights)
            sample_weight = weights * own[numbers]
        if self.classes_.size == 2:
            self.fit_targets(X, 2.0 * numbers - 1.0, sample_weight, sites)
            self.coef_, self.intercept_ = self.coef_[None, :], np.array([self.intercept_])
        else:
            self.fit_targets(X, numbers.astype(np.float64), sample_weight, sites)
            self.coef_, self.intercept_ = (
                _around_zero(self.coef_, self.classes_),
                _around_zero(self.intercept_, self.classes_),
            )
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Margins of the second class, or of every one where there are more: (rows,) or (rows, classes)."""
        return self.margins_of(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes: (rows, classes)."""
        margins = self.margins_of(X)
        if margins.ndim == 2:
            return np.asarray(softmax(margins, axis=1))
        likely = FAMILIES["binomial"]().mean(margins)
        return np.stack([1.0 - likely, likely], axis=1)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Logarithms of the probabilities, also of those that are 0 to working precision: (rows, classes)."""
        margins = self.margins_of(X)
        return np.asarray(log_softmax(margins if margins.ndim == 2 else np.pad(margins[:, None], ((0, 0), (1, 0))), axis=1))

    def predict(self, X: Any) -> Any:
        """The likeliest class of each row."""
        margins = self.margins_of(X)
        return self.classes_[margins.argmax(axis=1) if margins.ndim == 2 else (margins > 0).astype(int)]

    def summary(self, kind: str = "model", level: float = 0.95, *, unconverged: bool = False) -> str:
        """The table of coefficients with standard errors; of several classes, compared with the first.

        - kind: model, HC0 or HC1 (robust), or site (clustered by site).
        - level: of the intervals.
        - unconverged: show it also where the fit has not converged, which its first line then says.
        """
        check_is_fitted(self)
        if self.classes_.size > 2 and np.isfinite(self.C):
            raise DataError(
                "a penalty on all of several classes leaves no standard errors: fit with C=numpy.inf, or a study"
            )
        return super().summary(kind, level, unconverged=unconverged)

    def _onnx_output(self) -> str:
        return "sigmoid" if len(self.coef_) == 1 else "softmax"

    def to_sklearn(self) -> Any:
        """The same model as scikit-learn's own."""
        check_is_fitted(self)
        model = LogisticRegression(C=self.C, fit_intercept=self.fit_intercept)
        model.classes_, model.coef_, model.intercept_ = self.classes_, self.coef_, self.intercept_
        model.n_features_in_, model.n_iter_ = self.n_features_in_, self.n_iter_
        return model


def _around_zero(values: FloatArray, classes: NDArray[Any]) -> FloatArray:
    """Of every class, without what all have in common; a reference that is not among the values has 0."""
    full = np.concatenate([np.zeros((len(classes) - len(values), *values.shape[1:])), values])
    return np.asarray(full - full.mean(axis=0))
