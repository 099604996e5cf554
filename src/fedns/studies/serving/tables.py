"""A site's table that studies are about: as it lies on disk, coded as was agreed."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

from fedns.core.clients import Handler
from fedns.core.cohort import register
from fedns.core.shards import Shards
from fedns.federation.config import SiteConfig
from fedns.federation.rules.refusal import small_group
from fedns.federation.site.explain import meaning_for_studies, read_from_disk
from fedns.federation.site.guard import admit_coding
from fedns.federation.site.service import SiteService
from fedns.federation.site.table_kind import TableKind
from fedns.models.evaluation import evaluate_locally
from fedns.models.losses import Squared
from fedns.models.problem import Problem
from fedns.numerics.backends.devices import on_device
from fedns.runs.builder import computed_on
from fedns.runs.methods import parse_method
from fedns.runs.over_sites import ColumnRun, Handshake, SiteRun, StudyRun
from fedns.studies.design.agreement import Agreement
from fedns.studies.design.columns import Design
from fedns.studies.design.rows import design_shards
from fedns.studies.design.site_table import SiteTable
from fedns.studies.fitting.estimate import study_problem
from fedns.studies.handshake.handshake import HANDLERS
from fedns.studies.handshake.table_shards import TableShards
from fedns.studies.questions import asked_of_study
from fedns.studies.serving.columns import Columns, Load, by_name, no_such_file
from fedns.studies.serving.row_sets import RowSets
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import SUFFIXES, Frame, read_frame
from fedns.studies.tables.files.opening import format_suffix

log = logging.getLogger("fedns.site")


class StudyTable(Columns):
    """A table whose columns studies name: to describe, or coded as was agreed; runs without a study get them as they are."""

    def __init__(self, config: SiteConfig, load: Load) -> None:
        super().__init__(config, load)
        self._read: tuple[tuple[int, ...], Frame, str] | None = None  # the table, and how to tell it is still that one

    @property
    def frame(self) -> Frame:
        """The table as it lies on disk now: one that was written anew is read anew."""
        return self._current[0]

    @property
    def mark(self) -> str:
        """Tell this table from any other: however a study codes it, what leaves is counted against the same budget."""
        return self._current[1]

    @property
    def _current(self) -> tuple[Frame, str]:
        path = self.config.folder / self.config.data.dataset
        if not path.is_file():
            raise no_such_file(path)
        file = path.stat()
        stamp = (file.st_ino, file.st_mtime_ns, file.st_size)
        if self._read is None or self._read[0] != stamp:
            self._read = stamp, read_frame(path), hashlib.sha256(path.read_bytes()).hexdigest()[:32]
            log.info("%d rows of %d columns", self._read[1].num_rows, len(self._read[1].columns))
        return self._read[1:]

    def plain_rows(self) -> Shards | None:
        frame = self.frame
        return None if self.config.data.target is None and frame else self.shards

    def meaning(self) -> list[str]:
        if self.config.data.target is not None:
            return super().meaning()
        return meaning_for_studies(self.config.permit, self.frame.num_rows, len(self.frame.columns), self.budget)

    def rows(self, spec: SiteRun) -> Shards:
        if isinstance(spec, ColumnRun):
            return self.shards
        table = self._table(spec)
        RowSets(self.config.folder / self.config.state, self.mark).admit(table.used, self.config.permit.smallest_difference)
        if isinstance(spec, Handshake):
            return TableShards.of({self.config.name: table})
        if table.has_small_outcome:
            raise small_group(f"fewer than {table.smallest_count} rows have one of the outcomes that the study names")
        design = _design(spec)
        columns = design.num_columns + (0 if design.study.feature_map is None else design.study.feature_map.size)
        admit_coding(self.config.permit, table.frame.num_rows, columns)
        return design_shards(design, {self.config.name: table})

    def build(self, spec: SiteRun) -> tuple[Problem, Mapping[str, Handler]]:
        if isinstance(spec, ColumnRun):
            return super().build(spec)
        if isinstance(spec, Handshake):
            return Problem(Squared()), by_name(register, *HANDLERS)
        algorithm = parse_method(spec.method).algorithm
        design = _design(spec)
        asked: tuple[Handler, ...] = (
            register,
            evaluate_locally,
            *asked_of_study(design, self.config.permit.smallest_cell, self.config.permit.smallest_level),
            *algorithm.handlers(),
        )
        return computed_on(self.config.device, study_problem(design.study, design)), by_name(*asked)

    def _table(self, spec: Handshake | StudyRun) -> SiteTable:
        return SiteTable.of(Study.from_json(spec.study), self.frame, self.config.permit)


def kind_of_table(config: SiteConfig, load: Load) -> TableKind:
    """Return the kind of table that a site's file is. load: `fedns.load`."""
    holds_a_table = format_suffix(Path(config.data.dataset)) in SUFFIXES
    return (StudyTable if holds_a_table else Columns)(config, load)


def site_service(config: SiteConfig, table: TableKind) -> SiteService:
    """Return the service that answers for this site, once its table is read and its device is there."""
    if config.device is not None:
        on_device(config.device)
        log.info("computing on device %s", config.device)
    # Read now: a file that cannot be read is better known before anybody connects.
    larger = read_from_disk(table.plain_rows())
    for sentence in filter(None, (larger, *table.meaning())):
        log.info("%s", sentence)
    return SiteService(config.name, table, config.permit, config.folder / config.state)


def _design(spec: StudyRun) -> Design:
    return Design(Study.from_json(spec.study), Agreement.from_json(spec.agreement))
