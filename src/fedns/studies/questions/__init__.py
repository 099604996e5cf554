"""Everything that the sites of a study are asked about a fit: every file has message, site's half and server's half."""

from collections.abc import Sequence
from typing import Any

from fedns.core.clients import Handler
from fedns.core.registry import Registry
from fedns.models.families import FAMILIES
from fedns.models.family import Family, Outcomes
from fedns.studies.design.columns import Design
from fedns.studies.questions.baseline import Baseline
from fedns.studies.questions.concordance import Pairs
from fedns.studies.questions.diagnostic import Diagnostic, Predicted
from fedns.studies.questions.fit_sums import FitSums
from fedns.studies.questions.gradients import look_at_gradients
from fedns.studies.questions.information import expected_information, information
from fedns.studies.questions.null_model import look_at_classes, look_at_null
from fedns.studies.questions.scores import Scoring

_OWN: tuple[type[Diagnostic[Any]], ...] = (Scoring, Pairs)
DIAGNOSTICS: Registry[type[Diagnostic[Any]]] = Registry("diagnostic", "fedns.diagnostics", Diagnostic, _OWN)


def asked_of_rows(family: Family, weights_are: str = "counts") -> tuple[Handler, ...]:
    """Everything about a fit of this family that needs no study."""
    classes = (look_at_classes,) if family.outcomes is Outcomes.CLASS else ()
    return information, expected_information, FitSums(family, weights_are).handler, *classes, look_at_null


def asked_of_study(design: Design, smallest_cell: int, smallest_level: int) -> tuple[Handler, ...]:
    """Everything about a fit of a study, within the limits of a site's owner."""
    study = design.study
    return (
        *asked_of_rows(study.distribution, study.weights_are),
        look_at_gradients,
        *_diagnosing(Predicted.of(design, smallest_cell)),
        *Baseline(study.baseline, smallest_level).handlers(),
    )


def asked_of_any() -> Sequence[Handler]:
    """Everything that any study may ask."""
    found = [look_at_gradients, *Baseline((1.0,)).handlers()]
    for family in (kind() for kind in FAMILIES.values()):
        found += [*asked_of_rows(family), *_diagnosing(Predicted(family, ("one", "other")))]
    return found


def _diagnosing(model: Predicted) -> list[Handler]:
    return [question.handler for kind in DIAGNOSTICS.values() for question in kind.about(model).values()]
