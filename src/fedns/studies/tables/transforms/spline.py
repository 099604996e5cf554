"""B-splines, as R's bs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import scipy  # whose splines are loaded when a study has some

from fedns.core.errors import ConfigError, DataError
from fedns.core.types import FloatArray
from fedns.studies.tables.transforms.transform import Learned, SiteFacts, Transform, joint_quantiles

_MOST_COLUMNS = 50


@dataclass(frozen=True)
class BSpline(Transform):
    """Splines of a degree between the bounds of the study. Inner knots are given, or quantiles over all sites."""

    name: ClassVar[str] = "bs"
    options: ClassVar[tuple[str, ...]] = ("df", "degree", "knots")
    needs_range: ClassVar[bool] = True  # the outermost knots are no row's value
    numbered: ClassVar[bool] = True
    standardised: ClassVar[bool] = False
    df: int = 3  # columns
    degree: int = 3
    inner: tuple[float, ...] = ()  # knots, where they are given

    @classmethod
    def read(cls, column: str, options: Mapping[str, list[float]]) -> Self:
        degree, knots = options.get("degree", [3.0])[0], tuple(sorted(options.get("knots", [])))
        if degree not in (1, 2, 3, 4, 5):
            raise ConfigError(f"the degree of bs({column}, ...) must be 1 to 5")
        df = options.get("df", [degree + len(knots)])[0]
        if df != int(df) or not degree <= df <= _MOST_COLUMNS:
            raise ConfigError(f"df of bs({column}, ...) must be a whole number from {degree:g} to {_MOST_COLUMNS}")
        if knots and df != degree + len(knots):
            made = f"which makes df={degree + len(knots):g}"
            raise ConfigError(f"bs({column}, ...) has {len(knots)} knots and degree {degree:g}, {made}")
        if len(set(knots)) < len(knots):
            raise ConfigError(f"bs({column}, ...) has a knot twice")
        return cls(int(df), int(degree), knots)

    def text(self, column: str) -> str:
        given = f"knots=[{', '.join(f'{knot:g}' for knot in self.inner)}]" if self.inner else f"df={self.df}"
        return f"bs({column}, {given})" if self.degree == 3 else f"bs({column}, {given}, degree={self.degree})"

    @property
    def size(self) -> int:
        return self.df

    @property
    def asks_quantiles(self) -> bool:
        return not self.inner and self.df > self.degree

    def learn(self, column: str, bounds: Sequence[float], known: Learned, facts: Sequence[SiteFacts]) -> Learned:
        """Knots: the study's range outside, quantiles over all sites inside."""
        lowest, highest = bounds
        inner = joint_quantiles(facts, self.df - self.degree) if self.asks_quantiles else self.inner
        if any(not lowest < knot < highest for knot in inner) or len(set(inner)) < len(inner):
            raise ConfigError(f"the knots of {self.text(column)} must differ and lie within the range of '{column}'")
        return replace(known, knots=(lowest, *inner, highest))

    def described(self, known: Learned) -> tuple[str, ...]:
        return "spline", f"knots {', '.join(f'{knot:g}' for knot in known.knots)}"

    def columns(self, column: str, values: FloatArray, known: Learned) -> FloatArray:
        """All B-splines but the first."""
        knots = known.knots
        if len(knots) != self.df - self.degree + 2:
            raise DataError(f"{self.text(column)} was agreed on with other knots than it has: repeat the handshake")
        padded = np.concatenate([np.full(self.degree, knots[0]), knots, np.full(self.degree, knots[-1])])
        basis = scipy.interpolate.BSpline.design_matrix(values, padded, self.degree).toarray()
        return np.asarray(basis[:, 1:], dtype=np.float64)
