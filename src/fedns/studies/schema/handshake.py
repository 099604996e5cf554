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
from fedns.studies.model.design import Design
from fedns.studies.model.terms import SiteTerms, knots_of, needs_more, polynomial_of, site_terms
from fedns.studies.schema.agreement import Agreement, first_agreement
from fedns.studies.schema.conflicts import StudyConflict, conflicts, notes
from fedns.studies.schema.site_table import Description, SiteTable
from fedns.studies.schema.summary import Summary, packed, summary_of, unpacked
from fedns.studies.study import Study


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
    agreement = Agreement.from_json(bytes(request.agreement).decode(errors="replace"))
    found = []
    for site, table in zip(clients.shards.names or (), _tables(clients), strict=True):
        try:
            told = site_terms(table.study, agreement, table)
        except DataError as error:
            raise DataError(f"site '{site}': {error}") from None
        found.append(TermFacts(rows=np.int64(told.rows), quantiles=told.quantiles, powers=told.powers))
    return as_batch(found)


HANDLERS: tuple[Handler, ...] = (describe_table, describe_terms)


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
    agreement = _completed(study, agreement, facts)
    return Agreed(Design(study, agreement), summaries, tuple(notes(study, summaries)))


def _completed(study: Study, agreement: Agreement, facts: Sequence[SiteTerms]) -> Agreement:
    polynomials = polynomial_of(study, facts)
    scales = {text: (0.0, 1.0 / np.sqrt(sum(told.rows for told in facts))) for text in polynomials}
    centres = {**agreement.centres, **{text: (centre, float(scale)) for text, (centre, scale) in scales.items()}}
    return replace(agreement, centres=centres, polynomials=polynomials, knots=knots_of(study, facts))


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
