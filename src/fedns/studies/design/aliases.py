"""Columns that others determine, and coefficients with those left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedns.core.types import FloatArray
from fedns.studies.design.columns import Design


@dataclass(frozen=True)
class Alias:
    """A column that is a combination of columns before it."""

    name: str
    combination: dict[str, float]  # of the columns on the original scale
    null: FloatArray  # a direction, in the reported coefficients, that changes nothing; 1 at this column
    why: str = ""  # in words, where the combination is of nothing

    def __str__(self) -> str:
        if self.why and not self.combination:
            return f"{self.name} {self.why}"
        terms = [_term(name, factor) for name, factor in self.combination.items()]
        return f"{self.name} = {' + '.join(terms).replace('+ -', '- ') or '0'}"


def without(coefficients: FloatArray, found: Sequence[Alias], names: Sequence[str]) -> FloatArray:
    """The same model with aliased columns left out: their coefficients are 0, the others take over what they said."""
    for alias in found:
        coefficients = coefficients - coefficients[names.index(alias.name)] * alias.null
    return coefficients


def kept_places(design: Design, found: Sequence[Alias]) -> list[int]:
    """Fitted coefficients, the intercept last, that were not left out."""
    gone = {alias.name for alias in found}
    return [fitted for fitted, place in enumerate(design.places) if design.names[place] not in gone]


def _term(name: str, factor: float) -> str:
    shown = f"{factor:.4g}"
    return f"{'-' if shown == '-1' else ''}{name}" if shown in ("1", "-1") else f"{shown} {name}"
