"""Drafting a study from tables at hand: a file that fits as it is, with comments on what somebody has to decide."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedns.core.errors import DataError, unknown
from fedns.studies.design.site_table import SiteTable
from fedns.studies.handshake.conflicts import conflicts
from fedns.studies.handshake.description import describe
from fedns.studies.handshake.spread import far_apart
from fedns.studies.handshake.table_summary import TableSummary, summary_of
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule
from fedns.studies.tables.files.frames import Frame
from fedns.studies.tables.formula import quoted
from fedns.studies.tables.recognition import SENTENCES, are_counts, level_order, looks_like, sentinel_in

OUTCOMES = ("outcome", "y", "target", "label", "disease", "status", "event", "response", "diagnosis", "class")
EVENTS = ("yes", "case", "1", "true", "event", "positive", "disease", "ill", "sick", "dead", "died", "present", "2")
_MOST_MISSING = 0.3  # columns that miss more than this part of the values of some table are left out
_FEW_VALUES = range(3, 7)  # whole numbers with so many different values are taken for a category
_MANY_COEFFICIENTS = 50
_MOST_CLASSES = 10  # of an outcome
_EVENTS_PER_COEFFICIENT = 10


@dataclass
class Draft:
    """The contents of the file."""

    study: Study
    left_out: dict[str, str] = field(default_factory=dict)  # columns, and why
    levels: dict[str, Counter[str]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def draft_study(frames: Mapping[str, Frame], outcome: str | None = None) -> Draft:
    """A study of one outcome on all columns that look like measurements or categories in every table."""
    if not frames:
        raise DataError("no table was given to draft a study from")
    shared = [
        name for name in next(iter(frames.values())).columns if all(name in frame.columns for frame in frames.values())
    ]
    chosen = _outcome(frames, shared, outcome)
    left_out = {name: "not in every table" for frame in frames.values() for name in frame.columns if name not in shared}
    rules: dict[str, ColumnRule] = {}
    levels: dict[str, Counter[str]] = {}
    terms: dict[str, str] = {}
    for name in shared:
        if name != chosen:
            why = _not_a_predictor(name, frames)
            if why:
                left_out[name] = why
                continue
            terms[name] = _term(name, frames, rules, levels)
    if not terms:
        raise DataError(f"no column beside '{chosen}' can be used: {'; '.join(f'{n} {why}' for n, why in left_out.items())}")
    family, event, non_event = _family(chosen, frames)
    remarks = _remarks(chosen, family, frames)
    if family == "multinomial":
        _term(chosen, frames, rules, levels)
    while True:  # a column that lies elsewhere at some site is left out, with the sentence that says so
        study = _study(chosen, terms, family, event, non_event, rules, frames)
        odd = far_apart(study, _summaries(study, frames))
        names = [name for name in terms if any(sentence.startswith(f"column '{name}' ") for sentence in odd)]
        if not names or len(names) == len(terms):
            break
        for name in names:
            left_out[name] = next(s for s in odd if s.startswith(f"column '{name}' ")).removeprefix(f"column '{name}' ")
            del terms[name]
            rules.pop(name, None)
    remarks += conflicts(study, _summaries(study, frames))
    return Draft(study, left_out, levels, remarks)


def draft_text(draft: Draft) -> str:
    """The file."""
    study = draft.study
    lines = [
        "# A study: read it with everybody who takes part, decide, and keep it. Its digest names it in every result.",
        "",
    ]
    lines += [f'title = "{study.title}"', f"formula = {_text(study.formula)}"]
    lines += [f"#   left out: {name}: {why}" for name, why in draft.left_out.items()]
    lines += [f"family = {_text(study.family)}  # gaussian, binomial, poisson, multinomial or another"]
    lines += [
        f"missing = {_text(study.missing)}  # refuse, complete (leave such rows out) or mean (fill in, with an indicator)"
    ]
    lines += [f"# decide: {remark}" for remark in draft.remarks]
    if study.event:
        lines += ["", "[outcome]  # every value that tables may hold", f"event = {_list(study.event)}"]
        lines += [f"non_event = {_list(study.non_event)}"]
    for name in (*([study.parsed.outcome] if study.has_classes else []), *study.parsed.columns):
        lines += ["", f"[columns.{_key(name)}]"]
        rule = study.rule(name)
        if rule.levels:
            counts = draft.levels[name]
            shown = ", ".join(f"{level} {counts[level]}" for level in rule.levels)
            lines += [f"levels = {_list(rule.levels)}  # rows: {shown}", f"reference = {_text(rule.levels[0])}"]
            lines += [f"kind = {_text(rule.kind)}"] if rule.kind != "auto" else []
        else:
            lines += ['# unit = "..."', "# range = [lowest, highest]  # what can be true: rows outside are refused"]
            lines += [f"missing_codes = {list(rule.missing_codes)}  # decide: are they?"] if rule.missing_codes else []
    lines += [
        "",
        "[penalty]  # (strength / 2) b^2 on every coefficient but the intercept; scikit-learn's C is 1 / (rows * strength)",
    ]
    lines += [f"strength = {study.strength!r}", "# [penalty.terms]", '# "age" = 0.1  # for one term alone']
    lines += [
        "",
        "[fit]",
        f"method = {_text(study.method)}  # default: exact Newton steps; or as `fedns methods` lists",
    ]
    lines += [f"tolerance = {study.tolerance!r}  # of the Newton decrement, in standard errors", f"rounds = {study.rounds}"]
    lines += [f"aliased = {_text(study.aliased)}  # columns that say what others say: drop the later one, or refuse"]
    return "\n".join(lines) + "\n"


def _outcome(frames: Mapping[str, Frame], shared: Sequence[str], outcome: str | None) -> str:
    if not shared:
        raise DataError(f"the tables {', '.join(frames)} have no column in common: match columns by name first")
    if outcome is not None:
        if outcome not in shared:
            raise DataError(unknown("outcome column", outcome, shared))
        return outcome
    return next((name for name in shared if name.lower() in OUTCOMES), shared[-1])


def _not_a_predictor(name: str, frames: Mapping[str, Frame]) -> str:
    columns = [frame.columns[name] for frame in frames.values()]
    codes = sorted({code for column in columns if (code := sentinel_in(column)) is not None})
    for site, column in zip(frames, columns, strict=True):
        looks = looks_like(column, as_category=False)
        if looks:
            return SENTENCES[looks] + f" (at {site})"
        gaps = float((column.missing | np.isin(column.values, codes) if codes else column.missing).mean())
        if gaps > _MOST_MISSING:
            return f"{gaps:.0%} of its values are missing at {site}" + (
                f", where {codes[0]:g} means missing" if codes else ""
            )
    kinds = {"text" if column.kind == "text" else "number" for column in columns}
    if len(kinds) > 1:
        return "holds numbers at some sites and text at others"
    if len({label for column in columns for label in column.counts()}) < 2:
        return "has the same value in every row"
    return ""


def _term(name: str, frames: Mapping[str, Frame], rules: dict[str, ColumnRule], levels: dict[str, Counter[str]]) -> str:
    """A column as the formula has it, with a rule where it needs one."""
    columns = [frame.columns[name] for frame in frames.values()]
    counts = sum((column.counts() for column in columns), Counter[str]())
    whole = all(column.numeric for column in columns) and all(label.lstrip("-").isdigit() for label in counts)
    if columns[0].kind == "text" or (whole and len(counts) in _FEW_VALUES):
        levels[name] = counts
        ordered = tuple(sorted(counts, key=level_order))
        rules[name] = ColumnRule(levels=ordered, reference=ordered[0])  # as without a draft
        return quoted(name) if columns[0].kind == "text" else f"C({quoted(name)})"
    codes = {code for column in columns if (code := sentinel_in(column)) is not None}
    if codes:
        rules[name] = ColumnRule(missing_codes=tuple(sorted(codes)))
    return quoted(name)


def _family(outcome: str, frames: Mapping[str, Frame]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    columns = [frame.columns[outcome] for frame in frames.values()]
    labels = sorted({label for column in columns for label in column.counts()})
    if len(labels) == 2:
        event = next((label for known in EVENTS for label in labels if label.lower() == known), labels[-1])
        return "binomial", (event,), tuple(label for label in labels if label != event)
    if not all(column.numeric for column in columns):
        if len(labels) > _MOST_CLASSES:
            raise DataError(
                f"the outcome '{outcome}' holds {len(labels)} different texts: choose a number, or one with at most "
                f"{_MOST_CLASSES} values"
            )
        return "multinomial", (), ()
    values = np.concatenate([column.present for column in columns])
    looks_poisson = are_counts(values) and values.min() == 0 and 0.3 < values.var() / max(values.mean(), 1e-300) < 3
    return ("poisson" if looks_poisson else "gaussian"), (), ()


def _remarks(outcome: str, family: str, frames: Mapping[str, Frame]) -> list[str]:
    whole = all(
        (np.asarray(frame.columns[outcome].values)[~frame.columns[outcome].missing] % 1 == 0).all()
        for frame in frames.values()
        if frame.columns[outcome].numeric
    )
    if family == "multinomial":
        return [f"should the classes of '{outcome}' be compared with the reference below?"]
    if family == "binomial":
        return [f"is the event of '{outcome}' named rightly below?"]
    if whole:
        return [f"'{outcome}' holds whole numbers: counts are poisson, other quantities gaussian"]
    return []


def _study(
    outcome: str,
    terms: Mapping[str, str],
    family: str,
    event: tuple[str, ...],
    non_event: tuple[str, ...],
    rules: Mapping[str, ColumnRule],
    frames: Mapping[str, Frame],
) -> Study:
    used = [outcome, *terms]
    codes = any(rules[name].missing_codes for name in terms if name in rules)
    gaps = codes or any(frame.columns[name].missing.any() for frame in frames.values() for name in used)
    study = Study(
        f"{quoted(outcome)} ~ {' + '.join(terms.values())}",
        family,
        event=event,
        non_event=non_event,
        missing="complete" if gaps else "refuse",
        columns={name: rule for name, rule in rules.items() if name in used},
    )
    return _penalised(study, frames)


def _penalised(study: Study, frames: Mapping[str, Frame]) -> Study:
    """With a little penalty, scikit-learn's C = 1, where there are many coefficients for the rows."""
    coefficients = 1 + sum(max(1, len(study.rule(name).levels) - 1) for name in study.parsed.columns)
    rows = sum(int(SiteTable(study, frame).used.sum()) for frame in frames.values())
    few = rows < _EVENTS_PER_COEFFICIENT * coefficients
    if rows and (coefficients > _MANY_COEFFICIENTS or few):
        return replace(study, strength=float(f"{1 / rows:.2g}"))
    return study


def _summaries(study: Study, frames: Mapping[str, Frame]) -> list[TableSummary]:
    return [summary_of(study, site, describe(SiteTable(study, frame))) for site, frame in frames.items()]


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _list(values: Sequence[str]) -> str:
    return "[" + ", ".join(map(_text, values)) + "]"


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _text(name)
