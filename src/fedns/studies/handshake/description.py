"""The first exchange of the handshake, the site's half. Counts below its owner's limit are hidden, and their names."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedns.core.clients import Clients, on_client
from fedns.core.errors import MessageError
from fedns.core.messages import Message, Payload, as_batch, wire
from fedns.core.types import FloatArray, IntArray
from fedns.studies.design.site_table import HIDDEN, SiteTable, numeric_expressions
from fedns.studies.handshake.table_shards import letters_of, tables_of, text_of
from fedns.studies.tables.files.frames import Column
from fedns.studies.tables.recognition import are_counts, looks_like, sentinel_in


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


def json_bytes(schema: Mapping[str, Any]) -> Any:
    """Plain values as JSON that a message can carry."""
    return letters_of(json.dumps(schema, ensure_ascii=False, separators=(",", ":")))


@dataclass(frozen=True)
class Description:
    """A site's table, in numbers and plain values."""

    schema: Mapping[str, Any]  # kinds, units, names of levels, what columns look like
    counts: IntArray
    moments: FloatArray  # (expressions, 3): values, their mean and their standard deviation


def describe(table: SiteTable) -> Description:
    """Everything that leaves in the first exchange of the handshake."""
    study = table.study
    absent = [name for name in study.needed if name not in table.columns]
    columns: dict[str, Any] = {}
    counts = [*_rows(table), *_events(table)]
    for name in study.needed:
        if name in absent:
            counts += [0, 0, 0]
            continue
        columns[name], numbers = _column(table, name)
        counts += numbers
    schema = {
        "study": study.digest,
        "columns": columns,
        "absent": {name: _close_names(table, name) for name in absent},
        "ignored": len(table.frame.columns) - len(columns),
        "notes": list(table.frame.notes),
    }
    return Description(schema, np.array(counts, dtype=np.int64), _moments(table))


def _column(table: SiteTable, name: str) -> tuple[dict[str, Any], list[int]]:
    study, column, rule = table.study, table.columns[name], table.study.rule(name)
    facts: dict[str, Any] = {"kind": column.kind, "unit": column.unit, "levels": [], "rare": False, "category": False}
    facts["hidden"] = table.hides_rare and _has_rare(table, name)
    category = table.is_category(name)
    looks = looks_like(column, category) if name not in (study.parsed.outcome, study.status) else ""
    if category and not looks:
        named, rare = _levels(table, name)
        facts |= {"levels": named, "rare": rare, "category": True}
    sentinel = sentinel_in(table.frame.columns[name].rows(~column.missing)) if not rule.range and not category else None
    facts |= {"looks_like": looks, "sentinel": sentinel}
    facts["pair"] = _pair(table, column) if column.numeric and not category else []
    facts["whole"] = column.numeric and are_counts(column.present)
    outside = 0
    if column.numeric and rule.range:
        outside = int(((column.numbers < rule.range[0]) | (column.numbers > rule.range[1])).sum())
    numbers = (int(column.missing.sum()), outside, _undefined(table, name))
    return facts, list(map(table.or_hidden, numbers))


def _levels(table: SiteTable, name: str) -> tuple[list[str], bool]:
    """Levels that may be named, and whether there are others that the study does not list. How often is not told."""
    study, found = table.study, table.columns[name].counts()
    listed = (*study.event, *study.non_event) if name == study.event_column else study.rule(name).levels
    named = sorted(label for label, count in found.items() if count >= table.smallest_count)
    rare = any(count < table.smallest_count and label not in listed for label, count in found.items())
    return named, rare


def _has_rare(table: SiteTable, name: str) -> bool:
    if not table.is_category(name) or name == table.study.event_column:
        return False
    return any(count < table.smallest_count for count in table.columns[name].rows(table.used).counts().values())


def _pair(table: SiteTable, column: Column) -> list[float]:
    """The values of a column that has no more than two, each with enough rows to be told."""
    values, counts = np.unique(column.present, return_counts=True)
    return values.tolist() if 1 <= values.size <= 2 and counts.min() >= table.smallest_count else []


def _events(table: SiteTable) -> list[int]:
    study, counts = table.study, table.outcome_counts
    if study.event_column not in table.columns:
        return [HIDDEN, HIDDEN]
    events = [sum(counts.get(label, 0) for label in which) for which in (study.event, study.non_event)]
    # One of them and the number of rows would tell the other, and two lists that differ by a label how many have it.
    return [HIDDEN, HIDDEN] if table.has_small_outcome or HIDDEN in map(table.or_hidden, events) else events


def _rows(table: SiteTable) -> list[int]:
    """Rows of the table and rows that are used; the same number where the difference is too small to be told."""
    rows, used = table.frame.num_rows, int(table.used.sum())
    told = table.or_hidden(used)
    return [told if table.or_hidden(rows - used) == HIDDEN else rows, told]


def _undefined(table: SiteTable, name: str) -> int:
    """Values for which a function of the formula has no result."""
    column = table.columns[name]
    if not column.numeric:
        return 0
    bad = np.zeros(column.present.size, dtype=np.bool_)
    for factor in table.study.parsed.factors:
        if factor.column == name:
            with np.errstate(all="ignore"):
                bad |= ~np.isfinite(factor.transform.of(column.present))
    return int(bad.sum())


def _moments(table: SiteTable) -> FloatArray:
    expressions = numeric_expressions(table.study)
    found = np.zeros((len(expressions), 3))
    for place, factor in enumerate(expressions):
        column = table.columns.get(factor.column)
        if column is None or not column.numeric or table.is_category(factor.column):
            continue
        with np.errstate(all="ignore"):
            values = factor.transform.of(column.numbers[table.used])
        values = values[np.isfinite(values)]
        if values.size >= table.smallest_count:
            found[place] = values.size, values.mean(), values.std()
    return found


def _close_names(table: SiteTable, name: str) -> list[str]:
    """Columns of the table whose names are like a missing one's."""
    lower = {other.lower(): other for other in table.frame.columns if other not in table.columns}
    close = difflib.get_close_matches(name.lower(), lower, n=2, cutoff=0.7)
    return [lower[other] for other in close]
