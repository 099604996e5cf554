"""Every method, by name. A new one is a file beside these and a line here."""

from fedns.algorithms.auto import Auto
from fedns.algorithms.distributed_newton import DistributedNewton
from fedns.algorithms.fedavg import FedAvg, FedProx
from fedns.algorithms.fedndes import FedNDES
from fedns.algorithms.fednew import FedNew, QFedNew
from fedns.algorithms.fednl import FedNL, NewtonZero
from fedns.algorithms.fedns import FedNS, NewtonSketch
from fedns.algorithms.gd import GradientDescent
from fedns.algorithms.giant import GIANT
from fedns.algorithms.lbfgs import LBFGS
from fedns.algorithms.local_newton import LocalNewton
from fedns.algorithms.newton import FedNewton, Newton
from fedns.algorithms.shed import SHED
from fedns.core.algorithm import Algorithm
from fedns.core.registry import Registry

_OWN: tuple[type[Algorithm], ...] = (
    Newton,
    NewtonSketch,
    FedNewton,
    FedNS,
    FedNDES,
    FedAvg,
    FedProx,
    GradientDescent,
    LBFGS,
    DistributedNewton,
    GIANT,
    LocalNewton,
    FedNL,
    NewtonZero,
    FedNew,
    QFedNew,
    SHED,
    Auto,
)
METHODS: Registry[type[Algorithm]] = Registry("method", "fedns.methods", Algorithm, _OWN)

__all__ = [
    "GIANT",
    "LBFGS",
    "METHODS",
    "SHED",
    "Algorithm",
    "Auto",
    "DistributedNewton",
    "FedAvg",
    "FedNDES",
    "FedNL",
    "FedNS",
    "FedNew",
    "FedNewton",
    "FedProx",
    "GradientDescent",
    "LocalNewton",
    "Newton",
    "NewtonSketch",
    "NewtonZero",
    "QFedNew",
]
