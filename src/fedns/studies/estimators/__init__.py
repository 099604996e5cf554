"""A front door in the manner of scikit-learn."""

from fedns.studies.estimators.linear import FederatedGLM, FederatedRidge
from fedns.studies.estimators.logistic import FederatedLogisticRegression
from fedns.studies.estimators.survival import FederatedCox

__all__ = ["FederatedCox", "FederatedGLM", "FederatedLogisticRegression", "FederatedRidge"]
