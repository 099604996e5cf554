"""Exported graphs give the estimators' predictions when onnxruntime runs them."""

from __future__ import annotations

import numpy as np
import pytest

import fedns

pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 4))
COUNTS = RANDOM.poisson(np.exp(0.3 * X[:, 0])).astype(float)


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["prediction"], {"X": X})[0]


@pytest.mark.parametrize("classes", [["no", "yes"], ["a", "b", "c"]])
def test_classes(classes):
    fitted = fedns.FederatedLogisticRegression().fit(X, RANDOM.choice(classes, 200))
    assert run(fitted.to_onnx()) == pytest.approx(fitted.predict_proba(X), rel=1e-12)


@pytest.mark.parametrize(
    "estimator", [fedns.FederatedRidge(), fedns.FederatedGLM("poisson"), fedns.FederatedGLM("gaussian")]
)
def test_numbers(estimator):
    fitted = estimator.fit(X, COUNTS)
    assert run(fitted.to_onnx())[:, 0] == pytest.approx(fitted.predict(X), rel=1e-12)
