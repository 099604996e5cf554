"""From the description of a run to what both ends compute with: the same text gives the same method everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedns.algorithms.blocks import LINE_SEARCHES, line_search
from fedns.core.algorithm import Algorithm
from fedns.core.clients import Handler, handlers_of
from fedns.core.errors import ConfigError
from fedns.core.suggestions import unknown
from fedns.problems import effective_dimension, evaluation, landmarks  # noqa: F401 (for the handlers they mark)
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
    """What a site computes with: the problem, and every handler that the method may ask for, by name."""
    algorithm: Any = algorithm_of(job)
    searches = []
    if hasattr(algorithm, "armijo_slope"):
        slope, factor = algorithm.armijo_slope, algorithm.backtrack_factor
        searches = [line_search(kind, slope, factor) for kind in LINE_SEARCHES if kind != "none"]
    return problem_of(job), handlers_of(*searches, algorithm)
