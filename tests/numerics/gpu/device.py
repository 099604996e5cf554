"""What tests on a device share: whether there is one, and problems to try on it."""

import numpy as np
import pytest
from tests.conftest import dense_features

import fedns
from fedns.core.shards import Shards
from fedns.numerics.backends.devices import gpu


def device_problem():
    """Why there is no device to compute on, or None."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


needs_device = pytest.mark.skipif(device_problem() is not None, reason=f"no CUDA device ({device_problem()})")
SIZES = np.array([1, 7, 32, 33, 300, 2500])


def shards(columns, dtype="f8", weighted=False):
    random = np.random.default_rng(columns)
    rows = int(SIZES.sum())
    features = random.standard_normal((rows, columns))
    if dtype != "f8":
        features = np.round(40.0 * features).clip(-99, 99) if dtype == "i2" else features.astype("f4")
    targets = np.where(random.random(rows) < 0.5, -1.0, 1.0)
    weights = random.random(rows) + 0.1 if weighted else None
    return Shards.from_arrays(features, targets, SIZES, sample_weights=weights)


def on(loss, intercept=False):
    return fedns.Problem(loss=loss, intercept=intercept, backend=gpu())


def coefficients(problem, data):
    w = np.random.default_rng(0).standard_normal(problem.num_features(data.num_columns))
    return w / np.abs(dense_features(data)).max() / np.sqrt(w.size)
