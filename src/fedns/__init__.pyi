"""The names of `fedns` for type checkers; at run time `__init__.py` finds them."""

# ruff: noqa: I001
# fmt: off
from fedns import contracts as contracts, methods as methods, models as models, sketches as sketches
from fedns.core.algorithm import Algorithm as Algorithm, Outcome as Outcome, State as State
from fedns.core.clients import Clients as Clients, Handler as Handler, on_client as on_client
from fedns.core.cohort import Cohort as Cohort
from fedns.core.errors import (
    ConfigError as ConfigError, DataError as DataError, FednsError as FednsError, MessageError as MessageError,
)
from fedns.core.history import History as History, Observer as Observer, Record as Record
from fedns.core.messages import (
    Discloses as Discloses, Message as Message, Payload as Payload, Ragged as Ragged, reducers as reducers,
    wire as wire,
)
from fedns.core.problem import Penalty as Penalty
from fedns.core.shards import Shards as Shards
from fedns.core.termination import Ending as Ending
from fedns.lab.comparison.compare import Comparison as Comparison, compare as compare
from fedns.lab.comparison.results import read_runs as read_runs
from fedns.lab.data.catalogue import available as available
from fedns.lab.data.datasets import load as load
from fedns.lab.data.partition import split as split, split_dataset as split_dataset
from fedns.methods import (
    Auto as Auto, DistributedNewton as DistributedNewton, FedAvg as FedAvg, FedNDES as FedNDES, FedNL as FedNL,
    FedNLBC as FedNLBC, FedNS as FedNS, FedNew as FedNew, FedNewton as FedNewton, FedProx as FedProx, GIANT as GIANT,
    GradientDescent as GradientDescent, LBFGS as LBFGS, LocalNewton as LocalNewton, METHODS as METHODS,
    Newton as Newton, NewtonSketch as NewtonSketch, NewtonZero as NewtonZero, QFedNew as QFedNew, SHED as SHED,
    Scaffold as Scaffold,
)
from fedns.methods.exchanges.effective_dimension import (
    effective_dimension as effective_dimension, estimate_effective_dimension as estimate_effective_dimension,
)
from fedns.methods.exchanges.landmarks import federated_landmarks as federated_landmarks, federated_width as federated_width
from fedns.methods.searches import ArmijoSearch as ArmijoSearch, LocalSearch as LocalSearch, Search as Search
from fedns.models.cox import Cox as Cox
from fedns.models.families import FAMILIES as FAMILIES
from fedns.models.family import Family as Family
from fedns.models.link_losses import (
    ComplementaryLogLog as ComplementaryLogLog, Gamma as Gamma, NegativeBinomial as NegativeBinomial, Probit as Probit,
)
from fedns.models.loss import Loss as Loss
from fedns.models.losses import (
    Huber as Huber, Logistic as Logistic, Poisson as Poisson, Squared as Squared, SquaredHinge as SquaredHinge,
)
from fedns.models.maps.feature_map import Identity as Identity, Polynomial as Polynomial
from fedns.models.maps.kernel_maps import (
    Nystroem as Nystroem, OrthogonalRandom as OrthogonalRandom, RandomFourier as RandomFourier,
)
from fedns.models.penalties import PENALTIES as PENALTIES, PseudoHuber as PseudoHuber, Ridge as Ridge
from fedns.models.problem import Problem as Problem
from fedns.models.reference import Optimum as Optimum, pooled_optimum as pooled_optimum
from fedns.models.softmax import Softmax as Softmax
from fedns.numerics.rng import random_bits as random_bits
from fedns.reports.observers import MlflowObserver as MlflowObserver, TensorBoardObserver as TensorBoardObserver
from fedns.reports.plots import plot_histories as plot_histories
from fedns.runs.compare import Spec as Spec
from fedns.simulation.simulator import simulate as simulate, simulated_cohort as simulated_cohort
from fedns.sketches import (
    Gaussian as Gaussian, Rademacher as Rademacher, RowSampling as RowSampling, SJLT as SJLT, SKETCHES as SKETCHES,
    SRHT as SRHT, Sketch as Sketch,
)
from fedns.studies.estimators import (
    FederatedCox as FederatedCox, FederatedGLM as FederatedGLM,
    FederatedLogisticRegression as FederatedLogisticRegression, FederatedRidge as FederatedRidge,
)
from fedns.studies.federation import Federation as Federation
from fedns.studies.fit import fit_study as fit_study
from fedns.studies.fitting.estimate import SeparationError as SeparationError
from fedns.studies.handshake.conflicts import StudyConflict as StudyConflict
from fedns.studies.inference.fitted import StudyFit as StudyFit
from fedns.studies.prediction import Model as Model
from fedns.studies.study import Study as Study
from fedns.studies.tables.column_rule import ColumnRule as ColumnRule
from fedns.studies.tables.dataset import Dataset as Dataset
from fedns.studies.tables.feature_map import MapRule as MapRule
from fedns.studies.tables.labels import as_binary as as_binary
from fedns.studies.tables.scaling import scale as scale

__version__: str
