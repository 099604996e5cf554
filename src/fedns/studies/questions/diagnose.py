"""Asking every site how well a fitted model predicts: the joint one, and that of all other sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedns.core.cohort import Cohort
from fedns.core.types import FloatArray
from fedns.studies.diagnostics.by_site import BySite, ClassDiagnostics, Diagnosed, Figures
from fedns.studies.questions import DIAGNOSTICS
from fedns.studies.questions.asking import REFUSALS, ask_one
from fedns.studies.questions.diagnostic import Diagnostic, Predicted
from fedns.studies.questions.gradients import MOST_SITES, Without

F = TypeVar("F", bound=Figures)


@dataclass(frozen=True, eq=False)
class Asking:
    """Whom to ask how a model predicts, and about which models."""

    cohort: Cohort
    sites: Sequence[str]
    w: FloatArray
    kept: Sequence[int]  # which of w the models without a site are about

    def joint(self, question: Diagnostic[F]) -> BySite[F]:
        """Ask every site about the joint model."""
        batches = self.cohort.ask(question.handler, question.request(self.w))
        answers = [one for _, batch in batches for one in question.figures(batch)]
        found = {site: one for site, one in zip(self.sites, answers, strict=True) if one is not None}
        missing = [site for site in self.sites if site not in found]
        notes = [f"site '{site}' has too few rows of some kind to say how the model predicts there" for site in missing]
        return question.result(found, notes=tuple(notes))

    def held_out(self, question: Diagnostic[F], joint: BySite[F], without: Without | None) -> BySite[F]:
        """Add what every site tells of the model of the others."""
        if without is None or len(self.sites) > MOST_SITES:
            return joint
        found, notes = {}, list(joint.notes)
        for place, site in enumerate(self.sites):
            if site not in joint.sites or np.isnan(without.fitted[place]).any():
                continue
            others = self.w.copy()
            others[list(self.kept)] = without.fitted[place]
            try:
                batch = ask_one(self.cohort, place, question.handler, question.request(others))
            except REFUSALS as refusal:
                notes.append(f"the model of the other sites is not tried at '{site}': {refusal}")
                continue
            (one,) = question.figures(batch)
            if one is not None:
                found[site] = one
        return replace(joint, held_out=found, refitted=without.refitted, notes=tuple(notes))


def diagnose(
    model: Predicted, asking: Asking, find_without: Callable[[], Without | None]
) -> tuple[dict[str, Diagnosed | str], Without | None]:
    """By diagnostic how the model predicts, or why that cannot be told; and the models without a site, found meanwhile.

    Sites are asked about the joint model first: where an owner's limits are reached later, it is known at least.
    """
    asked = {name: questions for name, kind in DIAGNOSTICS.items() if (questions := kind.about(model))}
    answers: dict[str, dict[str, BySite[Any]]] = {name: {} for name in asked}
    refusals: dict[str, list[str]] = {name: [] for name in asked}
    for name, questions in asked.items():
        for one, question in questions.items():
            try:
                answers[name][one] = asking.joint(question)
            except REFUSALS as refusal:
                refusals[name].append(_of_class(one, str(refusal)))
    without = find_without()
    for name, told in answers.items():
        for one, found in told.items():
            told[one] = asking.held_out(asked[name][one], found, without)
    return {name: _result(told, refusals[name]) for name, told in answers.items()}, without


def _result(told: dict[str, BySite[Any]], refusals: list[str]) -> Diagnosed | str:
    parts = {one: found for one, found in told.items() if found.sites}
    notes = (*refusals, *(_of_class(one, note) for one, found in told.items() for note in found.notes))
    if not parts:
        return "; ".join(notes)
    return parts[""] if "" in parts else ClassDiagnostics(parts, notes)


def _of_class(one: str, note: str) -> str:
    return f"{one}: {note}" if one else note
