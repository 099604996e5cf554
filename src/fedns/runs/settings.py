"""Settings from files: tables of named values, each checked to be what its field says."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_origin, get_type_hints

from fedns.core.checked import WORDS, alternatives_of
from fedns.core.errors import ConfigError, unknown

T = TypeVar("T")


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read '{path}': {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is not TOML: {error}") from None


def as_toml(value: Any) -> str:
    """The value as a settings file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(as_toml(item) for item in value)}]"
    if isinstance(value, str):  # JSON's escapes are TOML's, but for the delete character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def filled(
    cls: type[T], where: str, values: Any, *, known: Collection[str] = (), required: Collection[str] = (), **given: Any
) -> T:
    """An object of this class from the settings of a table; whatever is wrong with them is one sentence that names it.

    known: the settings that the table may have, if not all fields. required: those it must have though the class has a
    default. given: values that are not settings.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} must be a table")
    own = {field.name: field for field in fields(cls) if field.name not in given}  # type: ignore[arg-type]
    for key in values:
        if key not in (known or own):
            raise ConfigError(located(where, unknown("setting", key, known or own)))
    must = [name for name, f in own.items() if name in required or (f.default is MISSING and f.default_factory is MISSING)]
    if missing := [f"'{name}'" for name in must if name not in values]:
        raise ConfigError(f"{where} lacks {' and '.join(missing)}")
    hints = get_type_hints(cls)
    try:
        return cls(**{key: typed(key, hints[key], value) for key, value in values.items()}, **given)
    except ConfigError as error:
        raise ConfigError(located(where, str(error))) from None


def located(where: str, sentence: str) -> str:
    """The sentence with the place it is about, where there is one."""
    return f"{where}: {sentence}" if where else sentence


def typed(key: str, hint: Any, value: Any) -> Any:
    """The value as the type of its field: a whole number serves as a number, a list as a tuple."""
    kinds = [kind for kind in alternatives_of(hint) if kind is not NoneType]
    for kind in kinds:
        if get_origin(kind) is tuple and isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        if get_origin(kind) is Literal or (get_origin(kind) is dict and isinstance(value, dict)):
            return value  # which ones there are, the class says
        if kind is float and type(value) is int and abs(value) < 2**1023:
            return float(value)
        if type(value) is kind or (value is None and kinds != [hint]):
            return value
    expected = " or ".join("a table" if get_origin(kind) is dict else WORDS.get(kind, "a list of texts") for kind in kinds)
    raise ConfigError(f"{key} must be {expected}, got {value!r}")
