"""From the description of a run to what both ends compute with: the same text gives the same method everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from fedns.core.algorithm import Algorithm
from fedns.core.clients import Handler
from fedns.core.cohort import register
from fedns.core.errors import ConfigError
from fedns.core.suggestions import unknown
from fedns.problems.evaluation import evaluate_locally
from fedns.problems.losses import LOSSES
from fedns.problems.penalties import Ridge
from fedns.problems.problem import Problem
from fedns.runs.job import Job
from fedns.runs.methods import parse_method


def problem_of(job: Job) -> Problem:
    """The objective of a run."""
    if job.loss not in LOSSES:
        raise ConfigError(unknown("loss", job.loss, LOSSES))
    return Problem(LOSSES[job.loss](), Ridge(job.strength), job.intercept)


def algorithm_of(job: Job) -> Algorithm:
    """The method of a run."""
    algorithm = parse_method(job.method, job.sketch, job.sketch_size).algorithm
    if algorithm.pooled:
        raise ConfigError(f"method '{algorithm.name}' runs on pooled data: sites that keep their rows cannot run it")
    return algorithm


def at_site(job: Job) -> tuple[Problem, Mapping[str, Handler]]:
    """What a site computes with: the problem, and by name the handlers it answers, the method's and those of every run."""
    handlers: tuple[Handler, ...] = (register, evaluate_locally, *algorithm_of(job).handlers())
    return problem_of(job), {handler.__name__: handler for handler in handlers}
