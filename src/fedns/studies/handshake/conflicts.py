"""Everything that stands between tables and a fit, in plain words, each with the sites that it concerns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from fedns.core.errors import DataError
from fedns.models.family import Outcomes
from fedns.studies.design.site_table import HIDDEN, must_be_known
from fedns.studies.handshake.spread import far_apart
from fedns.studies.handshake.table_summary import ColumnFacts, TableSummary
from fedns.studies.study import Study
from fedns.studies.tables.recognition import SENTENCES

_ALIKE = 0.85


class StudyConflict(DataError):
    """Tables that do not fit the study or each other; every reason is one sentence."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        super().__init__(f"the study cannot be fitted{more}: " + "; ".join(reasons))


def conflicts(study: Study, sites: Sequence[TableSummary]) -> list[str]:
    """Every reason not to fit."""
    found = list(_absent(study, sites))
    if found:
        return found  # whatever else there is may come from that
    for name in study.needed:
        facts = {summary.site: summary.columns[name] for summary in sites}
        found += _units(study, name, facts)
        if name in (study.parsed.outcome, study.status):
            found += _outcome(study, name, facts)
        elif name == study.weights:
            found += [f"the weights '{name}' are not numbers at site '{s}'" for s, f in facts.items() if f.kind != "number"]
        else:
            found += _kinds(study, name, facts)
            found += _pairs(name, facts)
            found += _levels(study, name, facts)
        found += _values(study, name, facts)
    found += _missing(study, sites)
    return found or far_apart(study, sites)


def remarks(study: Study, sites: Sequence[TableSummary]) -> list[str]:
    """Sentences that are worth knowing and do not stop anything."""
    found = []
    for summary in sites:
        found += [f"site '{summary.site}': {note}" for note in summary.notes]
        if summary.ignored:
            found.append(f"site '{summary.site}': {_number(summary.ignored, 'column')} that the study does not name ignored")
        found += _left_out(study, summary)
        if study.has_events and 0 in (summary.events, summary.non_events):
            found.append(f"site '{summary.site}' has {'no event' if summary.events == 0 else 'events only'}")
    outcome = study.parsed.outcome
    if study.family == "gaussian" and all(summary.columns[outcome].whole for summary in sites):
        found.append(f"the outcome '{outcome}' holds whole numbers from 0 on: if they are counts, set family = \"poisson\"")
    return found


def _left_out(study: Study, summary: TableSummary) -> Iterator[str]:
    """Rows that miss a value or weigh nothing; where the site does not count so few, its rows are those that are left."""
    gaps = {name: facts.missing for name, facts in summary.columns.items() if facts.missing and must_be_known(study, name)}
    listed = ", ".join(f"'{name}' ({'few' if count == HIDDEN else count})" for name, count in gaps.items())
    dropped = summary.rows - summary.used if summary.used != HIDDEN else 0
    if dropped:
        causes = [*([f"miss a value of {listed}"] if gaps else []), *(["have a weight of 0"] if study.weights else [])]
        yield f"site '{summary.site}': {dropped} of {summary.rows} rows {' or '.join(causes)} and are left out"
    elif gaps:
        yield (
            f"site '{summary.site}': a few rows, fewer than its owner lets be counted, miss a value of {listed} and are "
            f"left out; its {summary.rows} rows are those without them"
        )


def number_columns(study: Study) -> set[str]:
    """Columns that the formula uses in a way that only numbers can be."""
    used = {factor.column for factor in study.parsed.factors if factor.transform.needs_numbers}
    return used | {name for name, rule in study.columns.items() if rule.kind == "number"}


def _absent(study: Study, sites: Sequence[TableSummary]) -> Iterator[str]:
    for summary in sites:
        for name, close in summary.absent.items():
            role = "the outcome" if name == study.parsed.outcome else "the column"
            hint = f": it has {_quoted(close)}, which is likely the same; rename it there" if close else ""
            yield f"site '{summary.site}' does not have {role} '{name}'{hint or ': add it, or take it out of the formula'}"


def _units(study: Study, name: str, facts: dict[str, ColumnFacts]) -> Iterator[str]:
    agreed, whose = study.rule(name).unit, "the study"
    for site, column in facts.items():
        if column.unit and not agreed:
            agreed, whose = column.unit, f"site '{site}'"
        elif column.unit and column.unit.casefold() != agreed.casefold():
            yield f"column '{name}' is in {column.unit} at site '{site}', and in {agreed} according to {whose}: convert one"


def _kinds(study: Study, name: str, facts: dict[str, ColumnFacts]) -> Iterator[str]:
    for site, column in facts.items():
        if column.looks_like:
            yield f"column '{name}' at site '{site}' {SENTENCES[column.looks_like]}: take it out of the formula"
    plain = {site: column for site, column in facts.items() if not column.looks_like}
    texts = [site for site, column in plain.items() if column.kind == "text"]
    numbers = [site for site, column in plain.items() if column.kind in ("number", "bool")]
    if name in number_columns(study):
        for site in texts:
            yield f"column '{name}' must hold numbers, and holds text at site '{site}': correct those cells"
    elif texts and numbers and not study.rule(name).levels:
        yield (
            f"column '{name}' holds numbers at site '{numbers[0]}' and text at site '{texts[0]}': write it alike, or list "
            "its levels in the study"
        )


def _pairs(name: str, facts: dict[str, ColumnFacts]) -> Iterator[str]:
    """Columns of two values that are coded in two ways, such as 0 and 1 here, 1 and 2 there."""
    pairs = {site: column.pair for site, column in facts.items() if len(column.pair) == 2}
    if len(pairs) < len(facts):
        return
    first = next(iter(pairs))
    for site, pair in pairs.items():
        if pair != pairs[first]:
            coded = [" and ".join(f"{value:g}" for value in values) for values in (pairs[first], pair)]
            yield f"column '{name}' is coded {coded[0]} at site '{first}' and {coded[1]} at site '{site}': code it alike"


def _levels(study: Study, name: str, facts: dict[str, ColumnFacts]) -> Iterator[str]:
    listed = study.rule(name).levels
    for site, column in facts.items():
        if column.hidden:
            yield (
                f"site '{site}' hides levels of '{name}' that few of its rows have, so that the answer would not be that of "
                'all rows: its owner may set rare_levels = "show", or the study merge levels'
            )
        for level in column.levels:
            if listed and level not in listed:
                yield (
                    f"column '{name}' at site '{site}' has the level '{level}', which the study does not list"
                    f"{_likely(level, listed)}"
                )
        if listed and column.rare:
            yield f"column '{name}' at site '{site}' has levels, too rare to be named, that the study does not list"
    if listed:
        return
    where: dict[str, list[str]] = {}
    for site, column in facts.items():
        for level in column.levels:
            where.setdefault(level, []).append(site)
    levels = sorted(where)
    for place, one in enumerate(levels):
        for other in levels[place + 1 :]:
            apart = not set(where[one]) & set(where[other])
            if _same(one, other) or (apart and _similar(one, other)):
                yield (
                    f"column '{name}' has the level '{one}' at site '{where[one][0]}' and '{other}' at site "
                    f"'{where[other][0]}', likely the same: spell them alike, or list both as levels in the study"
                )
    reference = study.rule(name).reference
    if reference and where and reference not in where:
        yield f"column '{name}': no site has the reference level '{reference}': levels are {_quoted(levels)}"


def _outcome(study: Study, name: str, facts: dict[str, ColumnFacts]) -> Iterator[str]:
    if name == study.event_column:
        yield from _labels(study, name, facts)
        return
    if study.has_classes:
        yield from _levels(study, name, facts)
        known = study.rule(name).levels or {level for column in facts.values() for level in column.levels}
        if len(known) < 2:
            yield f"the outcome '{name}' has fewer than two classes that enough rows have to be told"
        return
    for site, column in facts.items():
        if column.kind not in ("number", "bool"):
            yield f"the outcome '{name}' of family {study.family} must be a number, and is {column.kind} at site '{site}'"
        elif study.distribution.outcomes is Outcomes.COUNT and not column.whole:
            yield f"the outcome '{name}' of family {study.family} must be a count, and is not at site '{site}'"


def _labels(study: Study, name: str, facts: dict[str, ColumnFacts]) -> Iterator[str]:
    known = (*study.event, *study.non_event)
    fitting = next((site for site, column in facts.items() if set(column.levels) <= set(known) and not column.rare), None)
    for site, column in facts.items():
        strange = [level for level in column.levels if level not in known]
        beside = f", as site '{fitting}' does" if fitting else ""
        if strange:
            yield (
                f"the outcome '{name}' at site '{site}' holds {_quoted(strange[:5])}; the study takes "
                f"{_quoted(study.event)} for the event and {_quoted(study.non_event)} for its absence{beside}"
                f"{_likely(strange[0], known)}"
            )
        elif column.rare:
            yield (f"the outcome '{name}' at site '{site}' has values, too rare to be named, that the study does not list")
    told = {label for column in facts.values() for label in column.levels}
    for which, words in ((study.event, "event"), (study.non_event, "row without an event")):
        if told and not told & set(which):
            yield f"no site has an {words} ({_quoted(which)}) often enough to be told: is '{name}' coded otherwise?"


def _values(study: Study, name: str, facts: dict[str, ColumnFacts]) -> Iterator[str]:
    rule = study.rule(name)
    for site, column in facts.items():
        if column.sentinel is not None:
            yield (
                f"column '{name}' at site '{site}' holds {column.sentinel:g}, far outside its other values: if that means "
                f"missing, set missing_codes = [{column.sentinel:g}]; if it is a value, state its range in the study"
            )
        if column.outside:
            unit = f" {rule.unit}" if rule.unit else ""
            yield (
                f"column '{name}' at site '{site}' has {_some(column.outside)} outside the study's range "
                f"{rule.range[0]:g} to {rule.range[1]:g}{unit}"
            )
        if column.undefined:
            functions = [factor for factor in study.parsed.factors if factor.column == name and factor.transform.defined]
            where = " and ".join(factor.transform.defined for factor in functions)
            yield (
                f"column '{name}' at site '{site}' has {_some(column.undefined)} for which {functions[0].text} is not "
                f"defined: values must be {where}"
            )


def _missing(study: Study, sites: Sequence[TableSummary]) -> Iterator[str]:
    for summary in sites:
        gaps = {name: facts.missing for name, facts in summary.columns.items() if facts.missing}
        if gaps and study.missing == "refuse":
            listed = ", ".join(f"{_some(count)} of '{name}'" for name, count in gaps.items())
            yield (
                f'site \'{summary.site}\' misses {listed}: choose missing = "complete" (leave those rows out) or "mean" '
                "(fill in the mean, with an indicator)"
            )
        elif summary.used == 0:
            yield f"site '{summary.site}' has no row without a missing value: leave it out, or choose missing = \"mean\""


def _some(count: int) -> str:
    return "some values" if count == HIDDEN else _number(count, "value")


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _likely(found: str, known: Sequence[str]) -> str:
    same = next((other for other in known if _same(found, other) or _similar(found, other)), None)
    return f": '{found}' is likely the same as '{same}'" if same else ""


def _normal(level: str) -> str:
    return re.sub(r"[\W_]+", "", level).casefold()


def _same(one: str, other: str) -> bool:
    """The same but for case, spaces and punctuation."""
    return one != other and bool(_normal(one)) and _normal(one) == _normal(other)


def _similar(one: str, other: str) -> bool:
    """A slip of the pen apart, with the same digits in both."""
    digits = [re.sub(r"\D", "", text) for text in (one, other)]
    return (
        digits[0] == digits[1]
        and len(one) > 3
        and difflib.SequenceMatcher(None, _normal(one), _normal(other)).ratio() >= _ALIKE
    )
