"""What sites and server agree on after the handshake: all that coding a row needs beyond the study and the row."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import MessageError
from fedns.studies.handshake.site_table import numeric_expressions
from fedns.studies.handshake.summary import Summary
from fedns.studies.study import Study
from fedns.studies.tables.formula import Factor

FloatArray = NDArray[np.float64]
MISSING_LEVEL = "missing"


@dataclass(frozen=True)
class Agreement:
    """Global facts, the same at every site."""

    study: str  # the digest of the study
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of each category, the reference first
    centres: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by expression: mean, standard deviation
    fills: Mapping[str, float] = field(default_factory=dict)  # what stands in for a missing number
    knots: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # of each spline, the bounds first and last
    polynomials: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)  # by power of the centred column
    width: float = 0.0  # of a feature map's kernel; 0 where the study gives it or has no map
    landmarks: tuple[tuple[float, ...], ...] = ()  # of a Nystroem map: (landmarks, columns)

    def to_json(self) -> str:
        values = {name: value for name, value in vars(self).items() if value or name not in ("width", "landmarks")}
        return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Agreement:
        try:
            values: Any = json.loads(text)
            return cls(
                str(values["study"]),
                {str(name): tuple(map(str, levels)) for name, levels in values["levels"].items()},
                {str(name): (_finite(centre), _finite(scale)) for name, (centre, scale) in values["centres"].items()},
                {str(name): _finite(fill) for name, fill in values["fills"].items()},
                {str(name): tuple(map(_finite, knots)) for name, knots in values["knots"].items()},
                {str(name): tuple(tuple(map(_finite, row)) for row in rows) for name, rows in values["polynomials"].items()},
                _finite(values.get("width", 0.0)),
                tuple(tuple(map(_finite, row)) for row in values.get("landmarks", ())),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise MessageError(f"the agreement of the sites cannot be read: {error!r}") from None


def first_agreement(study: Study, sites: Sequence[Summary]) -> Agreement:
    """Levels and centres from the descriptions of all sites; they have no conflict any more."""
    columns = (*study.parsed.columns, *([study.parsed.outcome] if study.has_classes else []))
    levels = {name: _united(study, name, sites) for name in columns if _is_category(name, sites)}
    centres = {factor.text: _centre(factor, sites) for factor in numeric_expressions(study)}
    numbers = [name for name in study.parsed.columns if name not in levels]
    fills = {}
    if study.missing == "mean":
        gaps = {name for name in study.parsed.columns if any(summary.columns[name].missing for summary in sites)}
        fills = {name: _centre(Factor(name), sites)[0] for name in numbers if name in gaps}
        levels |= {name: (*levels[name], MISSING_LEVEL) for name in levels if name in gaps}
    return Agreement(study.digest, levels, centres, fills)


def _is_category(name: str, sites: Sequence[Summary]) -> bool:
    return any(summary.columns[name].category for summary in sites)


def _united(study: Study, name: str, sites: Sequence[Summary]) -> tuple[str, ...]:
    rule = study.rule(name)
    named = {level for summary in sites for level in summary.columns[name].levels}
    levels = list(rule.levels) or sorted(named, key=level_order)
    reference = rule.reference or (levels[0] if levels else "")
    return (reference, *(level for level in levels if level != reference))


def level_order(level: str) -> tuple[bool, float, str]:
    """Numbers by size, before texts by their letters: so levels are ordered unless a study does it, and the first is the
    reference. Not the most common one: how many rows have a level does not leave a site."""
    try:
        return False, float(level), level
    except ValueError:
        return True, 0.0, level


def _centre(factor: Factor, sites: Sequence[Summary]) -> tuple[float, float]:
    """Mean and standard deviation over all sites that could tell theirs; 0 and 1 where none could.

    A column that is constant but for rounding is in units of its size: what is left of it then stays as small as it is.
    """
    known = [summary.moments[factor] for summary in sites if factor in summary.moments and summary.moments[factor].count]
    total = sum(moments.count for moments in known)
    if not total:
        return 0.0, 1.0
    mean = sum(moments.count * moments.mean for moments in known) / total
    squares = sum(moments.count * (moments.deviation**2 + (moments.mean - mean) ** 2) for moments in known)
    deviation = math.sqrt(squares / total)
    return mean, deviation if deviation > 1e-12 * max(1e-300, abs(mean)) else abs(mean) or 1.0


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number
