"""How well a fitted model predicts, at every site and in all, and at each site by the model of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Handler
from fedns.core.cohort import Cohort
from fedns.core.errors import FednsError
from fedns.core.messages import Message, batch_size, split_batch
from fedns.federation.protocol.absence import SitesLost
from fedns.studies.diagnostics.by_site import BySite
from fedns.studies.diagnostics.concordance import Pairs, TimeDiagnostics, told_pairs
from fedns.studies.diagnostics.curves import Groups, Roc, Tenth, calibration, groups_of, quantiles, roc, together
from fedns.studies.diagnostics.exchange import ClassPoint, ScoreTable, Scoring
from fedns.studies.inference.exchange import Point
from fedns.studies.inference.without import MOST_SITES, Without

FloatArray = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Prediction:
    """How a model predicts some rows."""

    groups: Groups
    residuals: FloatArray  # (residual groups,) means
    residual_weights: FloatArray  # (residual groups,)
    events: bool
    counted: bool = True  # weights are numbers of rows; else nothing says how sure the figures are

    @cached_property
    def roc(self) -> Roc | None:
        """How events are told from the rest; None where the outcome is no event, or groups cannot tell."""
        return roc(self.groups) if self.events else None

    @cached_property
    def calibration(self) -> tuple[Tenth, ...]:
        return calibration(self.groups, events=self.events, counted=self.counted)

    @property
    def area_error(self) -> float:
        """The standard error of the area under the ROC."""
        return self.roc.standard_error if self.roc is not None and self.counted else math.nan

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Of Pearson's residuals, at 5, 25, 50, 75 and 95 %."""
        return quantiles(self.residuals, self.residual_weights)

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        found: dict[str, Any] = {
            "rows": self.groups.weight, "observed": self.groups.observed, "expected": self.groups.expected,
            "residual_quantiles": list(self.quantiles), "calibration": [asdict(tenth) for tenth in self.calibration],
        }  # fmt: skip
        if self.roc is not None:
            low, high = self.roc.bounds
            found["auc"] = {
                "area": self.roc.area, "std_error": self.area_error, "at_least": low, "at_most": high
            }  # fmt: skip
        return found


class Diagnostics(BySite[Prediction]):
    """How the model predicts an outcome, or one class of it."""

    @cached_property
    def total(self) -> Prediction:
        parts = list(self.sites.values())
        residuals, weights = (np.concatenate([getattr(p, n) for p in parts]) for n in ("residuals", "residual_weights"))
        return Prediction(together([part.groups for part in parts]), residuals, weights, parts[0].events, parts[0].counted)

    def table(self) -> list[list[str]]:
        """The figures as texts, with headings."""
        events = self.total.events
        own = ["AUC", "std err", "it is within"] if events else ["residuals 5 %", "25 %", "50 %", "75 %", "95 %"]
        return [["predictions", "rows", "observed", "expected", *own], *(_line(name, one) for name, one in self.lines())]


@dataclass(frozen=True, eq=False)
class ClassDiagnostics:
    """How the model predicts each class of the outcome, one against the rest."""

    classes: Mapping[str, Diagnostics]  # the reference first; not those that could not be told
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as model.json has them."""
        return {"classes": {name: one.as_dict() for name, one in self.classes.items()}, "notes": list(self.notes)}

    def table(self) -> list[list[str]]:
        """The figures as texts, with headings, class by class."""
        tables = [(name, one.table()) for name, one in self.classes.items()]
        lines = [[f"{name}: {line[0]}", *line[1:]] for name, table in tables for line in table[1:]]
        return [tables[0][1][0], *lines]


Predictions = Diagnostics | ClassDiagnostics | TimeDiagnostics


class Question(NamedTuple, Generic[T]):
    """What sites are asked about a model: of an outcome, or of one class of it."""

    handler: Handler
    request: Callable[[FloatArray], Message]
    told: Callable[[Any], list[T | None]]  # by each client of a batch; None where its rows are too few


@dataclass
class Answers(Generic[T]):
    """What sites have told."""

    sites: dict[str, T]
    held_out: dict[str, T] = field(default_factory=dict)
    refitted: bool = True
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Asking:
    """Whom to ask how a model predicts, and about which models."""

    cohort: Cohort
    sites: Sequence[str]
    w: FloatArray
    kept: Sequence[int]  # which of w the models without a site are about

    def joint(self, question: Question[T]) -> Answers[T]:
        """What every site tells of the joint model."""
        batches = self.cohort.ask(question.handler, question.request(self.w))
        answers = [one for _, batch in batches for one in question.told(batch)]
        found = {site: one for site, one in zip(self.sites, answers, strict=True) if one is not None}
        missing = [site for site in self.sites if site not in found]
        notes = [f"site '{site}' has too few rows of some kind to say how the model predicts there" for site in missing]
        return Answers(found, notes=notes)

    def held_out(self, question: Question[T], answers: Answers[T], without: Without | None) -> None:
        """Add what every site tells of the model of the others."""
        if without is None or len(self.sites) > MOST_SITES:
            return
        answers.refitted = without.refitted
        for place, site in enumerate(self.sites):
            if site not in answers.sites or np.isnan(without.fitted[place]).any():
                continue
            others = self.w.copy()
            others[list(self.kept)] = without.fitted[place]
            try:
                ((_, batch),) = self.cohort.part(np.array([place])).ask(question.handler, question.request(others))
            except (FednsError, SitesLost) as refusal:
                answers.notes.append(f"the model of the other sites is not tried at '{site}': {refusal}")
                continue
            (one,) = question.told(batch)
            if one is not None:
                answers.held_out[site] = one


def diagnose(
    scoring: Scoring, asking: Asking, classes: Sequence[str], find_without: Callable[[], Without | None]
) -> tuple[Predictions | str, Without | None]:
    """How the model predicts, or why that cannot be told; and the models without a site, found meanwhile.

    Sites are asked about the joint model first: where an owner's limits are reached later, it is known at least.
    classes: of the outcome, where it has several.
    """
    questions = _questions(scoring, classes)
    answers, refusals = {}, []
    for name, question in questions.items():
        try:
            answers[name] = asking.joint(question)
        except (FednsError, SitesLost) as refusal:
            refusals.append(f"{name}: {refusal}" if name else str(refusal))
    without = find_without()
    for name, found in answers.items():
        asking.held_out(questions[name], found, without)
    told = {name: _as_told(found) for name, found in answers.items() if found.sites}
    notes = [*refusals, *(f"{name}: {note}" if name else note for name, found in answers.items() for note in found.notes)]
    if not told:
        return "; ".join(notes), without
    return (ClassDiagnostics(told, tuple(notes)) if classes else told[""]), without


def _questions(scoring: Scoring, classes: Sequence[str]) -> dict[str, Question[Any]]:
    """By class of the outcome; by "" where it has none."""

    def of_class(place: int) -> Question[Prediction]:
        return Question(scoring.look_at_class, lambda w: ClassPoint(w, np.int64(place)), lambda told: _told(scoring, told))

    if classes:
        return {name: of_class(place) for place, name in enumerate(classes)}
    if scoring.family.has_residuals:
        return {"": Question(scoring.look_at_scores, Point, lambda told: _told(scoring, told))}
    return {"": Question(Pairs(scoring.smallest).look_at_pairs, Point, told_pairs)}


def _as_told(found: Answers[Any]) -> Any:
    one = next(iter(found.sites.values()))
    kind = Diagnostics if isinstance(one, Prediction) else TimeDiagnostics
    return kind(found.sites, found.held_out, found.refitted, tuple(found.notes))


def _told(scoring: Scoring, batch: Any) -> list[Prediction | None]:
    return [_of_table(scoring, split_batch(batch, client)) for client in range(batch_size(batch))]


def _of_table(scoring: Scoring, table: ScoreTable) -> Prediction | None:
    groups = groups_of(table.stops, table.weights, table.outcomes, table.predictions)
    if not groups.weight:
        return None
    if not scoring.has_events:
        there = table.residual_weights > 0
        means = table.residuals[there] / table.residual_weights[there]
        return Prediction(groups, means * scoring.residual_unit, table.residual_weights[there], False, scoring.counted)
    mean = np.clip(groups.means, 1e-12, 1.0 - 1e-12)
    odds = np.sqrt(mean / (1.0 - mean))
    residuals = np.concatenate([-odds, 1.0 / odds])  # of non-events and events with this prediction
    weights = np.concatenate([groups.weights - groups.outcomes, groups.outcomes])
    return Prediction(groups, residuals[weights > 0], weights[weights > 0], True, scoring.counted)


def _line(name: str, one: Prediction) -> list[str]:
    cells = [name, f"{one.groups.weight:.10g}", f"{one.groups.observed:.4g}", f"{one.groups.expected:.4g}"]
    if not one.events:
        return [*cells, *(f"{value:.3g}" for value in one.quantiles)]
    if one.roc is None:
        return [*cells, "-", "-", "too few"]
    error, (low, high) = one.area_error, one.roc.bounds
    return [*cells, f"{one.roc.area:.4f}", "" if math.isnan(error) else f"{error:.4f}", f"{low:.4f} to {high:.4f}"]
