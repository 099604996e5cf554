"""Round zero: sites describe their tables, conflicts are found before anything is fitted, and all agree on the coding.

It goes through the same door as everything else: metered, in the ledgers, and only what the owner of the rows permits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedns.core.clients import Handler
from fedns.core.cohort import Cohort
from fedns.studies.design.agreement import MISSING_LEVEL, Agreement
from fedns.studies.design.columns import Design
from fedns.studies.design.site_table import numeric_expressions
from fedns.studies.handshake.conflicts import StudyConflict, conflicts, remarks
from fedns.studies.handshake.description import describe_table
from fedns.studies.handshake.maps import ask_map, describe_distances, describe_groups
from fedns.studies.handshake.table_summary import TableSummary, ask_descriptions
from fedns.studies.handshake.terms import ask_terms, describe_terms
from fedns.studies.study import Study
from fedns.studies.tables.formula import Factor
from fedns.studies.tables.recognition import level_order

HANDLERS: tuple[Handler, ...] = (describe_table, describe_terms, describe_distances, describe_groups)


class Agreed(NamedTuple):
    """The end of the handshake."""

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


def first_agreement(study: Study, sites: Sequence[TableSummary]) -> Agreement:
    """Levels and centres from the descriptions of all sites; they have no conflict any more."""
    columns = (*study.parsed.columns, *([study.parsed.outcome] if study.has_classes else []))
    levels = {name: _united(study, name, sites) for name in columns if any(s.columns[name].category for s in sites)}
    centres = {factor.text: _centre(factor, sites) for factor in numeric_expressions(study)}
    fills = {}
    if study.missing == "mean":
        gaps = [name for name in study.parsed.columns if any(summary.columns[name].missing for summary in sites)]
        fills = {name: _centre(Factor(name), sites)[0] for name in gaps if name not in levels}
        levels |= {name: (*levels[name], MISSING_LEVEL) for name in gaps if name in levels}
    return Agreement(study.digest, levels, centres, fills)


def _united(study: Study, name: str, sites: Sequence[TableSummary]) -> tuple[str, ...]:
    rule = study.rule(name)
    named = {level for summary in sites for level in summary.columns[name].levels}
    levels = list(rule.levels) or sorted(named, key=level_order)
    reference = rule.reference or (levels[0] if levels else "")
    return (reference, *(level for level in levels if level != reference))


def _centre(factor: Factor, sites: Sequence[TableSummary]) -> tuple[float, float]:
    """Mean and standard deviation over all sites that could tell theirs; 0 and 1 where none could.

    A column that is constant but for rounding is in units of its size: what is left of it then stays as small as it is.
    """
    known = [summary.moments[factor] for summary in sites if factor in summary.moments and summary.moments[factor].count]
    total = sum(moments.count for moments in known)
    if not total:
        return 0.0, 1.0
    mean = sum(moments.count * moments.mean for moments in known) / total
    squares = sum(moments.count * (moments.deviation**2 + (moments.mean - mean) ** 2) for moments in known)
    deviation = math.sqrt(squares / total)
    return mean, deviation if deviation > 1e-12 * max(1e-300, abs(mean)) else abs(mean) or 1.0
