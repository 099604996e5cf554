"""The rule of a study for one column."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from fedns.core.checked import Checked
from fedns.core.errors import ConfigError, unknown
from fedns.studies.tables.reading import labels_of, number_of, table_of

KINDS = ("auto", "number", "category")
_MOST_LEVELS = 1000


@dataclass(frozen=True)
class ColumnRule(Checked):
    """The rule for one column; whatever is left out is found in the handshake.

    - kind: "number", "category", or "auto" for what the values look like.
    - unit: for people.
    - range: (lowest, highest); values outside cannot be true.
    - levels: of a category, in the order of the coefficients.
    - reference: the level that the others are compared with; the first one unless given.
    - missing_codes: numbers that stand for "not known".
    - differs_at: sites whose values are known to lie elsewhere.
    """

    kind: str = "auto"
    unit: str = ""
    range: tuple[float, ...] = ()
    levels: tuple[str, ...] = ()
    reference: str = ""
    missing_codes: tuple[float, ...] = ()
    differs_at: tuple[str, ...] = ()

    def check(self, name: str) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"column '{name}': {unknown('kind', self.kind, KINDS)}")
        if self.range and not (len(self.range) == 2 and self.range[0] < self.range[1]):
            raise ConfigError(f"column '{name}': range must be [lowest, highest], got {list(self.range)}")
        if len(self.levels) > _MOST_LEVELS or len(set(self.levels)) < len(self.levels):
            raise ConfigError(f"column '{name}': levels must differ and be at most {_MOST_LEVELS}")
        if self.levels and self.kind == "number":
            raise ConfigError(f"column '{name}' has levels and is called a number: make it kind = \"category\"")
        if self.reference and self.levels and self.reference not in self.levels:
            raise ConfigError(f"column '{name}': the reference '{self.reference}' is not among its levels")

    @classmethod
    def from_dict(cls, name: str, values: Any) -> ColumnRule:
        """Read what a study's file has for the column of this name."""
        known = tuple(f.name for f in fields(cls))
        found = table_of({name: values}, name, known)
        for key in ("kind", "unit"):
            if not isinstance(found.get(key, ""), str):
                raise ConfigError(f"column '{name}': {key} must be a text, got {found[key]!r}")
        for key in ("range", "missing_codes"):
            if key in found:
                listed = found[key] if isinstance(found[key], list | tuple) else [found[key]]
                found[key] = tuple(number_of(f"{key} of column '{name}'", value) for value in listed)
        for key in ("levels", "differs_at"):
            if key in found:
                found[key] = labels_of(f"{key} of column '{name}'", found[key])
        if "reference" in found:
            found["reference"] = labels_of(f"the reference of column '{name}'", found["reference"])[0]
        return cls(**found)

    def as_dict(self) -> dict[str, Any]:
        """Settings that are not at their defaults, tuples as lists."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {name: value for name, value in values.items() if value and (name, value) != ("kind", "auto")}
