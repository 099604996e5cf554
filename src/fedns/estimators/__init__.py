"""A front door in the manner of scikit-learn."""

from fedns.estimators.linear import FederatedGLM, FederatedRidge
from fedns.estimators.logistic import FederatedLogisticRegression
from fedns.estimators.survival import FederatedCox

__all__ = ["FederatedCox", "FederatedGLM", "FederatedLogisticRegression", "FederatedRidge"]
