"""What the owner of a site's rows permits: all rules together, as the table [permit] of site.toml has their limits."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields

from fedns.core.errors import ConfigError
from fedns.core.files import as_toml
from fedns.core.messages import WIRE_PRECISIONS
from fedns.federation.rules.amounts import BudgetLimits, RefusalLimits, WorkLimits
from fedns.federation.rules.answers import RARE_LEVELS, AskingLimits, ConcentrationLimits, RowLimits, SketchLimits

RULES = (AskingLimits, RowLimits, SketchLimits, ConcentrationLimits, BudgetLimits, WorkLimits, RefusalLimits)  # R1 to R7


@dataclass(frozen=True)
class Permissions(RefusalLimits, WorkLimits, BudgetLimits, ConcentrationLimits, SketchLimits, RowLimits, AskingLimits):
    """The limits of a site. The defaults are the safe ones; an owner who relaxes one does it in writing, in site.toml."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            least = -math.inf if one.name == "rows_beyond_coefficients" else 0  # negative: fewer rows than coefficients
            if isinstance(value, int | float) and not value >= least:  # every comparison with nan is false
                raise ConfigError(f"{one.name} must be at least 0, got {value}")
        if self.rare_levels not in RARE_LEVELS:
            raise ConfigError(f"rare_levels must be one of {', '.join(RARE_LEVELS)}, got {self.rare_levels!r}")
        if not set(self.wire) <= set(WIRE_PRECISIONS):
            raise ConfigError(f"wire must name {' or '.join(WIRE_PRECISIONS)}, got {list(self.wire)}")


def permit_table() -> str:
    """The table [permit] of a site's file: every limit that has a number, with its reason beside it."""
    lines = ["[permit]"]
    for rule in RULES:
        lines.append(f"# {rule.heading}")
        for one in fields(rule):
            absent = one.default is None or one.default == ()
            text = f"{one.name} = {as_toml(one.default)}"
            lines.append(f"{'# ' + one.name + ' = [...]' if absent else text:<40}# {one.metadata['reason']}")
    return "\n".join(lines) + "\n"


def changed(permissions: Permissions) -> list[str]:
    """What an owner has relaxed or tightened, as it stands in the file."""
    return [
        f"{one.name} = {as_toml(getattr(permissions, one.name))}"
        for one in fields(permissions)
        if one.default is not MISSING and getattr(permissions, one.name) != one.default
    ]
