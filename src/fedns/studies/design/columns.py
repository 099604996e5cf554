"""The columns of the design matrix: their names, how each is made, and the way from the fitted scale to the original one.

A numeric column enters as (x - centre) / scale, with the centre and scale of all sites together, so that the fit does not
depend on units. Expanding the products gives the coefficients on the original scale: b = A w.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product

import numpy as np

from fedns.core.errors import ConfigError
from fedns.core.types import FloatArray
from fedns.models.maps.feature_map import FeatureMap
from fedns.models.maps.kernel_maps import Nystroem, OrthogonalRandom, RandomFourier
from fedns.studies.design.agreement import Agreement
from fedns.studies.study import Study
from fedns.studies.tables.feature_map import MapRule
from fedns.studies.tables.formula import INTERCEPT, Factor, Term, term_text


@dataclass(frozen=True)
class FactorColumn:
    """One of the columns that a factor of the formula becomes."""

    factor: Factor
    level: str | None = None  # of a category
    reference: str = field(default="", compare=False)  # the level it is compared with, where that has no column
    index: int = 0  # from 1, where the transform numbers its columns
    gap: bool = False  # 1 where the column is missing, else 0
    centre: float = 0.0
    scale: float = 1.0

    @property
    def label(self) -> str:
        if self.gap:
            return f"{self.factor.column}[missing]"
        if self.level is not None:
            return f"{self.factor.column}[{self.level}]"
        return f"{self.factor.text}[{self.index}]" if self.index else self.factor.text


@dataclass(frozen=True)
class DesignColumn:
    """A product of parts. No part is the intercept."""

    parts: tuple[FactorColumn, ...]
    term: str
    strength: float  # of the penalty, on the original scale
    centred: bool = False

    @property
    def name(self) -> str:
        return ":".join(part.label for part in self.parts) or INTERCEPT

    @property
    def scale(self) -> float:
        return float(np.prod([part.scale for part in self.parts]))

    @property
    def level(self) -> str:
        """The level of each of its categories, as tables have it."""
        return ":".join(part.level for part in self.parts if part.level is not None)

    @property
    def reference(self) -> str:
        """Name what that level is compared with, place by place."""
        return ":".join(part.reference for part in self.parts if part.level is not None)


@dataclass(frozen=True)
class Design:
    """All columns in the order of the formula; the fit has the intercept last, the report first."""

    study: Study
    agreement: Agreement

    @cached_property
    def columns(self) -> tuple[DesignColumn, ...]:
        """Without the intercept."""
        plain = tuple(self._plain())
        there = {frozenset(column.parts): column.strength for column in plain}
        if self.intercept:
            there[frozenset()] = 0.0
        return tuple(
            DesignColumn(column.parts, column.term, column.strength, _can_be_centred(column, there)) for column in plain
        )

    @property
    def num_columns(self) -> int:
        """As many as `columns`, counted without making them."""
        return sum(math.prod(map(len, choices)) for _, choices in self._choices()) + len(self.agreement.fills)

    @property
    def intercept(self) -> bool:
        """Whether there is a coefficient for a constant; in Cox regression a constant says nothing."""
        return self.study.parsed.intercept and self.study.distribution.loss.takes_intercept

    @property
    def is_null(self) -> bool:
        """Whether there is no term: rows are then stored as a column of ones, which is the intercept."""
        return not self.study.parsed.terms

    @property
    def appended_intercept(self) -> bool:
        """Whether the intercept's ones are beside the stored columns, and not the stored column itself."""
        return self.intercept and not self.is_null

    @cached_property
    def feature_map(self) -> FeatureMap | None:
        """The map that columns go through before the linear model."""
        rule = self.study.feature_map
        return None if rule is None else map_of(rule, self.agreement)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of what has a coefficient, without the intercept: the columns, or what the map makes of them."""
        rule = self.study.feature_map
        return tuple(column.name for column in self.columns) if rule is None else rule.names

    @cached_property
    def references(self) -> dict[str, str]:
        """By category, the level that the others are compared with; not where all levels have coefficients."""
        parts = [part for column in self.columns for part in column.parts] if self.study.feature_map is None else []
        return {part.factor.column: part.reference for part in parts if part.reference}

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Classes of the outcome, the reference first; all but that have coefficients of their own."""
        return self.agreement.levels[self.study.parsed.outcome] if self.study.has_classes else ()

    @property
    def outputs(self) -> int:
        """The number of margins that a row has."""
        return max(1, len(self.classes) - 1)

    @cached_property
    def own_names(self) -> tuple[str, ...]:
        """Names of the coefficients of one margin as they are reported."""
        return ((INTERCEPT,) if self.intercept else ()) + self.features

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients as they are reported, class by class."""
        return tuple(f"{one}: {name}" for one in self.classes[1:] for name in self.own_names) or self.own_names

    def parts_of(self, name: str) -> tuple[str, str]:
        """The class that a coefficient is of, empty where there are none, and its name within that class."""
        place = self.names.index(name)
        number, own = divmod(place, len(self.own_names))
        return (self.classes[number + 1] if self.classes else ""), self.own_names[own]

    def is_intercept(self, name: str) -> bool:
        return self.parts_of(name)[1] == INTERCEPT

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Places of the fitted coefficients among the names: a fit has the intercept of each margin last."""
        own = np.roll(np.arange(len(self.own_names)), -int(self.intercept))
        return tuple((own + len(own) * np.arange(self.outputs)[:, None]).ravel().tolist())

    @cached_property
    def strengths(self) -> tuple[float, ...]:
        """The penalty on each fitted coefficient, the intercept aside, that is the study's on the original scale."""
        if self.study.feature_map is not None:
            return (self.study.strength,) * len(self.features)
        return tuple(column.strength / column.scale**2 for column in self.columns)

    @cached_property
    def to_original(self) -> FloatArray:
        """A: fitted coefficients, the intercept last, to those of `names`; those of a map have no other scale."""
        return np.asarray(np.kron(np.eye(self.outputs), self._own_to_original), dtype=np.float64)

    @cached_property
    def _own_to_original(self) -> FloatArray:
        if self.study.feature_map is not None:
            return np.roll(np.eye(len(self.own_names)), int(self.intercept), axis=0)
        place = {frozenset(column.parts): row for row, column in enumerate(self.columns, start=int(self.intercept))}
        place[frozenset()] = 0
        matrix = np.zeros((len(self.own_names), len(self.own_names)))
        for fitted, column in enumerate(self.columns):
            moved = [part for part in column.parts if part.centre] if column.centred else []
            for gone in _subsets(moved):
                row = place[frozenset(column.parts) - set(gone)]
                matrix[row, fitted] += float(np.prod([-part.centre for part in gone])) / column.scale
        if self.intercept:
            matrix[0, -1] = 1.0
        return matrix

    def _plain(self) -> Iterable[DesignColumn]:
        study = self.study
        for term, choices in self._choices():
            for parts in product(*reversed(choices)):  # the first factor changes fastest
                yield DesignColumn(parts[::-1], term_text(term), study.strength_of(term_text(term)))
        for column in self.agreement.fills:
            yield DesignColumn((FactorColumn(Factor(column), gap=True),), f"{column}[missing]", study.strength)

    def _choices(self) -> Iterable[tuple[Term, list[list[FactorColumn]]]]:
        """For each term what its factors may be; its columns are all products of one of each."""
        terms = self.study.parsed.terms
        spanned: set[frozenset[Factor]] = {*map(frozenset, terms), *([frozenset()] if self.study.parsed.intercept else [])}
        for term in terms:
            choices = []
            for factor in term:
                margin = frozenset(term) - {factor}
                reduced = margin in spanned  # R's rule: a level is left out where the term without the category is there
                if self.is_category(factor):
                    spanned.add(margin)
                choices.append(self._parts(factor, reduced))
            yield term, choices

    def is_category(self, factor: Factor) -> bool:
        return factor.column in self.agreement.levels and not factor.transform.needs_numbers

    def _parts(self, factor: Factor, reduced: bool) -> list[FactorColumn]:
        if self.is_category(factor):
            levels = self.agreement.levels[factor.column]
            reference = levels[0] if reduced else ""
            return [FactorColumn(factor, level=level, reference=reference) for level in levels[int(reduced) :]]
        known = self.agreement.known(factor)
        if factor.transform.numbered:
            return [FactorColumn(factor, index=index, scale=known.scale) for index in range(1, factor.transform.size + 1)]
        return [FactorColumn(factor, centre=known.mean, scale=known.deviation)]


def map_of(rule: MapRule, agreement: Agreement) -> FeatureMap:
    """The map, the same at every site."""
    width = rule.width or agreement.width
    if not width or (rule.kind == "nystroem" and len(agreement.landmarks) != rule.size):
        raise ConfigError("the sites have not agreed on the feature map yet: repeat the handshake")
    if rule.kind == "nystroem":
        return Nystroem(np.array(agreement.landmarks), width, rule.kernel)
    if rule.kind == "orthogonal":
        return OrthogonalRandom(rule.size, width, rule.seed)
    return RandomFourier(rule.size, width, rule.kernel, rule.seed)


def _can_be_centred(column: DesignColumn, there: dict[frozenset[FactorColumn], float]) -> bool:
    """Whether all that centring moves lands in columns that the model has and does not penalise."""
    moved = [part for part in column.parts if part.centre]
    rest = [frozenset(column.parts) - set(gone) for gone in _subsets(moved) if gone]
    return all(there.get(parts, 1.0) == 0.0 for parts in rest)


def _subsets(parts: Sequence[FactorColumn]) -> Iterable[tuple[FactorColumn, ...]]:
    for size in range(len(parts) + 1):
        yield from combinations(parts, size)


def term_of(design: Design, name: str) -> str:
    own = design.parts_of(name)[1]
    return next((column.term for column in design.columns if column.name == own), INTERCEPT)
