"""Round zero: sites describe their tables, conflicts are found before anything is fitted, and all agree on the coding.

It goes through the same door as everything else: metered, in the ledgers, and only what the owner of the rows permits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedns.core.clients import Handler
from fedns.core.cohort import Cohort
from fedns.studies.design.columns import Design
from fedns.studies.handshake.agreeing import first_agreement
from fedns.studies.handshake.conflicts import StudyConflict, conflicts, remarks
from fedns.studies.handshake.maps import ask_map, describe_distances, describe_groups
from fedns.studies.handshake.table_summary import TableSummary
from fedns.studies.handshake.tables import ask_descriptions, describe_table
from fedns.studies.handshake.terms import ask_terms, describe_terms
from fedns.studies.study import Study

HANDLERS: tuple[Handler, ...] = (describe_table, describe_terms, describe_distances, describe_groups)


class Agreed(NamedTuple):
    """What the handshake ends with."""

    design: Design
    summaries: tuple[TableSummary, ...]
    notes: tuple[str, ...]


def run_handshake(study: Study, cohort: Cohort, sites: Sequence[str]) -> Agreed:
    """Ask, compare, agree; raises a StudyConflict with every reason where the tables do not fit."""
    summaries = ask_descriptions(study, cohort, sites)
    found = conflicts(study, summaries)
    if found:
        raise StudyConflict(found)
    agreement = ask_terms(study, first_agreement(study, summaries), cohort)
    agreement = ask_map(study, agreement, cohort)
    return Agreed(Design(study, agreement), summaries, tuple(remarks(study, summaries)))
