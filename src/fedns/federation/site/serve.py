"""The parts that every service of a site is made with, whatever its rows are coded by."""

from __future__ import annotations

import logging
from pathlib import Path

from fedns.federation.config import SiteConfig
from fedns.federation.site.budget import reset_budgets
from fedns.federation.site.explain import meaning, meaning_for_studies
from fedns.federation.site.guard import Guard
from fedns.federation.site.rehearsal import rehearse
from fedns.federation.site.rows import budget_of, holds_a_table, read_from_disk, site_shards, table_file
from fedns.models.problem import Problem
from fedns.numerics.backends.devices import on_device
from fedns.runs.builder import algorithm_of
from fedns.runs.over_sites import ColumnRun, StudyRun
from fedns.studies.tables.files.frames import Frame, read_frame

log = logging.getLogger("fedns.site")


def limits_of(config: SiteConfig, frame: Frame | None = None) -> list[str]:
    """Say what the limits in a site's file mean for its rows, and what has left. frame: the table, where it is read."""
    if holds_a_table(config) and config.data.target is None:  # a study names its columns
        table = frame or read_frame(table_file(config))
        return meaning_for_studies(config.permit, table.num_rows, len(table.columns), budget_of(config))
    shards = site_shards(config)
    larger = read_from_disk(shards)
    return [*([larger] if larger else []), *meaning(config.permit, shards, budget_of(config))]


def found_device(config: SiteConfig) -> str | None:
    """What the site is to compute on, refused here where it is not there."""
    if config.device is not None:
        on_device(config.device)
        log.info("computing on device %s", config.device)
    return config.device


def prepare(spec: ColumnRun | StudyRun, problem: Problem, guard: Guard) -> None:
    """Compile what a run will call, before it is said to be open."""
    rehearse(algorithm_of(spec), problem, guard, spec)


def reset_budget(path: Path) -> int:
    """Let a site's owner begin its budgets anew; how many there were."""
    config = SiteConfig.read(path)
    return reset_budgets(config.folder / config.state)
