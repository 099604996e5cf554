"""The paper's three theorems as measurements: figures, fitted rates beside the claimed ones, and what they decide."""

from fedns.experiments.theorems.contraction import theorem1
from fedns.experiments.theorems.excess_risk import theorem3
from fedns.experiments.theorems.iterations import theorem2
from fedns.experiments.theorems.result import TheoremResult

__all__ = ["TheoremResult", "theorem1", "theorem2", "theorem3"]
