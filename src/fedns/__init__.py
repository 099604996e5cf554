"""Federated Newton-type training of convex models in a handful of communication rounds."""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# The public names, each from the module it lives in, for type checkers. At run time nothing of this is imported until it
# is used, so that `import fedns` stays instant: what is written here is looked up below.
if TYPE_CHECKING:
    from fedns.core.algorithm import Algorithm, Outcome, State
    from fedns.core.clients import Clients, Handler, on_client
    from fedns.core.cohort import Cohort
    from fedns.core.errors import ConfigError, DataError, FednsError, MessageError
    from fedns.core.history import History, Observer, Record
    from fedns.core.messages import Discloses, Message, Payload, Ragged, reducers, wire
    from fedns.core.penalty import Penalty
    from fedns.core.shards import Shards
    from fedns.core.termination import Ending
    from fedns.lab.comparison.compare import Comparison, compare
    from fedns.lab.comparison.results import read_runs
    from fedns.lab.data.catalogue import available
    from fedns.lab.data.datasets import load
    from fedns.lab.data.partition import split, split_dataset
    from fedns.methods import (
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
        FedNLBC,
        FedNS,
        FedProx,
        GradientDescent,
        LocalNewton,
        Newton,
        NewtonSketch,
        NewtonZero,
        QFedNew,
        Scaffold,
    )
    from fedns.methods.exchanges.effective_dimension import effective_dimension, estimate_effective_dimension
    from fedns.methods.exchanges.landmarks import federated_landmarks, federated_width
    from fedns.methods.searches import ArmijoSearch, LocalSearch, Search
    from fedns.models.cox import Cox
    from fedns.models.families import FAMILIES
    from fedns.models.family import Family
    from fedns.models.link_losses import ComplementaryLogLog, Gamma, NegativeBinomial, Probit
    from fedns.models.loss import Loss
    from fedns.models.losses import Huber, Logistic, Poisson, Squared, SquaredHinge
    from fedns.models.maps.feature_map import Identity, Polynomial
    from fedns.models.maps.kernel_maps import Nystroem, OrthogonalRandom, RandomFourier
    from fedns.models.penalties import PENALTIES, PseudoHuber, Ridge
    from fedns.models.problem import Problem
    from fedns.models.reference import Optimum, pooled_optimum
    from fedns.models.softmax import Softmax
    from fedns.numerics.rng import random_bits
    from fedns.reports.observers import MlflowObserver, TensorBoardObserver
    from fedns.reports.plots import plot_histories
    from fedns.runs.spec import Spec
    from fedns.simulation.simulator import simulate, simulated_cohort
    from fedns.sketches import SJLT, SKETCHES, SRHT, Gaussian, Rademacher, RowSampling, Sketch
    from fedns.studies.estimators import FederatedCox, FederatedGLM, FederatedLogisticRegression, FederatedRidge
    from fedns.studies.federation import Federation
    from fedns.studies.fit import fit_study
    from fedns.studies.fitting.estimate import SeparationError
    from fedns.studies.handshake.conflicts import StudyConflict
    from fedns.studies.inference.fitted import StudyFit
    from fedns.studies.prediction import Model
    from fedns.studies.study import Study
    from fedns.studies.tables.column_rule import ColumnRule
    from fedns.studies.tables.dataset import Dataset
    from fedns.studies.tables.feature_map import MapRule
    from fedns.studies.tables.labels import as_binary
    from fedns.studies.tables.scaling import scale

(_PUBLIC,) = (part for part in ast.parse(Path(__file__).read_text(encoding="utf-8")).body if isinstance(part, ast.If))
_HOME_OF = {name.name: str(line.module) for line in _PUBLIC.body if isinstance(line, ast.ImportFrom) for name in line.names}


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
