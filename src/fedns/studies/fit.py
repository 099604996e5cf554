"""Fitting a study over tables on one machine: every site is simulated, and told apart only by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedns.core.checked import checked
from fedns.core.cohort import Session
from fedns.core.errors import ConfigError, DataError
from fedns.core.history import Observer
from fedns.core.messages.ledger import Meter
from fedns.models.losses import Squared
from fedns.models.problem import Problem
from fedns.numerics.linalg import single_threaded_blas
from fedns.studies.design.rows import design_shards
from fedns.studies.design.site_table import SMALLEST_COUNT, SiteTable
from fedns.studies.fitting.estimate import begin, estimate, study_algorithm, study_problem
from fedns.studies.handshake.handshake import run_handshake
from fedns.studies.handshake.table_shards import TableShards
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.site_lines import RecordedCohort, SiteLines
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import Frame, read_frame


@checked
def fit_study(
    study: Study,
    tables: Mapping[str, Any],
    *,
    smallest_count: int = SMALLEST_COUNT,
    observers: Sequence[Observer] = (),
) -> StudyFit:
    """Fit a study over the tables of sites.

    Raises a StudyConflict where the tables do not fit the study or each other, and a SeparationError where the likelihood
    has no maximum.

    - study: fedns.Study(...), or one read from a file.
    - tables: by name of the site: paths, pandas or polars frames, Arrow tables.
    - smallest_count: groups of fewer rows than this are neither named nor counted.
    - observers: told of every round.
    """
    if not tables:
        raise ConfigError("no table was given: a study needs at least one site")
    frames = {str(site): _read(str(site), table) for site, table in tables.items()}
    sites = {site: SiteTable(study, frame, smallest_count) for site, frame in frames.items()}
    meter, lines = Meter(), SiteLines()
    with single_threaded_blas():
        described = RecordedCohort(TableShards.of(sites), Session(Problem(Squared()), 0, meter=meter), lines)
        agreed = run_handshake(study, described, tuple(sites))
        shards = design_shards(agreed.design, sites)
        problem = study_problem(study, agreed.design)
        problem.loss.check(shards)
        cohort = RecordedCohort(shards, Session(problem, 0, meter=meter), lines)
        algorithm = study_algorithm(study, cohort.num_features, cohort.num_clients)
        fit = estimate(begin(agreed, cohort), algorithm, observers=observers, smallest_count=smallest_count)
        return replace(fit, site_lines=lines)


def _read(site: str, table: Any) -> Frame:
    try:
        return read_frame(table)
    except DataError as error:
        raise DataError(f"site '{site}': {error}") from None
