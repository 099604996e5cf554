"""Figures of a model at every site, and at each by the model of the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar


class Figures(Protocol):
    """Anything that is known of a model's predictions for some rows."""

    def as_dict(self) -> dict[str, Any]: ...


F = TypeVar("F", bound=Figures)


@dataclass(frozen=True, eq=False)
class BySite(ABC, Generic[F]):
    """All figures are of the rows that the model was fitted on, except those of held-out sites."""

    sites: Mapping[str, F]  # by name; not those whose rows were too few to tell
    held_out: Mapping[str, F] = field(default_factory=dict)  # by the model of all other sites
    refitted: bool = True  # that model, to convergence; else it is one Newton step from the joint one
    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def total(self) -> F:
        """The figures of all sites together."""

    def lines(self) -> list[tuple[str, F]]:
        """All sites, each of them, and each by the model of the others."""
        others = [(f"{site}, by the others", one) for site, one in self.held_out.items()]
        return [("all sites", self.total), *self.sites.items(), *others]

    @abstractmethod
    def table(self) -> list[list[str]]:
        """The figures as texts, with headings."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as model.json has them."""
        return {
            "total": self.total.as_dict(),
            "sites": {name: one.as_dict() for name, one in self.sites.items()},
            "held_out": {name: one.as_dict() for name, one in self.held_out.items()},
            "held_out_refitted": self.refitted,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, eq=False)
class ClassDiagnostics:
    """Figures for each class of the outcome, one against the rest."""

    classes: Mapping[str, BySite[Any]]  # the reference first; not those that could not be told
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as model.json has them."""
        return {"classes": {name: one.as_dict() for name, one in self.classes.items()}, "notes": list(self.notes)}

    def table(self) -> list[list[str]]:
        """The figures as texts, with headings, class by class."""
        tables = [(name, one.table()) for name, one in self.classes.items()]
        lines = [[f"{name}: {line[0]}", *line[1:]] for name, table in tables for line in table[1:]]
        return [tables[0][1][0], *lines]


Diagnosed = BySite[Any] | ClassDiagnostics
