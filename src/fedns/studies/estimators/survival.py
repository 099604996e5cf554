"""Cox regression in the manner of scikit-learn, with outcomes as scikit-survival has them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from fedns.models.families import FAMILIES
from fedns.runs.methods import EXACT_WITH_SEARCH
from fedns.studies.estimators.fitting import Settings
from fedns.studies.estimators.linear import LinearEstimator
from fedns.studies.federation import Federation
from fedns.studies.questions.concordance import concordance

FloatArray = NDArray[np.float64]


class FederatedCox(LinearEstimator):
    """Cox regression over sites: rows are compared within their site alone, ties by Efron's rule.

    - alpha: the penalty's strength, on the mean loss.
    - method: how it is found, as `fedns methods` lists them; none that sketches rows.
    - tol: the Newton decrement at which it ends.
    - max_iter: most rounds.
    """

    def __init__(
        self,
        alpha: float = 0.0,
        *,
        method: str = EXACT_WITH_SEARCH,
        tol: float = 1e-10,
        max_iter: int = 100,
    ) -> None:
        self.alpha = alpha
        self.method = method
        self.tol = tol
        self.max_iter = max_iter

    def _settled(self, rows: float) -> Settings:
        return Settings(FAMILIES["cox"](), self.alpha, False, self.method, self.tol, self.max_iter)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, sites: Any = None) -> Self:
        """Fit over rows, with the site of each in `sites`; y as `signed_times` takes it.

        Or over a fedns.Federation in place of all of them, whose sites name columns of times and events in their files.
        """
        if isinstance(X, Federation):
            return self.fit_over(X, y, sample_weight, sites)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        if y is None:
            raise ValueError("FederatedCox requires y to be passed, but the target y is None")
        times = signed_times(y)
        check_consistent_length(X, times)
        return self.fit_targets(X, times, sample_weight, sites)

    def predict(self, X: Any) -> FloatArray:
        """Logarithms of hazard ratios against a row of zeros: the higher, the earlier the event."""
        return self.margins_of(X)

    def score(self, X: Any, y: Any) -> float:
        """The concordance of predictions and times, Harrell's C."""
        found = concordance(signed_times(y), self.predict(X))
        if not found.pairs:
            raise ValueError("no row is known to have its event before another: there is no concordance")
        return found.index

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def signed_times(y: Any) -> FloatArray:
    """Times of events, with a minus where there was none until then: (rows,).

    y: an array of two fields, true or false and a time, as scikit-survival has it; two columns, 1 or 0 and a time; or times
    with such signs already.
    """
    values = np.asarray(y)
    if values.dtype.names is not None:
        if len(values.dtype.names) != 2 or values.dtype[0].kind != "b":
            raise ValueError(f"y must have two fields, true or false and a time, got {values.dtype}")
        event, time = (values[name] for name in values.dtype.names)
    else:
        values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if values.ndim == 1 or values.shape[1] == 1:
            return np.asarray(values).reshape(-1)
        event, time = values[:, 0], values[:, 1]
        if values.shape[1] != 2 or not np.isin(event, (0.0, 1.0)).all():
            raise ValueError("y must have two columns: 1 where there was an event and 0 where there was none, and the time")
    if not (np.isfinite(time) & (np.asarray(time) > 0)).all():
        raise ValueError("times must be numbers above 0: correct those rows, or leave them out")
    return np.where(event, 1.0, -1.0) * np.asarray(time, dtype=np.float64)
