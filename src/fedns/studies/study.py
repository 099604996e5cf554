"""A study: what is fitted, on which columns, coded how. One small file that everybody can read and sign off."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Annotated, Any

from fedns.core.checked import Checked, Known, refuse_unknown
from fedns.core.errors import ConfigError, unknown
from fedns.core.files import read_toml
from fedns.models.families import FAMILIES
from fedns.models.family import Family, Outcomes
from fedns.studies.tables.column_rule import ColumnRule
from fedns.studies.tables.feature_map import MapRule
from fedns.studies.tables.formula import Formula, parse_formula, term_text
from fedns.studies.tables.reading import labels_of, number_of, table_of

MISSING_RULES = ("refuse", "complete", "mean")
ALIASED_RULES = ("drop", "refuse")
WEIGHTS_ARE = ("counts", "precision", "sampling")
_MOST_TIMES = 100


@dataclass(frozen=True)
class Study(Checked):
    """Everything that sites and coordinator must agree on before a model is fitted; making one checks it.

    - formula: outcome ~ terms, for example "death ~ age + sex".
    - family: binomial, gaussian, poisson, or another of fedns.FAMILIES.
    - title: for people.
    - link: of the family; its first unless given.
    - parameters: numbers that the family needs to know, by name.
    - status: of family cox, the column that says whether the time is that of the event.
    - event: outcomes that count as the event, as the tables write them.
    - non_event: outcomes that do not.
    - class_weights: by outcome as the tables write it, what the weights of its rows are multiplied by; 1 unless given.
    - baseline: of family cox, times at which sites are asked for their cumulative baseline hazards, which survival needs.
    - columns: a fedns.ColumnRule by column.
    - missing: what to do with rows that miss a value: refuse, complete or mean.
    - weights: a column of row weights.
    - weights_are: counts of rows, the precision of each (R's glm), or for sampling, how many others it stands for (svyglm).
    - strength: s of the penalty (s/2) b^2 on every coefficient b but the intercept, at least 0.
    - strengths: by term, in place of that.
    - method: a method's name, or auto.
    - tolerance: of the Newton decrement in units of standard errors.
    - rounds: most rounds, at least 1.
    - aliased: terms that others determine: drop or refuse.
    - policy: what to do over real sites when one is missing.
    - feature_map: fedns.MapRule(kind, size): a kernel's features in place of the formula's columns.
    """

    formula: str
    family: Annotated[str, Known(FAMILIES)]
    title: str = ""
    link: str = ""  # the family's first unless given
    parameters: Mapping[str, float] = field(default_factory=dict)  # that the family needs to know
    status: str = ""  # of family cox, the column that says whether the time is that of the event
    event: tuple[str, ...] = ()  # outcomes that count as the event, as the tables write them
    non_event: tuple[str, ...] = ()
    class_weights: Mapping[str, float] = field(default_factory=dict)  # by outcome: what its rows' weights are multiplied by
    baseline: tuple[float, ...] = ()  # of family cox, times of cumulative baseline hazards
    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    missing: Annotated[str, Known(MISSING_RULES)] = "refuse"
    weights: str = ""  # a column of row weights
    weights_are: Annotated[str, Known(WEIGHTS_ARE)] = "counts"
    strength: float = 0.0  # s of the penalty (s/2) b^2 on every coefficient b but the intercept
    strengths: Mapping[str, float] = field(default_factory=dict)  # by term, in place of that
    method: str = "default"  # exact Newton steps, unless there are very many coefficients
    tolerance: float = 1e-8  # of the Newton decrement in units of standard errors
    rounds: int = 50
    aliased: Annotated[str, Known(ALIASED_RULES)] = "drop"
    policy: Mapping[str, Any] = field(default_factory=dict)  # what to do over real sites when one is missing
    feature_map: MapRule | None = None  # a kernel's features in place of the formula's columns

    def __post_init__(self) -> None:
        _check_names(self)
        _check_outcome(self)
        _check_numbers(self)
        _check_map(self)
        for name, rule in self.columns.items():
            rule.check(name)
        for factor in self.parsed.factors:
            if factor.transform.needs_range and not self.rule(factor.column).range:
                place = f"[columns.{factor.column}] range = [lowest, highest]"
                raise ConfigError(f"{factor.text} needs the range of '{factor.column}' in the study: {place}")

    @cached_property
    def parsed(self) -> Formula:
        return parse_formula(self.formula)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that a table must have: the outcome, those of the formula, the weights."""
        named = (self.parsed.outcome, self.status, *self.parsed.columns, self.weights)
        return tuple(name for name in dict.fromkeys(named) if name)

    def rule(self, column: str) -> ColumnRule:
        return self.columns.get(column, _NO_RULE)

    @cached_property
    def distribution(self) -> Family:
        """The family with its link and its parameters."""
        return FAMILIES[self.family].made_of(self.link, self.parameters)

    @property
    def event_column(self) -> str:
        """The column that says by labels whether there was an event; empty where there is none."""
        if self.distribution.outcomes is Outcomes.TIME:
            return self.status
        return self.parsed.outcome if self.distribution.outcomes is Outcomes.EVENT else ""

    @property
    def has_events(self) -> bool:
        """Whether a row has an event or none, named by labels."""
        return bool(self.event_column)

    @property
    def has_classes(self) -> bool:
        """Whether a row's outcome is one of several classes."""
        return self.distribution.outcomes is Outcomes.CLASS

    def strength_of(self, term: str) -> float:
        return self.strengths.get(term, self.strength)

    def as_dict(self) -> dict[str, Any]:
        """As the file has it, without what is left at its default."""
        values: dict[str, Any] = {"formula": self.formula, "family": self.family, **dict(sorted(self.parameters.items()))}
        for name in ("link", "title", "missing", "weights", "weights_are"):
            if getattr(self, name) != _DEFAULTS[name]:
                values[name] = getattr(self, name)
        if self.event:
            values["outcome"] = {"event": list(self.event), "non_event": list(self.non_event)}
        if self.status:
            values["outcome"]["status"] = self.status
        if self.baseline:
            values["outcome"]["baseline"] = list(self.baseline)
        if self.class_weights:
            values.setdefault("outcome", {})["class_weights"] = dict(sorted(self.class_weights.items()))
        rules = {name: rule.as_dict() for name, rule in sorted(self.columns.items())}
        values["columns"] = {name: rule for name, rule in rules.items() if rule}
        values["penalty"] = {"strength": self.strength, "terms": dict(sorted(self.strengths.items()))}
        values["fit"] = {name: getattr(self, name) for name in ("method", "tolerance", "rounds", "aliased")}
        values["policy"] = dict(sorted(self.policy.items()))
        if self.feature_map is not None:
            values["feature_map"] = self.feature_map.as_dict()
        return values

    def to_json(self) -> str:
        """The canonical text, which the digest is of."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def digest(self) -> str:
        """The name of this study: SHA-256 of its canonical text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def _repr_html_(self) -> str:
        """The settings for a notebook."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>"
            for name, value in self.as_dict().items()
            if value
        )
        return f"<table>{rows}</table><p>digest {self.digest}</p>"

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """From a file."""
        try:
            return cls.from_dict(read_toml(path))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> Study:
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise error if isinstance(error, ConfigError) else ConfigError("the study is not JSON") from None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Study:
        """From plain values, as a file gives them."""
        if not isinstance(values, Mapping):
            raise ConfigError("a study is a table of settings")
        given = dict(values)
        for name in ("formula", "family"):
            if name not in given:
                raise ConfigError(f'the study has no {name}: set {name} = "..."')
        parameters = _parameters(given["family"])
        refuse_unknown("setting", given, (*_SETTINGS, *parameters))
        found: dict[str, Any] = {"parameters": {name: number_of(name, given[name]) for name in parameters if name in given}}
        outcome = table_of(given, "outcome", ("event", "non_event", "status", "baseline", "class_weights"))
        found |= {name: labels_of(f"outcome.{name}", outcome[name]) for name in outcome if name in ("event", "non_event")}
        found["status"], times = outcome.get("status", ""), outcome.get("baseline", [])
        listed = times if isinstance(times, list | tuple) else [times]
        found["baseline"] = tuple(number_of("outcome.baseline", time) for time in listed)
        weights = table_of(outcome, "class_weights", None)
        found["class_weights"] = {str(label): number_of(f"class_weights.{label}", value) for label, value in weights.items()}
        columns = table_of(given, "columns", None)
        rules = {name: ColumnRule.from_dict(name, rule) for name, rule in columns.items()}
        found["columns"] = {name: rule for name, rule in rules.items() if rule != _NO_RULE}
        penalty = table_of(given, "penalty", ("strength", "terms"))
        if "strength" in penalty:
            found["strength"] = number_of("penalty.strength", penalty["strength"])
        terms = table_of(penalty, "terms", None)
        found["strengths"] = {term: number_of(f"penalty.terms.{term}", value) for term, value in terms.items()}
        found |= table_of(given, "fit", ("method", "tolerance", "rounds", "aliased"))
        found["policy"] = table_of(given, "policy", None)
        if "feature_map" in given:
            found["feature_map"] = MapRule.from_dict(table_of(given, "feature_map", None))
        found |= {name: given[name] for name in _TEXTS if name in given}
        return cls(**found)


_NO_RULE = ColumnRule()
_DEFAULTS = {f.name: f.default for f in fields(Study)}
_TEXTS = ("formula", "family", "link", "title", "missing", "weights", "weights_are")
_SETTINGS = (*_TEXTS, "outcome", "columns", "penalty", "fit", "policy", "feature_map")


def _check_names(study: Study) -> None:
    refuse_unknown(f"parameter of family {study.family}", study.parameters, _parameters(study.family))
    if not study.distribution.starts_anywhere:
        raise ConfigError(f"family {study.family} cannot be fitted from a study: use its loss in a fedns.Problem")
    formula = study.parsed
    for column in study.columns:
        if column not in study.needed:
            raise ConfigError(
                f"the study has rules for a column that it does not use: {unknown('column', column, study.needed)}"
            )
    terms = [term_text(term) for term in formula.terms]
    for term in study.strengths:
        if term not in terms:
            raise ConfigError(unknown("penalised term", term, terms))
    levels = {factor.column for factor in formula.factors if factor.transform.makes_levels}
    mixed = [f.column for f in formula.factors if f.column in levels and not f.transform.makes_levels]
    if mixed:
        raise ConfigError(
            f"the column '{mixed[0]}' is a category in one term and not in another: write C({mixed[0]}) in all"
        )
    if study.weights_are != "counts" and not (study.weights or study.class_weights):
        raise ConfigError(f"weights_are = {study.weights_are!r} says what weights are, and the study has none: set weights")
    if study.weights_are == "precision" and study.distribution.outcomes is Outcomes.TIME:
        raise ConfigError('times have no variance that a weight could divide: say weights_are = "counts" or "sampling"')
    if study.weights and study.weights in (formula.outcome, *formula.columns):
        raise ConfigError(f"the weights '{study.weights}' are in the formula too: a column has one role")


def _check_outcome(study: Study) -> None:
    timed = study.distribution.outcomes is Outcomes.TIME
    if timed != bool(study.status):
        where = f"which column says whether '{study.parsed.outcome}' is the time of the event: [outcome] status"
        raise ConfigError(f"say {where}" if timed else f"status belongs to family cox, not to {study.family}")
    if timed and not study.parsed.terms:
        raise ConfigError(
            f"Cox regression compares the columns of rows, and the formula '{study.formula}' has none: there is nothing to "
            "fit without a term (R's coxph gives the partial likelihood alone, which every fit has as its null model's)"
        )
    if study.baseline and not timed:
        raise ConfigError(f"baseline belongs to family cox, not to {study.family}")
    if list(study.baseline) != sorted({time for time in study.baseline if time > 0}) or len(study.baseline) > _MOST_TIMES:
        raise ConfigError(f"[outcome] baseline must be at most {_MOST_TIMES} times above 0, each later than the one before")
    if study.status and study.status in (study.parsed.outcome, study.weights, *study.parsed.columns):
        raise ConfigError(f"the status '{study.status}' is in the formula too: a column has one role")
    if study.has_classes and study.parsed.offset:
        raise ConfigError("an offset is added to one margin, and family multinomial has one for each class: leave it out")
    _check_class_weights(study)
    if not study.has_events:
        if study.event or study.non_event:
            raise ConfigError(f"event and non_event belong to family binomial, not to {study.family}")
        return
    if not (study.event and study.non_event):
        raise ConfigError(
            f"say which values of '{study.event_column}' are the event and which are not: [outcome] event and non_event"
        )
    both = set(study.event) & set(study.non_event)
    if both:
        raise ConfigError(f"the outcome '{sorted(both)[0]}' is named as event and as non-event")


def _check_class_weights(study: Study) -> None:
    if not study.class_weights:
        return
    if study.distribution.outcomes not in (Outcomes.EVENT, Outcomes.CLASS):
        raise ConfigError(f"class_weights belong to families binomial and multinomial, not to {study.family}")
    listed = (*study.event, *study.non_event, *study.rule(study.parsed.outcome).levels)
    for label, weight in study.class_weights.items():
        if listed and label not in listed:
            raise ConfigError(unknown("outcome of class_weights", label, listed))
        if not 0 < weight < math.inf:
            raise ConfigError(f"class_weights.{label} must be a number above 0, got {weight}")


def _check_numbers(study: Study) -> None:
    for name, value in (("penalty.strength", study.strength), *study.strengths.items()):
        if not 0 <= value < math.inf:
            raise ConfigError(f"the penalty strength {name} must be a number >= 0, got {value}")
    if not 0 < study.tolerance < 1:
        raise ConfigError(f"tolerance must be above 0 and below 1, got {study.tolerance}")
    if study.rounds < 1:
        raise ConfigError(f"rounds must be a whole number of at least 1, got {study.rounds!r}")


def _check_map(study: Study) -> None:
    if study.feature_map is None:
        return
    if not study.parsed.terms:
        raise ConfigError(f"a feature map makes features of columns, and the formula '{study.formula}' has none: name some")
    if study.strengths:
        raise ConfigError(
            "with a feature map terms have no coefficients of their own to penalise: give [penalty] strength alone"
        )
    if not study.strength:
        raise ConfigError("features of a kernel nearly depend on each other: give them a penalty, [penalty] strength = 1e-3")


def _parameters(family: Any) -> tuple[str, ...]:
    """Names of what a family needs to know beside its link."""
    return FAMILIES[family].parameters() if isinstance(family, str) and family in FAMILIES else ()
