"""Running a site: one command, one small file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedns.core.shards import Shards
from fedns.federation.config import SiteConfig, engine_named
from fedns.federation.processes import ended_by_sigterm
from fedns.federation.site.budget import reset_budgets
from fedns.federation.site.explain import meaning
from fedns.federation.site.rows import site_shards
from fedns.federation.site.service import SiteService
from fedns.problems.losses import LOSSES
from fedns.problems.problem import Problem
from fedns.runs.builder import at_site
from fedns.sketches import SRHT

WARM_UP_ROWS = 16
log = logging.getLogger("fedns.site")
FACTORY = "fedns.federation.site.serve:service"  # how an engine that starts processes of its own finds the service


def site_service(config: SiteConfig) -> SiteService:
    """The service that answers for this site."""
    shards = site_shards(config)  # a file that cannot be read is better known before anybody connects
    for sentence in meaning(config.permit, shards, config.folder / config.state):
        log.info("%s", sentence)
    warm_up(shards)
    return SiteService(config.name, lambda spec: shards, at_site, config.permit, config.folder / config.state)


def warm_up(shards: Shards) -> None:
    """Compile the kernels on a few rows, where they are not yet: the first request has to be answered in time."""
    few = replace(shards, stops=np.minimum(shards.stops, WARM_UP_ROWS), columns=None)
    losses = [loss() for loss in LOSSES.values()]
    for loss in losses:
        problem, w = Problem(loss), np.zeros(shards.num_columns)
        problem.losses_along(w, w, np.zeros(2), few)
        problem.value_and_gradient(w, few)
        norms = np.zeros(shards.rows.shape[0])
        problem.passes.value_gradient_and_curvatures(loss, few, w, norms)
        problem.passes.curvatures_along(loss, few, w, w, np.zeros(2), norms)
        problem.gradient_and_hessian(w, few)
        problem.gradient_and_sketch(w, few, SRHT(4).plan(few.sizes), np.zeros((1, 2), dtype=np.uint64))


def service(path: str | Path) -> Callable[[bytes], bytes]:
    """The same from the path of the site's file."""
    return site_service(SiteConfig.read(Path(path))).answer


def reset_budget(path: Path) -> int:
    """Let a site's owner begin its budgets anew; how many there were."""
    config = SiteConfig.read(path)
    return reset_budgets(config.folder / config.state)


def run_site(path: Path, factory: str = FACTORY) -> None:
    """Answer until told to stop. factory: what makes the service from the path, as "package.module:function"."""
    config = SiteConfig.read(path)
    engine = engine_named(config.engine)
    log.info("site %s on %s; Ctrl-C ends it", config.name, config.engine)
    with ended_by_sigterm():
        engine.serve(config.credentials, factory, path)
