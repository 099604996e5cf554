"""The agreement of sites and server in the handshake: all that coding a row needs beyond the study and the row."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedns.core.errors import DataError, MessageError
from fedns.studies.tables.formula import Factor
from fedns.studies.tables.transforms import Learned

MISSING_LEVEL = "missing"


@dataclass(frozen=True)
class Agreement:
    """Global facts, the same at every site."""

    study: str  # the digest of the study
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of each category, the reference first
    centres: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by expression: mean, standard deviation
    fills: Mapping[str, float] = field(default_factory=dict)  # what stands in for a missing number
    knots: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # by transformed column, as `Learned` has them
    polynomials: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)  # the same
    width: float = 0.0  # of a feature map's kernel; 0 where the study gives it or has no map
    landmarks: tuple[tuple[float, ...], ...] = ()  # of a Nystroem map: (landmarks, columns)

    def known(self, factor: Factor) -> Learned:
        """Everything that was agreed on for a column of numbers and its transform."""
        text, expression = factor.text, factor.expression.text
        if expression not in self.centres:
            raise DataError(f"sites have not agreed on a mean of {expression}: repeat the handshake")
        _, scale = self.centres.get(text, (0.0, 1.0))
        return Learned(*self.centres[expression], self.knots.get(text, ()), self.polynomials.get(text, ()), scale)

    def with_learned(self, learned: Mapping[str, Learned]) -> Agreement:
        """Add what transforms have worked out, by the text of the factor."""
        return replace(
            self,
            centres={**self.centres, **{text: (0.0, one.scale) for text, one in learned.items() if one.scale != 1.0}},
            knots={text: one.knots for text, one in learned.items() if one.knots},
            polynomials={text: one.polynomials for text, one in learned.items() if one.polynomials},
        )

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


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number
