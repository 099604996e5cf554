"""The paper's three theorems as measurements: figures, fitted rates beside the claimed ones, and what they decide."""

from fedns.lab.paper.theorems.contraction import theorem1
from fedns.lab.paper.theorems.excess_risk import theorem3
from fedns.lab.paper.theorems.iterations import theorem2

__all__ = ["theorem1", "theorem2", "theorem3"]
