"""Every method, by name. A new one is a file beside these and a line here."""

from fedns.algorithms.fedndes import FedNDES
from fedns.algorithms.fedns import FedNS, NewtonSketch
from fedns.algorithms.newton import FedNewton, Newton
from fedns.core.algorithm import Algorithm

METHODS: dict[str, type[Algorithm]] = {method.name: method for method in (Newton, NewtonSketch, FedNewton, FedNS, FedNDES)}

__all__ = ["METHODS", "Algorithm", "FedNDES", "FedNS", "FedNewton", "Newton", "NewtonSketch"]
