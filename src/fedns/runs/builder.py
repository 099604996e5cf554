"""From the description of a run to what both ends compute with: the same text gives the same method everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedns.core.algorithm import Algorithm
from fedns.core.clients import Handler
from fedns.core.cohort import register
from fedns.core.errors import ConfigError
from fedns.models.evaluation import evaluate_locally
from fedns.models.losses import LOSSES
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.numerics.backends.devices import default, on_device
from fedns.runs.compare import Compare
from fedns.runs.methods import parse_method
from fedns.runs.over_sites import MethodRun, OverSites
from fedns.sketches import Sketch


def problem_of(spec: Compare | OverSites) -> Problem:
    """The objective of a run."""
    backend = on_device(spec.device) if isinstance(spec, Compare) and spec.device is not None else default()
    return Problem(LOSSES[spec.loss](), Ridge(spec.strength), spec.intercept, backend=backend)


def algorithm_of(spec: MethodRun) -> Algorithm:
    """The method of a run over sites."""
    algorithm = parse_method(spec.method, spec.sketch, spec.sketch_size).algorithm
    if algorithm.pooled:
        raise ConfigError(f"method '{algorithm.name}' runs on pooled data: sites that keep their rows cannot run it")
    return algorithm


def caution(algorithm: Algorithm, sites: int, features: int) -> str:
    """What to know before a run in which all sketches together have fewer rows than there are coefficients; else nothing."""
    sizes = [part.size for part in vars(algorithm).values() if isinstance(part, Sketch)]
    if not sizes or sites * min(sizes) >= features:
        return ""
    return (
        f"{sites} sites with sketches of {min(sizes)} rows tell of {sites * min(sizes)} directions among {features} "
        f"coefficients: {algorithm.name} may diverge; take sketch_size >= {-(-features // sites)}, or the method auto"
    )


def at_site(spec: MethodRun, device: str | None = None) -> tuple[Problem, Mapping[str, Handler]]:
    """What a site computes with: the problem, and by name the handlers it answers, the method's and those of every run."""
    handlers: tuple[Handler, ...] = (register, evaluate_locally, *algorithm_of(spec).handlers())
    return computed_on(device, problem_of(spec)), {handler.__name__: handler for handler in handlers}


def computed_on(device: str | None, problem: Problem) -> Problem:
    """The problem on a site's device; on the processor where its loss has passes there alone."""
    if device is None or not problem.loss.on_devices:
        return problem
    return replace(problem, backend=on_device(device))
