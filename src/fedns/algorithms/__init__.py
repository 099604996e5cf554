"""Every method, by name, in the order they are listed. A new one is a file beside these and a line here."""
# ruff: noqa: I001

from fedns.algorithms.newton import Newton as Newton
from fedns.algorithms.fedns import NewtonSketch as NewtonSketch
from fedns.algorithms.newton import FedNewton as FedNewton
from fedns.algorithms.fedns import FedNS as FedNS
from fedns.algorithms.fedndes import FedNDES as FedNDES
from fedns.algorithms.fedavg import FedAvg as FedAvg
from fedns.algorithms.fedavg import FedProx as FedProx
from fedns.algorithms.baselines.scaffold import Scaffold as Scaffold
from fedns.algorithms.gd import GradientDescent as GradientDescent
from fedns.algorithms.lbfgs import LBFGS as LBFGS
from fedns.algorithms.distributed_newton import DistributedNewton as DistributedNewton
from fedns.algorithms.giant import GIANT as GIANT
from fedns.algorithms.local_newton import LocalNewton as LocalNewton
from fedns.algorithms.fednl import FedNL as FedNL
from fedns.algorithms.baselines.fednl_bc import FedNLBC as FedNLBC
from fedns.algorithms.fednl import NewtonZero as NewtonZero
from fedns.algorithms.fednew import FedNew as FedNew
from fedns.algorithms.fednew import QFedNew as QFedNew
from fedns.algorithms.shed import SHED as SHED
from fedns.algorithms.auto import Auto as Auto

from fedns.core.algorithm import Algorithm
from fedns.core.registry import Registry

_OWN = [
    thing for thing in globals().values() if isinstance(thing, type) and issubclass(thing, Algorithm) and thing != Algorithm
]
METHODS: Registry[type[Algorithm]] = Registry("method", "fedns.methods", Algorithm, _OWN)
