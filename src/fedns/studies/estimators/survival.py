"""Cox regression in the manner of scikit-learn, with outcomes as scikit-survival has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from fedns.core.types import FloatArray
from fedns.models.families import FAMILIES
from fedns.studies.estimators.fitting import Settings
from fedns.studies.estimators.linear import LinearEstimator
from fedns.studies.questions.concordance import concordance


@dataclass(eq=False, repr=False)
class FederatedCox(LinearEstimator):
    """Cox regression over sites: rows are compared within their site alone, ties by Efron's rule.

    An outcome is an event, true or false, and a time: two fields as scikit-survival has them, or two columns; or a time
    with a minus where there was no event until then.

    - alpha: the penalty's strength, on the mean loss.
    - method: how it is found, as `fedns methods` lists them; none that sketches rows.
    - tol: the Newton decrement at which it ends.
    - max_iter: most rounds.
    """

    alpha: float = 0.0

    def _settled(self, rows: float) -> Settings:
        return self.settings_of(FAMILIES["cox"](), self.alpha, intercept=False)

    def _rows_and_targets(self, X: Any, y: Any) -> tuple[Any, FloatArray]:
        """y as `signed_times` takes it; the sites of a federation name columns of times and events in their files."""
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        if y is None:
            raise ValueError("FederatedCox requires y to be passed, but the target y is None")
        times = signed_times(y)
        check_consistent_length(X, times)
        return X, times

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
