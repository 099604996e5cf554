"""Federated Newton-type training of convex models in a handful of communication rounds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives. Nothing below is imported until it is used: `import fedns` stays instant.
_HOMES = {
    "fedns.algorithms": (
        "GIANT",
        "LBFGS",
        "METHODS",
        "SHED",
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
    ),
    "fedns.algorithms.searches": ("ArmijoSearch", "LocalSearch", "Search"),
    "fedns.core": ("reducers",),
    "fedns.core.algorithm": ("Algorithm", "Outcome", "State"),
    "fedns.core.clients": ("Clients", "Handler", "on_client"),
    "fedns.core.cohort": ("Cohort",),
    "fedns.core.errors": ("ConfigError", "DataError", "FednsError", "MessageError"),
    "fedns.core.history": ("History", "Record"),
    "fedns.core.messages": ("Discloses", "Message", "Payload", "Ragged", "wire"),
    "fedns.core.observers": ("Observer",),
    "fedns.core.shards": ("Shards",),
    "fedns.core.termination": ("Ending",),
    "fedns.data.datasets": ("Dataset", "as_binary", "available", "load"),
    "fedns.data.partition": ("split", "split_dataset"),
    "fedns.data.scaling": ("scale",),
    "fedns.numerics.rng": ("random_bits",),
    "fedns.simulation.simulator": ("simulate", "simulated_cohort"),
    "fedns.comparison.compare": ("Comparison", "compare"),
    "fedns.reporting.plots": ("plot_histories",),
    "fedns.comparison.results": ("read_runs",),
    "fedns.runs.spec": ("Spec",),
    "fedns.problems.effective_dimension": ("effective_dimension", "estimate_effective_dimension"),
    "fedns.problems.families": ("FAMILIES",),
    "fedns.problems.family": ("Family",),
    "fedns.problems.feature_maps": ("Identity", "Nystroem", "OrthogonalRandom", "Polynomial", "RandomFourier"),
    "fedns.problems.landmarks": ("federated_landmarks", "federated_width"),
    "fedns.problems.link_losses": ("ComplementaryLogLog", "Gamma", "NegativeBinomial", "Probit"),
    "fedns.problems.loss": ("Loss",),
    "fedns.problems.losses": ("Huber", "Logistic", "Poisson", "Squared", "SquaredHinge"),
    "fedns.problems.penalties": ("Ridge",),
    "fedns.problems.problem": ("Problem",),
    "fedns.problems.reference": ("Optimum", "pooled_optimum"),
    "fedns.studies.schema.conflicts": ("StudyConflict",),
    "fedns.studies.model.estimate": ("SeparationError", "StudyFit"),
    "fedns.studies.federation": ("Federation",),
    "fedns.studies.fit": ("fit_study",),
    "fedns.studies.feature_map": ("MapRule",),
    "fedns.studies.study": ("ColumnRule", "Study"),
    "fedns.sketches": ("SJLT", "SKETCHES", "SRHT", "Gaussian", "Rademacher", "RowSampling", "Sketch"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from fedns.algorithms import (
        GIANT,
        LBFGS,
        METHODS,
        SHED,
        Auto,
        DistributedNewton,
        FedAvg,
        FedNDES,
        FedNew,
        FedNewton,
        FedNL,
        FedNS,
        FedProx,
        GradientDescent,
        LocalNewton,
        Newton,
        NewtonSketch,
        NewtonZero,
        QFedNew,
    )
    from fedns.algorithms.searches import ArmijoSearch, LocalSearch, Search
    from fedns.comparison.compare import Comparison, compare
    from fedns.comparison.results import read_runs
    from fedns.core import reducers
    from fedns.core.algorithm import Algorithm, Outcome, State
    from fedns.core.clients import Clients, Handler, on_client
    from fedns.core.cohort import Cohort
    from fedns.core.errors import ConfigError, DataError, FednsError, MessageError
    from fedns.core.history import History, Record
    from fedns.core.messages import Discloses, Message, Payload, Ragged, wire
    from fedns.core.observers import Observer
    from fedns.core.shards import Shards
    from fedns.core.termination import Ending
    from fedns.data.datasets import Dataset, as_binary, available, load
    from fedns.data.partition import split, split_dataset
    from fedns.data.scaling import scale
    from fedns.numerics.rng import random_bits
    from fedns.problems.effective_dimension import effective_dimension, estimate_effective_dimension
    from fedns.problems.families import FAMILIES
    from fedns.problems.family import Family
    from fedns.problems.feature_maps import Identity, Nystroem, OrthogonalRandom, Polynomial, RandomFourier
    from fedns.problems.landmarks import federated_landmarks, federated_width
    from fedns.problems.link_losses import ComplementaryLogLog, Gamma, NegativeBinomial, Probit
    from fedns.problems.loss import Loss
    from fedns.problems.losses import Huber, Logistic, Poisson, Squared, SquaredHinge
    from fedns.problems.penalties import Ridge
    from fedns.problems.problem import Problem
    from fedns.problems.reference import Optimum, pooled_optimum
    from fedns.reporting.plots import plot_histories
    from fedns.runs.spec import Spec
    from fedns.simulation.simulator import simulate, simulated_cohort
    from fedns.sketches import SJLT, SKETCHES, SRHT, Gaussian, Rademacher, RowSampling, Sketch
    from fedns.studies.feature_map import MapRule
    from fedns.studies.federation import Federation
    from fedns.studies.fit import fit_study
    from fedns.studies.model.estimate import SeparationError, StudyFit
    from fedns.studies.schema.conflicts import StudyConflict
    from fedns.studies.study import ColumnRule, Study


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedns' has no attribute {name!r}")
    home = import_module(_HOME_OF[name])
    value = getattr(home, name) if hasattr(home, name) else import_module(f"{home.__name__}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])


__all__ = sorted(_HOME_OF)
