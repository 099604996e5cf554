"""A front door in the manner of scikit-learn."""

from fedns.estimators.linear import FederatedGLM, FederatedLogisticRegression, FederatedRidge

__all__ = ["FederatedGLM", "FederatedLogisticRegression", "FederatedRidge"]
