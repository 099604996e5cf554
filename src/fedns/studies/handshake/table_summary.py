"""The first exchange of the handshake, the server's half: a description is checked, since it comes from somebody else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.cohort import Cohort
from fedns.core.errors import MessageError
from fedns.studies.design.site_table import HIDDEN, numeric_expressions
from fedns.studies.handshake.description import Description, TableQuestion, describe_table
from fedns.studies.handshake.table_shards import each_reply, letters_of
from fedns.studies.study import Study
from fedns.studies.tables.formula import Factor
from fedns.studies.tables.recognition import SENTENCES

LONGEST_SCHEMA = 2**20  # bytes
_LONGEST_TEXT, _MOST_TEXTS = 200, 1000


@dataclass(frozen=True)
class ColumnFacts:
    """One column of one site. A count that the site does not tell is HIDDEN."""

    kind: str
    unit: str
    category: bool
    levels: tuple[str, ...]  # those with enough rows to be named
    hidden: bool  # rows of rare levels are made to look like the others
    rare: bool  # there are levels that are not named and that the study does not list
    looks_like: str  # a key of SENTENCES, or ""
    sentinel: float | None
    whole: bool  # whole numbers from 0 on
    pair: tuple[float, ...]  # the values of a column of numbers that has no more than two; else nothing
    missing: int
    outside: int  # values beyond the study's range
    undefined: int  # values for which a function of the formula has no result


@dataclass(frozen=True)
class Moments:
    """Mean and deviation of one expression at one site; a count of 0 where there are too few values to tell."""

    count: int
    mean: float
    deviation: float


@dataclass(frozen=True)
class TableSummary:
    """One site's table."""

    site: str
    rows: int
    used: int
    events: int
    non_events: int
    columns: Mapping[str, ColumnFacts]
    absent: Mapping[str, tuple[str, ...]]  # columns that are missing, and names that are like theirs
    ignored: int
    notes: tuple[str, ...] = ()
    moments: Mapping[Factor, Moments] = field(default_factory=dict)


def read_json(letters: NDArray[np.uint8]) -> Any:
    """The plain values of a message; a MessageError where it is too long or no JSON."""
    if letters.size > LONGEST_SCHEMA:
        raise MessageError(f"a description of {letters.size} bytes is too long: at most {LONGEST_SCHEMA} are read")
    try:
        return json.loads(letters.tobytes())
    except (ValueError, RecursionError):
        raise MessageError("a description is not JSON") from None


def ask_descriptions(study: Study, cohort: Cohort, sites: Sequence[str]) -> tuple[TableSummary, ...]:
    """Ask every site for its table, and check what it says."""
    replies = each_reply(cohort.ask(describe_table, TableQuestion(study=letters_of(study.digest))))
    described = [Description(read_json(told.schema), told.counts, told.moments) for told in replies]
    return tuple(summary_of(study, site, told) for site, told in zip(sites, described, strict=True))


def summary_of(study: Study, site: str, description: Description) -> TableSummary:
    """A site's description, refused unless every part is of the kind that it must be."""
    try:
        return _summary(study, site, description)
    except MessageError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise MessageError(f"site '{site}' sent a description that cannot be read: {error!r}") from None


def _summary(study: Study, site: str, description: Description) -> TableSummary:
    schema, counts = description.schema, [int(count) for count in description.counts]
    if schema["study"] != study.digest:
        raise MessageError(f"site '{site}' describes its table for another study")
    if any(count < HIDDEN for count in counts):
        raise MessageError(f"site '{site}' sent a negative count")
    absent = {str(name): _texts(close) for name, close in schema["absent"].items()}
    if set(absent) | set(schema["columns"]) != set(study.needed) or set(absent) & set(schema["columns"]):
        raise MessageError(f"site '{site}' describes other columns than those of the study")
    if len(counts) != 4 + 3 * len(study.needed):
        raise MessageError(f"site '{site}' sent {len(counts)} counts, {4 + 3 * len(study.needed)} were expected")
    columns = {}
    for place, name in enumerate(study.needed):
        if name not in absent:
            columns[name] = _facts(schema["columns"][name], counts[4 + 3 * place : 7 + 3 * place])
    expressions = numeric_expressions(study)
    if description.moments.shape != (len(expressions), 3) or (description.moments[:, [0, 2]] < 0).any():
        raise MessageError(f"site '{site}' sent moments that cannot be true")
    moments = {
        factor: Moments(int(count), float(mean), float(deviation))
        for factor, (count, mean, deviation) in zip(expressions, description.moments, strict=True)
    }
    rows, used, events, others = counts[:4]
    return TableSummary(
        site, rows, used, events, others, columns, absent, int(schema["ignored"]), _texts(schema["notes"]), moments
    )


def _facts(facts: Mapping[str, Any], numbers: list[int]) -> ColumnFacts:
    if facts["kind"] not in ("number", "bool", "text", "date", "empty") or facts["looks_like"] not in ("", *SENTENCES):
        raise ValueError(f"kind {facts['kind']!r}")
    sentinel = None if facts["sentinel"] is None else float(facts["sentinel"])
    (unit,) = _texts([facts["unit"]])
    flags = [facts[name] is True for name in ("category", "hidden", "rare", "whole")]
    pair = tuple(float(value) for value in facts["pair"])
    if len(pair) > 2:
        raise ValueError("more than a pair of values")
    levels = _texts(facts["levels"])
    category, hidden, rare, whole = flags
    return ColumnFacts(
        facts["kind"], unit, category, levels, hidden, rare, facts["looks_like"], sentinel, whole, pair, *numbers
    )


def _texts(values: Any) -> tuple[str, ...]:
    """Texts that are short, few, distinct, and hold nothing that would move a terminal's cursor."""
    if not isinstance(values, list) or len(values) > _MOST_TEXTS or not all(isinstance(value, str) for value in values):
        raise ValueError("a list of texts was expected")
    if any(len(value) > _LONGEST_TEXT or not value.isprintable() for value in values):
        raise ValueError("a text is too long or holds signs that cannot be printed")
    if len(set(values)) < len(values):
        raise ValueError("a text stands there twice")
    return tuple(values)
