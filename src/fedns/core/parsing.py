"""Values from text, by the declared type of what they are for."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from fedns.core.errors import ConfigError

WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def alternatives_of(hint: Any) -> tuple[Any, ...]:
    """The types of a union; any other type alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def parsed(name: str, hint: Any, text: str) -> Any:
    """The text as the type of its field; a type of its own is read by its `parse`, if it has one."""
    kinds = alternatives_of(hint)
    if type(None) in kinds and text.lower() == "none":
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    for kind in kinds:
        try:
            if get_origin(kind) is Literal:
                return {str(choice): choice for choice in get_args(kind)}[text]
            if kind is bool:
                return _TRUTH[text.lower()]
            return kind(text) if kind in WORDS else kind.parse(text)
        except (AttributeError, KeyError, ValueError):
            continue
    raise ConfigError(f"{name} must be {' or '.join(map(_in_words, kinds))}, got '{text}'")


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(str(choice) for choice in get_args(kind))
    return WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}, which cannot be written as text")
