"""The paper's three theorems as measurements: figures, fitted rates beside the claimed ones, and what they decide."""

from fedns.paper.theorems.contraction import theorem1
from fedns.paper.theorems.excess_risk import theorem3
from fedns.paper.theorems.iterations import theorem2

__all__ = ["theorem1", "theorem2", "theorem3"]
