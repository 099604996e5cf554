"""Settings and arguments checked against their declared types, or read from text by them; a mistake is one sentence.

numpy is not imported here: the command line shows its help without it.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union

from fedns.core.errors import ConfigError, unknown

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True)
class Limit:
    """What a value has to be beside its type, in words and as a test: `Annotated[float, Limit("> 0", ...)]`."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True, eq=False)
class Known:
    """The names that a text may be: `Annotated[str, Known(LOSSES)]`; a function is called when one is checked."""

    names: Collection[str] | Callable[[], Collection[str]]


@dataclass(frozen=True)
class Unset:
    """What holds where a setting is None, in words."""

    words: str


Positive = Annotated[float, Limit("> 0", lambda value: value > 0)]
NotNegative = Annotated[float, Limit(">= 0", lambda value: value >= 0)]
Count = Annotated[int, Limit(">= 1", lambda value: value >= 1)]
CountOrZero = Annotated[int, Limit(">= 0", lambda value: value >= 0)]
Fraction = Annotated[float, Limit("> 0 and <= 1", lambda part: 0 < part <= 1)]
_VALUE_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    bool: "True or False",
    str: "a text",
    Path: "a path",
    type(None): "None",
}
WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Checked:
    """A dataclass whose fields are of their declared types. Its own `__post_init__` runs after that is certain."""

    is_settings: ClassVar[bool] = False  # True where its fields are what users set by name, whatever class holds them

    def __post_init__(self) -> None:
        kind: Any = type(self)
        hints, owner = _hints(kind), "" if self.is_settings else kind.__name__
        for field in fields(kind):
            _check(owner, field.name, getattr(self, field.name), hints[field.name])

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        own = cls.__dict__.get("__post_init__")
        if own is None:
            return

        @functools.wraps(own)
        def check_first(self: Checked) -> None:
            Checked.__post_init__(self)
            own(self)

        cls.__post_init__ = check_first  # type: ignore[method-assign]


def checked(function: F) -> F:
    """A public function that refuses arguments which are not of their declared types."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **settings: Any) -> Any:
        hints = _hints(function)
        for name, value in signature.bind(*arguments, **settings).arguments.items():
            if name in hints:
                _check(function.__name__, name, value, hints[name])
        return function(*arguments, **settings)

    return typing.cast("F", call)


@functools.cache
def _hints(owner: Any) -> dict[str, Any]:
    """The declared types of a class's fields or a function's parameters; what it returns need not be importable."""
    if isinstance(owner, type):
        return typing.get_type_hints(owner, include_extras=True)
    declared = {name: kind for name, kind in owner.__annotations__.items() if name != "return"}
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=declared), owner.__globals__, include_extras=True)


def _check(owner: str, name: str, value: Any, declared: Any) -> None:
    if not _fits(value, declared):
        whose = f"{name} of {owner}" if owner else name
        raise ConfigError(f"{whose} must be {_in_words(declared)}, got {_shown(value)}")
    for known in _said(declared, Known) if value is not None else ():
        if value not in (names := known.names() if callable(known.names) else known.names):
            raise ConfigError(unknown(name, value, names))


def _said(declared: Any, kind: type[T]) -> Iterator[T]:
    """What is said of this kind beside a type, or beside one of those of a union."""
    if typing.get_origin(declared) is Annotated:
        yield from (one for one in declared.__metadata__ if isinstance(one, kind))
        yield from _said(declared.__origin__, kind)
    elif typing.get_origin(declared) in (Union, types.UnionType):
        for option in typing.get_args(declared):
            yield from _said(option, kind)


def _limits(declared: Any) -> list[Limit]:
    """Those of an `Annotated` type itself, not those within it."""
    return [one for one in declared.__metadata__ if isinstance(one, Limit)]


def sentence_of(cls: Any, setting: str) -> str:
    """What a setting is: the text in its `Annotated` type."""
    return next(_said(_hints(cls)[setting], str), "")


def unset_of(cls: Any, setting: str) -> str | None:
    """What holds where a setting is None, in words; None where nothing is said."""
    return next((unset.words for unset in _said(_hints(cls)[setting], Unset)), None)


def described(cls: type[T]) -> type[T]:
    """The class with a line for each setting in its help."""
    lines = [f"- {field.name}: {sentence_of(cls, field.name)}" for field in fields(cls)]  # type: ignore[arg-type]
    cls.__doc__ = "\n".join([cls.__doc__ or "", "", *lines])
    return cls


def _options(declared: Any) -> list[Any]:
    """The types of a union; `ArrayLike`, a union itself, remains one of them."""
    options = list(typing.get_args(declared))
    numpy_typing = sys.modules.get("numpy.typing")
    if numpy_typing is None or not set(array_like := typing.get_args(numpy_typing.ArrayLike)) <= set(options):
        return options
    return [numpy_typing.ArrayLike, *(option for option in options if option not in array_like)]


def _is_array(declared: Any) -> bool:
    numpy_typing = sys.modules.get("numpy.typing")  # nothing can be declared an array before it is imported
    return numpy_typing is not None and (
        declared is numpy_typing.ArrayLike or typing.get_origin(declared) is sys.modules["numpy"].ndarray
    )


def _is_array_like(value: Any) -> bool:
    import numpy as np

    try:
        return not isinstance(value, str | bytes | Mapping) and np.ndim(value) > 0
    except ValueError:  # rows of unequal lengths
        return False


def _fits(value: Any, declared: Any) -> bool:
    origin = typing.get_origin(declared)
    if origin is Annotated:
        return _fits(value, declared.__origin__) and all(limit.holds(value) for limit in _limits(declared))
    if _is_array(declared):
        return _is_array_like(value)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in _options(declared))
    if origin is Literal:
        return value in typing.get_args(declared)
    if declared is float:
        return isinstance(value, Real) and value is not True and value is not False and math.isfinite(value)
    if declared is int:
        return isinstance(value, Integral) and value is not True and value is not False
    if declared is bool:
        return type(value).__name__ in ("bool", "bool_")  # Python's, and numpy's by either of its names
    if origin is not None:
        return _fits_container(value, origin, typing.get_args(declared))
    if declared is Any or not isinstance(declared, type):
        return True  # nothing can be said about it
    if getattr(declared, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(declared) if not name.startswith("_"))
    return isinstance(value, declared)


def _fits_container(value: Any, kind: type, inside: tuple[Any, ...]) -> bool:
    """Lists may stand for tuples; a text is not a list of letters."""
    accepted = (list, tuple) if kind is tuple else kind
    if not isinstance(value, accepted) or isinstance(value, str):
        return False
    if isinstance(value, Mapping):
        return all(_fits(key, inside[0]) and _fits(item, inside[1]) for key, item in value.items())
    return len(inside) == 0 or not hasattr(value, "__iter__") or all(_fits(item, inside[0]) for item in value)


def _in_words(declared: Any) -> str:
    origin, inside = typing.get_origin(declared), typing.get_args(declared)
    if origin is Annotated:
        return " ".join([_in_words(declared.__origin__), *(limit.words for limit in _limits(declared))])
    if _is_array(declared):
        return "a list or an array"
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(option) for option in _options(declared))
    if origin is Literal:
        return " or ".join(repr(option) for option in inside)
    if origin is not None:
        entries = f", each entry {_in_words(inside[-1 if issubclass(origin, Mapping) else 0])}" if inside else ""
        return f"a {origin.__name__.lower()}{entries}"
    if declared in _VALUE_WORDS:
        return _VALUE_WORDS[declared]
    example = getattr(declared, "example", "")
    return f"{declared.__name__}, such as {example}" if example else str(declared.__name__)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def alternatives_of(hint: Any) -> tuple[Any, ...]:
    """The types of a union; any other type alone."""
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def parsed(name: str, hint: Any, text: str) -> Any:
    """The text as the type of its field; a type of its own is read by its `parse`, if it has one."""
    kinds = alternatives_of(hint)
    if type(None) in kinds and text.lower() == "none":
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    for kind in kinds:
        try:
            if typing.get_origin(kind) is Literal:
                return {str(choice): choice for choice in typing.get_args(kind)}[text]
            if typing.get_origin(kind) is tuple:  # of numbers or texts, as 5/3/3/8
                return tuple(typing.get_args(kind)[0](part) for part in text.split("/"))
            if kind is bool:
                return _TRUTH[text.lower()]
            return kind(text) if kind in WORDS else kind.parse(text)
        except (AttributeError, KeyError, ValueError):
            continue
    raise ConfigError(f"{name} must be {' or '.join(map(_text_in_words, kinds))}, got '{text}'")


def _text_in_words(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return " or ".join(str(choice) for choice in typing.get_args(kind))
    return WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}, which cannot be written as text")


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
    refuse_unknown("setting", values, known or own, where)
    must = [name for name, f in own.items() if name in required or (f.default is MISSING and f.default_factory is MISSING)]
    if missing := [f"'{name}'" for name in must if name not in values]:
        raise ConfigError(f"{where} lacks {' and '.join(missing)}")
    hints = typing.get_type_hints(cls)
    try:
        return cls(**{key: typed(key, hints[key], value) for key, value in values.items()}, **given)
    except ConfigError as error:
        raise ConfigError(located(where, str(error))) from None


def refuse_unknown(what: str, given: Iterable[str], known: Collection[str], where: str = "") -> None:
    """Refuse the first key that is not known, with what is likely meant."""
    for key in given:
        if key not in known:
            raise ConfigError(located(where, unknown(what, key, known)))


def located(where: str, sentence: str) -> str:
    """The sentence with the place it is about, where there is one."""
    return f"{where}: {sentence}" if where else sentence


def typed(key: str, hint: Any, value: Any) -> Any:
    """The value as the type of its field: a whole number serves as a number, a list as a tuple."""
    kinds = [kind for kind in alternatives_of(hint) if kind is not type(None)]
    for kind in kinds:
        if (
            typing.get_origin(kind) is tuple
            and isinstance(value, list | tuple)
            and all(isinstance(item, str) for item in value)
        ):
            return tuple(value)
        if typing.get_origin(kind) is Literal or (typing.get_origin(kind) is dict and isinstance(value, dict)):
            return value  # which ones there are, the class says
        if kind is float and type(value) is int and abs(value) < 2**1023:
            return float(value)
        if type(value) is kind or (value is None and kinds != [hint]):
            return value
    expected = " or ".join(
        "a table" if typing.get_origin(kind) is dict else WORDS.get(kind, "a list of texts") for kind in kinds
    )
    raise ConfigError(f"{key} must be {expected}, got {value!r}")
