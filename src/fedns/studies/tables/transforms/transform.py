"""The contract of a transform, which is what a formula makes of one column.

All that studies do with a transform goes through this class: the formula reads it, sites tell what it asks for, all sites
agree on what it makes of that, and every site then codes its rows alike. A model's file has the same facts, so predictions
are coded in the same way.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from fedns.core.types import FloatArray

PROBABILITIES = np.linspace(0.05, 0.95, 19)  # of the quantiles that sites tell


class SiteFacts(NamedTuple):
    """One site's answer for one column, beside the mean and the deviation that it has told before."""

    rows: int
    quantiles: FloatArray  # at PROBABILITIES, each a mean over some rows around the quantile; empty unless asked for
    powers: FloatArray  # means of the powers, from 0 on, of the standardised column; empty unless asked for


@dataclass(frozen=True)
class Learned:
    """Everything that all sites agree on for one transform of one column."""

    mean: float  # over all sites: of the transformed column, or of the column itself where the transform is numbered
    deviation: float
    knots: tuple[float, ...] = ()  # numbers of the transform's own
    polynomials: tuple[tuple[float, ...], ...] = ()  # rows of such numbers
    scale: float = 1.0  # what the columns are divided by in a fit


@dataclass(frozen=True)
class Transform(ABC):
    """The columns that a formula makes of one. A transform with options is a frozen dataclass with a field for each.

    The defaults are those of a function of single values, such as a logarithm, which has only `name`, `defined` and `of`.
    A transform that makes several columns, such as a spline, is `numbered` and has `size` and `columns`; what these need to
    know of all rows, it asks for with `asks_quantiles` or `highest_power` and works out in `learn`.
    """

    name: ClassVar[str]  # as formulas write it
    options: ClassVar[tuple[str, ...]] = ()  # that may follow the column; the first also without its name
    defined: ClassVar[str] = ""  # for which values, such as "above 0"; empty for all
    needs_numbers: ClassVar[bool] = True  # False where the column may be a category as well
    makes_levels: ClassVar[bool] = False  # the column becomes a category even where it holds numbers
    needs_range: ClassVar[bool] = False  # the study has to say between which values the column lies
    numbered: ClassVar[bool] = False  # its columns have numbers in their names, and are not centred
    standardised: ClassVar[bool] = True  # the mean square of its columns in a fit is 1, after centring

    @classmethod
    def read(cls, column: str, options: Mapping[str, list[float]]) -> Self:
        """Make the transform of this column from the options that a formula gives; a ConfigError says what is wrong."""
        return cls()

    def text(self, column: str) -> str:
        """As formulas write it, and as coefficients are called."""
        return f"{self.name}({column})"

    @property
    def size(self) -> int:
        """The number of columns it makes."""
        return 1

    @property
    def asks_quantiles(self) -> bool:
        """Sites are asked for quantiles of the column, each smoothed over as many rows as their owner wants."""
        return False

    @property
    def highest_power(self) -> int:
        """Sites are asked for the means of the powers of the standardised column up to this one; 0 for none."""
        return 0

    def learn(self, column: str, bounds: Sequence[float], known: Learned, facts: Sequence[SiteFacts]) -> Learned:
        """Work out what all sites need to know. Every site makes the same of the same facts.

        bounds: the column's range in the study, empty where it has none. facts: of each site, none where nothing is asked.
        """
        return known

    def described(self, known: Learned) -> tuple[str, ...]:
        """Its kind and what was agreed on, for the report; empty where there is nothing that a reader would want to know."""
        return ()

    def of(self, values: FloatArray) -> FloatArray:
        """The function of single values; not finite where it is not defined."""
        return values

    def columns(self, column: str, values: FloatArray, known: Learned) -> FloatArray:
        """Return what the transform makes of values that have no gaps: (rows, size)."""
        return self.of(values)[:, None]


def joint_quantiles(facts: Sequence[SiteFacts], number: int) -> tuple[float, ...]:
    """Equally spaced quantiles of all rows together, from each site's own, to three digits."""
    grid = np.unique(np.concatenate([site.quantiles for site in facts]))
    total = sum(site.rows for site in facts)
    shares = [site.rows * np.interp(grid, site.quantiles, PROBABILITIES, left=0.0, right=1.0) for site in facts]
    wanted = np.arange(1, number + 1) / (number + 1)
    return tuple(float(f"{knot:.3g}") for knot in np.interp(wanted, sum(shares) / total, grid))
