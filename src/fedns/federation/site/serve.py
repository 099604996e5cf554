"""What answers for a site, made from its file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedns.federation.config import SiteConfig
from fedns.federation.site.budget import reset_budgets
from fedns.federation.site.explain import meaning
from fedns.federation.site.guard import Guard
from fedns.federation.site.metrics import watched
from fedns.federation.site.rehearsal import rehearse
from fedns.federation.site.rows import read_from_disk, site_shards
from fedns.federation.site.service import SiteService
from fedns.numerics.backend import on_device
from fedns.problems.problem import Problem
from fedns.runs.builder import algorithm_of, at_site
from fedns.runs.spec import Spec

log = logging.getLogger("fedns.site")


def site_service(config: SiteConfig) -> SiteService:
    """The service that answers for this site."""
    shards = site_shards(config)  # a file that cannot be read is better known before anybody connects
    if larger := read_from_disk(shards):
        log.info("%s", larger)
    for sentence in meaning(config.permit, shards, config.folder / config.state):
        log.info("%s", sentence)
    state = config.folder / config.state
    build = partial(at_site, device=found_device(config))
    return SiteService(config.name, lambda spec: shards, build, config.permit, state, prepare=prepare)


def found_device(config: SiteConfig) -> str | None:
    """What the site is to compute on, refused here where it is not there."""
    if config.device is not None:
        on_device(config.device)
        log.info("computing on device %s", config.device)
    return config.device


def prepare(spec: Spec, problem: Problem, guard: Guard) -> None:
    """Compile what a run will call, before it is said to be open."""
    rehearse(algorithm_of(spec), problem, guard, spec)


def service(path: str | Path) -> Callable[[bytes], bytes]:
    """The same from the path of the site's file."""
    config = SiteConfig.read(Path(path))
    return watched(config.name, site_service(config).answer, config.metrics_port)


def reset_budget(path: Path) -> int:
    """Let a site's owner begin its budgets anew; how many there were."""
    config = SiteConfig.read(path)
    return reset_budgets(config.folder / config.state)
