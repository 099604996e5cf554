"""The contract of a diagnostic: something that sites tell of how a model predicts their rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from fedns.core.clients import Handler
from fedns.core.messages import Message
from fedns.core.types import FloatArray
from fedns.models.family import Family, Outcomes
from fedns.studies.design.columns import Design
from fedns.studies.diagnostics.by_site import BySite, Figures
from fedns.studies.questions.asking import Point

F = TypeVar("F", bound=Figures)


@dataclass(frozen=True)
class Predicted:
    """The model that diagnostics are about, and the limits that its rows are told within."""

    family: Family
    classes: tuple[str, ...] = ()  # of the outcome, where it has several
    centre: float = 0.0  # margins lie around it,
    scale: float = 1.0  # in units of this
    smallest: int = 5  # rows of a kind that may be told
    counted: bool = True  # whether a row's weight is a number of rows, which say how sure figures are

    @classmethod
    def of(cls, design: Design, smallest: int) -> Self:
        """Describe the model of a study: by its family, around what was agreed to be the outcome's mean."""
        family, counted = design.study.distribution, design.study.weights_are == "counts"
        centre, scale = design.agreement.centres.get(design.study.parsed.outcome, (1.0, 1.0))
        match family.outcomes:
            case Outcomes.NUMBER:
                return cls(family, (), centre, scale, smallest, counted)
            case Outcomes.COUNT | Outcomes.POSITIVE:
                return cls(family, (), family.margin(max(centre, 1e-300)), 1.0, smallest, counted)
            case _:
                return cls(family, tuple(design.classes), smallest=smallest, counted=counted)


@dataclass(frozen=True)
class Diagnostic(ABC, Generic[F]):
    """A question about a model, or about one class of its outcome.

    The file of a diagnostic has the message that sites answer with, the handler that makes it at a site, and `figures` that
    the server makes of it. `result` adds them up over sites and writes them as a table.
    """

    name: ClassVar[str]
    result: ClassVar[type[BySite[Any]]]
    model: Predicted

    @classmethod
    @abstractmethod
    def about(cls, model: Predicted) -> Mapping[str, Self]:
        """Return one by each class of the outcome, or one by "" where it has none; nothing where it has no meaning."""

    @property
    @abstractmethod
    def handler(self) -> Handler:
        """The function, marked with `on_client`, that sites answer with."""

    def request(self, w: FloatArray) -> Message:
        """The request about these coefficients."""
        return Point(w)

    @abstractmethod
    def figures(self, batch: Any) -> list[F | None]:
        """Read what each client of a batch has answered; None where its rows are too few."""
