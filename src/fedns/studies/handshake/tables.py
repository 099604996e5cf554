"""The first exchange of the handshake: every site describes its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import MessageError
from fedns.core.messages import Message, Payload, as_batch, wire
from fedns.studies.design.site_table import SiteTable
from fedns.studies.handshake.description import Description, describe
from fedns.studies.handshake.table_shards import each_reply, letters_of, tables_of, text_of
from fedns.studies.handshake.table_summary import TableSummary, json_bytes, read_json, summary_of
from fedns.studies.study import Study


class TableQuestion(Message):
    """The server asks what a table looks like to this study."""

    study: Payload = wire("letters", dtype="uint8")  # its digest


class TableDescription(Message):
    """Kinds, units and names of levels as JSON; numbers of rows; means and standard deviations."""

    schema: Payload = wire("letters", dtype="uint8", ragged=True, discloses="schema")
    counts: Payload = wire("counts", dtype="int64", ragged=True, discloses="count")
    moments: Payload = wire("expressions", "moments", dtype="float64", discloses="moments")


@on_client(TableQuestion, TableDescription)
def describe_table(problem: Any, clients: Clients, request: TableQuestion) -> TableDescription:
    """Describe the tables of these clients."""
    problem.before_rows_are_read()
    tables = tables_of(clients).values()
    if any(text_of(request.study) != table.study.digest for table in tables):
        raise MessageError("the question is about another study than the one that was opened")
    return as_batch([message_of(table) for table in tables])


def message_of(table: SiteTable) -> TableDescription:
    """The description of one table as it travels."""
    told = describe(table)
    return TableDescription(schema=json_bytes(told.schema), counts=told.counts, moments=told.moments)


def ask_descriptions(study: Study, cohort: Cohort, sites: Sequence[str]) -> tuple[TableSummary, ...]:
    """Ask every site for its table, and check what it says."""
    replies = each_reply(cohort.ask(describe_table, TableQuestion(study=letters_of(study.digest))))
    described = [Description(read_json(told.schema), told.counts, told.moments) for told in replies]
    return tuple(summary_of(study, site, told) for site, told in zip(sites, described, strict=True))
