"""Federated Newton-type training of convex models in a handful of communication rounds."""

import sys
from importlib import import_module
from typing import Any

from fedns.former import FormerRooms

__version__ = "0.2.0"

# Nothing is imported until it is used, so that `import fedns` is instant (SPEC 1 of Scientific Python). Type checkers read
# `__init__.pyi`, which has the same names. First: what a user needs first, which `dir(fedns)` lists.
_FIRST = {
    "fedns.core.errors": "ConfigError DataError FednsError",
    "fedns.core.history": "History",
    "fedns.core.shards": "Shards",
    "fedns.core.termination": "Ending",
    "fedns.lab.comparison.compare": "compare",
    "fedns.lab.comparison.results": "read_runs",
    "fedns.lab.data.catalogue": "available",
    "fedns.lab.data.datasets": "load",
    "fedns.lab.data.partition": "split split_dataset",
    "fedns.methods": "Auto FedAvg FedNDES FedNL FedNS FedNewton GIANT LBFGS Newton",
    "fedns.methods.exchanges.effective_dimension": "effective_dimension",
    "fedns.methods.searches": "ArmijoSearch LocalSearch",
    "fedns.models.cox": "Cox",
    "fedns.models.losses": "Logistic Poisson Squared",
    "fedns.models.maps.feature_map": "Polynomial",
    "fedns.models.maps.kernel_maps": "Nystroem RandomFourier",
    "fedns.models.penalties": "Ridge",
    "fedns.models.problem": "Problem",
    "fedns.models.reference": "pooled_optimum",
    "fedns.models.softmax": "Softmax",
    "fedns.reports.plots": "plot_histories",
    "fedns.runs.compare": "Spec",
    "fedns.simulation.simulator": "simulate",
    "fedns.sketches": "SJLT SRHT",
    "fedns.studies.estimators": "FederatedCox FederatedGLM FederatedLogisticRegression FederatedRidge",
    "fedns.studies.federation": "Federation",
    "fedns.studies.fit": "fit_study",
    "fedns.studies.fitting.estimate": "SeparationError",
    "fedns.studies.handshake.conflicts": "StudyConflict",
    "fedns.studies.inference.fitted": "StudyFit",
    "fedns.studies.prediction": "Model",
    "fedns.studies.study": "Study",
    "fedns.studies.tables.column_rule": "ColumnRule",
    "fedns.studies.tables.feature_map": "MapRule",
    "fedns.studies.tables.labels": "as_binary",
    "fedns.studies.tables.scaling": "scale",
}
# Found here too, but listed where they belong, in `methods`, `models`, `sketches` and `contracts`; a few are seldom needed.
_MORE = {
    "fedns.core.algorithm": "Algorithm Outcome State",
    "fedns.core.clients": "Clients Handler on_client",
    "fedns.core.cohort": "Cohort",
    "fedns.core.errors": "MessageError",
    "fedns.core.history": "Observer Record",
    "fedns.core.messages": "Discloses Message Payload Ragged reducers wire",
    "fedns.core.problem": "Penalty",
    "fedns.lab.comparison.compare": "Comparison",
    "fedns.methods": (
        "DistributedNewton FedNLBC FedNew FedProx GradientDescent LocalNewton METHODS NewtonSketch NewtonZero QFedNew SHED "
        "Scaffold"
    ),
    "fedns.methods.exchanges.effective_dimension": "estimate_effective_dimension",
    "fedns.methods.exchanges.landmarks": "federated_landmarks federated_width",
    "fedns.methods.searches": "Search",
    "fedns.models.families": "FAMILIES",
    "fedns.models.family": "Family",
    "fedns.models.link_losses": "ComplementaryLogLog Gamma NegativeBinomial Probit",
    "fedns.models.loss": "Loss",
    "fedns.models.losses": "Huber SquaredHinge",
    "fedns.models.maps.feature_map": "Identity",
    "fedns.models.maps.kernel_maps": "OrthogonalRandom",
    "fedns.models.penalties": "PENALTIES PseudoHuber",
    "fedns.models.reference": "Optimum",
    "fedns.numerics.rng": "random_bits",
    "fedns.reports.observers": "MlflowObserver TensorBoardObserver",
    "fedns.simulation.simulator": "simulated_cohort",
    "fedns.sketches": "Gaussian Rademacher RowSampling SKETCHES Sketch",
    "fedns.studies.tables.dataset": "Dataset",
}
_SUBMODULES = ("contracts", "methods", "models", "sketches")
_HOME_OF = {name: home for homes in (_FIRST, _MORE) for home, names in homes.items() for name in names.split()}

__all__ = sorted([*_SUBMODULES, *(name for names in _FIRST.values() for name in names.split())])


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"fedns.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedns' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


sys.meta_path.insert(0, FormerRooms())  # before the finder of files, which would load a room's modules a second time
