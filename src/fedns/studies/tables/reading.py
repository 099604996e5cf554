"""Values of a study's file: what is no table, no text or no number is refused in a sentence that names it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedns.core.checked import refuse_unknown
from fedns.core.errors import ConfigError
from fedns.studies.tables.files.frames import label_of

_LONGEST_TEXT = 200


def table_of(values: Mapping[str, Any], name: str, known: tuple[str, ...] | None) -> dict[str, Any]:
    """The table of this name, empty where there is none. known: the settings that it may have; None for any."""
    found = values.get(name, {})
    if not isinstance(found, Mapping):
        raise ConfigError(f"{name} must be a table, got {found!r}")
    if known is not None:
        refuse_unknown(f"setting of [{name}]", found, known)
    return dict(found)


def labels_of(what: str, value: Any) -> tuple[str, ...]:
    """Texts; whole numbers and true or false stand for the texts that name them."""
    items = value if isinstance(value, list | tuple) else [value]
    named = []
    for item in items:
        if isinstance(item, bool):
            named.append(str(item).lower())
        elif isinstance(item, int | float) and math.isfinite(item):
            named.append(label_of(float(item)))
        elif isinstance(item, str) and item.strip() and len(item) <= _LONGEST_TEXT:
            named.append(item.strip())
        else:
            raise ConfigError(f"{what} must be texts or numbers, got {item!r}")
    if not named:
        raise ConfigError(f"{what} must not be empty")
    return tuple(named)


def number_of(what: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{what} must be a number, got {value!r}")
    return float(value)
