"""Round zero: sites describe their tables, conflicts are found before anything is fitted, and all agree on the coding.

It goes through the same door as everything else: metered, in the ledgers, and only what the owner of the rows permits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import DataError, MessageError
from fedns.core.messages import Message, Payload, as_batch, split_batch, wire
from fedns.core.shards import Shards
from fedns.methods.exchanges.landmarks import (
    DistanceHistogram,
    GroupMeans,
    LandmarkRequest,
    WidthRequest,
    distance_histogram,
    group_means,
    groups_per_weight,
    landmarks_from,
    width_from,
)
from fedns.models.maps.kernel_maps import KERNELS
from fedns.studies.handshake.agreement import Agreement, first_agreement
from fedns.studies.handshake.conflicts import StudyConflict, conflicts, notes
from fedns.studies.handshake.site_table import SMALLEST_COUNT, Description, SiteTable
from fedns.studies.handshake.summary import Summary, packed, summary_of, unpacked
from fedns.studies.study import Study
from fedns.studies.tables.coding import columns_of
from fedns.studies.tables.design import Design
from fedns.studies.tables.feature_map import MapRule
from fedns.studies.tables.terms import SiteTerms, knots_of, needs_more, polynomial_of, site_terms


class TableQuestion(Message):
    """The server asks what a table looks like to this study."""

    study: Payload = wire("letters", dtype="uint8")  # its digest


class TableDescription(Message):
    """Kinds, units and names of levels as JSON; numbers of rows; means and standard deviations."""

    schema: Payload = wire("letters", dtype="uint8", ragged=True, discloses="schema")
    counts: Payload = wire("counts", dtype="int64", ragged=True, discloses="count")
    moments: Payload = wire("expressions", "moments", dtype="float64", discloses="moments")


class TermQuestion(Message):
    """What was agreed so far, as JSON: centres and levels."""

    agreement: Payload = wire("letters", dtype="uint8")


class TermFacts(Message):
    """What splines and polynomials need to know: smoothed quantiles, and mean powers of centred columns."""

    rows: Payload = wire(dtype="int64", discloses="count")
    quantiles: Payload = wire("splines", "probabilities", dtype="float64", discloses="moments")
    powers: Payload = wire("polynomials", "orders", dtype="float64", discloses="moments")


class MapQuestion(Message):
    """What was agreed so far, as JSON, and how many groups to make of a site's rows, relative to their number."""

    agreement: Payload = wire("letters", dtype="uint8")
    groups_per_weight: Payload = wire(dtype="float64")


@dataclass(frozen=True, eq=False)
class TableShards(Shards):
    """The tables of one or many clients before they are coded; as rows, the numbers that a study could take from them."""

    tables: tuple[SiteTable, ...] = ()  # one per client

    @classmethod
    def of(cls, tables: Mapping[str, SiteTable]) -> TableShards:
        """The tables of sites, by name."""
        plain = Shards.from_arrays(
            np.concatenate([table.numbers for table in tables.values()]),
            np.concatenate([table.row_marks for table in tables.values()]),
            [table.frame.num_rows for table in tables.values()],
        )
        names = tuple(tables)
        return cls(plain.rows, plain.targets, plain.starts, plain.stops, names=names, tables=tuple(tables.values()))

    def select(self, clients: ArrayLike) -> TableShards:
        chosen = np.asarray(clients, dtype=np.int64)
        tables = tuple(self.tables[client] for client in chosen)
        names = tuple((self.names or ())[client] for client in chosen)
        return replace(self, starts=self.starts[chosen], stops=self.stops[chosen], names=names, tables=tables)


@on_client(TableQuestion, TableDescription)
def describe_table(problem: Any, clients: Clients, request: TableQuestion) -> TableDescription:
    """What a site says of its table."""
    problem.before_rows_are_read()
    found = []
    for table in _tables(clients):
        if bytes(request.study).decode(errors="replace") != table.study.digest:
            raise MessageError("the question is about another study than the one that was opened")
        told = table.describe()
        found.append(TableDescription(schema=packed(told.schema), counts=told.counts, moments=told.moments))
    return as_batch(found)


@on_client(TermQuestion, TermFacts)
def describe_terms(problem: Any, clients: Clients, request: TermQuestion) -> TermFacts:
    """What a site adds for splines and polynomials."""
    problem.before_rows_are_read()
    agreement = Agreement.from_json(bytes(request.agreement).decode(errors="replace"))
    found = []
    for site, table in zip(clients.shards.names or (), _tables(clients), strict=True):
        try:
            told = site_terms(table.study, agreement, table)
        except DataError as error:
            raise DataError(f"site '{site}': {error}") from None
        found.append(TermFacts(rows=np.int64(told.rows), quantiles=told.quantiles, powers=told.powers))
    return as_batch(found)


@on_client(MapQuestion, DistanceHistogram)
def describe_distances(problem: Any, clients: Clients, request: MapQuestion) -> DistanceHistogram:
    """How far apart a site's coded rows are, for the width of a kernel."""
    problem.before_rows_are_read()
    rule, _, coded = _coded(clients, request)
    return distance_histogram(problem, coded, WidthRequest(np.int32(KERNELS.index(rule.kernel)), np.int64(rule.seed)))


@on_client(MapQuestion, GroupMeans)
def describe_groups(problem: Any, clients: Clients, request: MapQuestion) -> GroupMeans:
    """Means over groups of a site's coded rows, for landmarks; no group is smaller than its owner's limit."""
    problem.before_rows_are_read()
    rule, smallest, coded = _coded(clients, request)
    return group_means(problem, coded, LandmarkRequest(request.groups_per_weight, np.int64(smallest), np.int64(rule.seed)))


HANDLERS: tuple[Handler, ...] = (describe_table, describe_terms, describe_distances, describe_groups)


class Agreed(NamedTuple):
    """What the handshake ends with."""

    design: Design
    summaries: tuple[Summary, ...]
    notes: tuple[str, ...]


def shake_hands(study: Study, cohort: Cohort, sites: Sequence[str]) -> Agreed:
    """Ask, compare, agree; raises a StudyConflict with every reason where the tables do not fit."""
    digest = np.frombuffer(study.digest.encode(), dtype=np.uint8)
    described = _each(cohort.ask(describe_table, TableQuestion(study=digest)))
    summaries = tuple(
        summary_of(study, site, Description(unpacked(told.schema), told.counts, told.moments))
        for site, told in zip(sites, described, strict=True)
    )
    found = conflicts(study, summaries)
    if found:
        raise StudyConflict(found)
    agreement = first_agreement(study, summaries)
    facts: list[SiteTerms] = []
    if needs_more(study):
        question = TermQuestion(agreement=np.frombuffer(agreement.to_json().encode(), dtype=np.uint8))
        facts = [SiteTerms(int(t.rows), t.quantiles, t.powers) for t in _each(cohort.ask(describe_terms, question))]
    agreement = _mapped(study, _completed(study, agreement, facts), cohort)
    return Agreed(Design(study, agreement), summaries, tuple(notes(study, summaries)))


def _completed(study: Study, agreement: Agreement, facts: Sequence[SiteTerms]) -> Agreement:
    polynomials = polynomial_of(study, facts)
    scales = {text: (0.0, 1.0 / np.sqrt(sum(told.rows for told in facts))) for text in polynomials}
    centres = {**agreement.centres, **{text: (centre, float(scale)) for text, (centre, scale) in scales.items()}}
    return replace(agreement, centres=centres, polynomials=polynomials, knots=knots_of(study, facts))


def _mapped(study: Study, agreement: Agreement, cohort: Cohort) -> Agreement:
    """With the width and the landmarks of the feature map, where the study does not give them."""
    rule = study.feature_map
    if rule is None or not rule.asks:
        return agreement
    letters = np.frombuffer(agreement.to_json().encode(), dtype=np.uint8)
    question = MapQuestion(agreement=letters, groups_per_weight=groups_per_weight(rule.size, cohort))
    if not rule.width:
        agreement = replace(agreement, width=width_from(cohort.ask(describe_distances, question)))
    if rule.kind == "nystroem":
        found = landmarks_from(cohort.ask(describe_groups, question), rule.size, SMALLEST_COUNT, rule.seed)
        if found.shape[1] != len(Design(study, agreement).columns):
            raise MessageError("sites sent groups of other columns than those of the study")
        # Any points near the rows will do: four digits keep the description of the run small.
        rounded = tuple(tuple(float(f"{value:.4g}") for value in landmark) for landmark in found)
        agreement = replace(agreement, landmarks=rounded)
    return agreement


def _coded(clients: Clients, request: MapQuestion) -> tuple[MapRule, int, Clients]:
    """The rule of the map, the smallest group that every site's owner permits, and the clients over coded columns."""
    agreement = Agreement.from_json(bytes(request.agreement).decode(errors="replace"))
    tables = _tables(clients)
    rule = tables[0].study.feature_map
    if rule is None:
        raise MessageError("the study has no feature map")
    columns = [columns_of(Design(table.study, agreement), table) for table in tables]
    sizes = [len(rows) for rows in columns]
    shards = Shards.from_arrays(np.concatenate(columns), np.zeros(sum(sizes)), sizes, names=clients.shards.names)
    return rule, max(table.smallest_count for table in tables), replace(clients, shards=shards)


def _each(replies: Any) -> list[Any]:
    """Every site's reply by itself, in order."""
    found = []
    for positions, batch in replies:
        found += [split_batch(batch, place) for place in range(positions.stop - positions.start)]
    return found


def _tables(clients: Clients) -> tuple[SiteTable, ...]:
    if not isinstance(clients.shards, TableShards):
        raise DataError("this run is over coded rows: a table is described before it begins")
    return clients.shards.tables
