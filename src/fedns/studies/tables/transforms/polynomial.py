"""Polynomials that are orthonormal over the rows of all sites, as R's poly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fedns.core.errors import ConfigError, DataError
from fedns.core.types import FloatArray
from fedns.studies.tables.transforms.transform import Learned, SiteFacts, Transform


@dataclass(frozen=True)
class OrthogonalPolynomial(Transform):
    """Polynomials of degree 1 to `degree`, from the means of powers up to twice that."""

    name: ClassVar[str] = "poly"
    options: ClassVar[tuple[str, ...]] = ("degree",)
    numbered: ClassVar[bool] = True
    degree: int = 2

    @classmethod
    def read(cls, column: str, options: Mapping[str, list[float]]) -> Self:
        degree = options.get("degree", [2.0])[0]
        if degree not in (1, 2, 3, 4, 5):
            raise ConfigError(f"the degree of poly({column}, ...) must be 1 to 5")
        return cls(int(degree))

    def text(self, column: str) -> str:
        return f"poly({column}, {self.degree})"

    @property
    def size(self) -> int:
        return self.degree

    @property
    def highest_power(self) -> int:
        return 2 * self.degree

    def learn(self, column: str, bounds: Sequence[float], known: Learned, facts: Sequence[SiteFacts]) -> Learned:
        """Coefficients by power. The columns have a mean square of 1 in the fit, and R's scale in the report."""
        total = sum(site.rows for site in facts)
        size, powers = self.degree + 1, self.highest_power + 1
        moments = sum((site.rows * site.powers[:powers] for site in facts), start=np.zeros(powers))
        gram = np.array([[moments[i + j] for j in range(size)] for i in range(size)])
        try:
            root = np.linalg.cholesky(gram / total)
        except np.linalg.LinAlgError:
            raise DataError(f"{self.text(column)}: '{column}' has too few different values for that degree") from None
        rows = np.linalg.inv(root) / math.sqrt(total)
        polynomials = tuple(tuple(rows[i, : i + 1].tolist()) for i in range(1, size))
        return replace(known, polynomials=polynomials, scale=float(1.0 / np.sqrt(total)))

    def columns(self, column: str, values: FloatArray, known: Learned) -> FloatArray:
        if [len(one) for one in known.polynomials] != list(range(2, self.degree + 2)):
            # A power of 200 would be almost nothing but the largest value.
            raise DataError(f"{self.text(column)} was agreed on with other powers than it has: repeat the handshake")
        standardised = (values - known.mean) / known.deviation
        made = [np.polynomial.polynomial.polyval(standardised, np.array(one)) for one in known.polynomials]
        return np.stack(made, axis=1)
