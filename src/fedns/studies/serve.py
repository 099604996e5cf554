"""A site that takes part in studies: its table as it lies on disk, coded as was agreed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from fedns.core.clients import Handler
from fedns.core.cohort import register
from fedns.core.shards import Shards
from fedns.federation.config import SiteConfig
from fedns.federation.permissions import small_group
from fedns.federation.site.guard import Guard, admit_coding
from fedns.federation.site.metrics import watched
from fedns.federation.site.rows import holds_a_table, mark_of, site_shards, table_file
from fedns.federation.site.serve import found_device, limits_of, prepare
from fedns.federation.site.service import SiteService
from fedns.models.evaluation import evaluate_locally
from fedns.models.families import family_of
from fedns.models.losses import Squared
from fedns.models.problem import Problem
from fedns.runs.builder import at_site, computed_on
from fedns.runs.methods import parse_method
from fedns.runs.over_sites import ColumnRun, Handshake, SiteRun, StudyRun
from fedns.studies.design.agreement import Agreement
from fedns.studies.design.columns import Design
from fedns.studies.design.rows import design_shards
from fedns.studies.design.site_table import SiteTable
from fedns.studies.fitting.estimate import problem_of
from fedns.studies.handshake.handshake import HANDLERS
from fedns.studies.handshake.table_shards import TableShards
from fedns.studies.questions import asked_of_rows, asked_of_study
from fedns.studies.row_sets import RowSets
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import Frame, read_frame

log = logging.getLogger("fedns.site")


class StudySite:
    """What a site computes with, by the description of a run: bare columns, a table to describe, or coded rows."""

    def __init__(self, config: SiteConfig) -> None:
        self._config, self._device = config, found_device(config)
        self._held: tuple[tuple[int, ...], Frame, str] | None = None  # the table, and how to tell it is still that one

    @property
    def frame(self) -> Frame:
        """The table as it lies on disk now: one that was written anew is read anew."""
        return self._current[0]

    @property
    def mark(self) -> str:
        """Tells this table from any other: however a study codes it, what leaves is counted against the same budget."""
        return self._current[1] if self.holds_a_table else ""

    @property
    def _current(self) -> tuple[Frame, str]:
        path = table_file(self._config)
        file = path.stat()
        stamp = (file.st_ino, file.st_mtime_ns, file.st_size)
        if self._held is None or self._held[0] != stamp:
            self._held = stamp, read_frame(path), mark_of(path)
            log.info("%d rows of %d columns", self._held[1].num_rows, len(self._held[1].columns))
        return self._held[1:]

    @property
    def holds_a_table(self) -> bool:
        return holds_a_table(self._config)

    def rows(self, spec: SiteRun) -> Shards:
        """The rows that a run is over."""
        if isinstance(spec, ColumnRun):
            return site_shards(self._config)
        table = self._table(spec)
        RowSets(self._config.folder / self._config.state, self.mark).admit(
            table.used, self._config.permit.smallest_difference
        )
        if isinstance(spec, Handshake):
            return TableShards.of({self._config.name: table})
        if table.has_small_outcome:
            raise small_group(f"fewer than {table.smallest_count} rows have one of the outcomes that the study names")
        design = _design(spec)
        columns = design.num_columns + (0 if design.study.feature_map is None else design.study.feature_map.size)
        admit_coding(self._config.permit, table.frame.num_rows, columns)
        return design_shards(design, {self._config.name: table})

    def build(self, spec: SiteRun) -> tuple[Problem, Mapping[str, Handler]]:
        """The problem of a run, and by name the handlers that it may ask for."""
        if isinstance(spec, ColumnRun):
            return without_study(spec, self._device)
        if isinstance(spec, Handshake):
            return Problem(Squared()), _named(register, *HANDLERS)
        algorithm = parse_method(spec.method).algorithm
        design = _design(spec)
        asked: tuple[Handler, ...] = (
            register,
            evaluate_locally,
            *asked_of_study(design, self._config.permit.smallest_cell, self._config.permit.smallest_level),
            *algorithm.handlers(),
        )
        return computed_on(self._device, problem_of(design.study, design)), _named(*asked)

    def _table(self, spec: Handshake | StudyRun) -> SiteTable:
        permit, study = self._config.permit, Study.from_json(spec.study)
        # Of a feature map's columns nobody can tell any more which rows have a rare level.
        hides = permit.rare_levels == "blank" or (study.feature_map is not None and permit.rare_levels == "refuse")
        return SiteTable(study, self.frame, max(1, permit.smallest_level), hides)


def without_study(spec: ColumnRun, device: str | None = None) -> tuple[Problem, Mapping[str, Handler]]:
    """Of a run over bare columns: what its method asks for, and what tells how much its coefficients are worth."""
    problem, handlers = at_site(spec, device)
    family = family_of(problem.loss)
    return problem, {**handlers, **_named(*(asked_of_rows(family) if family else ()))}


def site_service(config: SiteConfig) -> SiteService:
    """The service that answers for this site."""
    site, state = StudySite(config), config.folder / config.state
    # Read now: a file that cannot be read is better known before anybody connects.
    for sentence in limits_of(config, site.frame if site.holds_a_table else None):
        log.info("%s", sentence)
    return SiteService(config.name, site.rows, site.build, config.permit, state, lambda: site.mark, _prepare)


def _prepare(spec: SiteRun, problem: Problem, guard: Guard) -> None:
    if not isinstance(spec, Handshake):  # describing a table calls nothing that is compiled
        prepare(spec, problem, guard)


def service(path: str | Path) -> Callable[[bytes], bytes]:
    """The same from the path of the site's file."""
    config = SiteConfig.read(Path(path))
    return watched(config.name, site_service(config).answer, config.metrics_port)


def _design(spec: StudyRun) -> Design:
    return Design(Study.from_json(spec.study), Agreement.from_json(spec.agreement))


def _named(*handlers: Handler) -> dict[str, Handler]:
    return {handler.__name__: handler for handler in handlers}
