"""Every method, by name, in the order they are listed. A new one is a file beside these and a line here."""
# ruff: noqa: I001

from fedns.methods.newton import Newton as Newton
from fedns.methods.fedns import NewtonSketch as NewtonSketch
from fedns.methods.newton import FedNewton as FedNewton
from fedns.methods.fedns import FedNS as FedNS
from fedns.methods.fedndes import FedNDES as FedNDES
from fedns.methods.fedavg import FedAvg as FedAvg
from fedns.methods.fedavg import FedProx as FedProx
from fedns.methods.scaffold import Scaffold as Scaffold
from fedns.methods.gd import GradientDescent as GradientDescent
from fedns.methods.lbfgs import LBFGS as LBFGS
from fedns.methods.distributed_newton import DistributedNewton as DistributedNewton
from fedns.methods.giant import GIANT as GIANT
from fedns.methods.local_newton import LocalNewton as LocalNewton
from fedns.methods.fednl import FedNL as FedNL
from fedns.methods.fednl_bc import FedNLBC as FedNLBC
from fedns.methods.fednl import NewtonZero as NewtonZero
from fedns.methods.fednew import FedNew as FedNew
from fedns.methods.fednew import QFedNew as QFedNew
from fedns.methods.shed import SHED as SHED
from fedns.methods.auto import Auto as Auto

from fedns.core.algorithm import Algorithm
from fedns.core.registry import Registry

_OWN = [
    thing for thing in globals().values() if isinstance(thing, type) and issubclass(thing, Algorithm) and thing != Algorithm
]
METHODS: Registry[type[Algorithm]] = Registry("method", "fedns.methods", Algorithm, _OWN)
