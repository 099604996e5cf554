"""Methods from text: `fedns`, or with parameters `fedns:line_search=aggregate;sketch=sjlt;sketch_size=8`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Any, get_type_hints

from fedns.core.algorithm import Algorithm
from fedns.core.checked import alternatives_of, parsed
from fedns.core.errors import ConfigError, unknown
from fedns.methods import METHODS
from fedns.methods.auto.thresholds import FEW_COLUMNS
from fedns.methods.searches import SEARCHES, Search
from fedns.models.loss import Loss
from fedns.models.losses import Squared
from fedns.numerics.backend import triangle_size
from fedns.sketches import DEFAULT_SIZE, SKETCHES, Sketch

EXACT, EXACT_WITH_SEARCH = "fednewton", "fednewton:line_search=aggregate"  # what fits of few coefficients take
_SMALLEST_SKETCH = 256  # rows of a sketch that leaves little to chance


@dataclass(frozen=True)
class Method:
    """An algorithm and the text that asked for it, which is what tables and figures call it."""

    label: str
    algorithm: Algorithm


@dataclass(frozen=True)
class Parameter:
    """One thing that can be set behind the colon, with its default as it would be typed."""

    name: str
    default: str
    only_for: str = ""  # the sketch that has it, where others have not

    def __str__(self) -> str:
        only = f" ({self.only_for} only)" if self.only_for else ""
        return f"{self.name}={self.default}{only}" if self.default else self.name


def parse_methods(texts: Iterable[str], sketch: str = "srht", sketch_size: int = DEFAULT_SIZE) -> list[Method]:
    """The methods these texts ask for; a sketch that a text leaves open is the one given here."""
    methods = [parse_method(text, sketch, sketch_size) for text in texts]
    if not methods:
        raise ConfigError(f"no method was given: choose from {', '.join(METHODS)}")
    labels = [method.label for method in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"method '{label}' is given twice: every method of a comparison needs a different text")
    return methods


def parse_method(text: str, sketch: str = "srht", sketch_size: int = DEFAULT_SIZE) -> Method:
    """One method."""
    name, _, rest = text.strip().partition(":")
    if name not in METHODS:
        raise ConfigError(unknown("method", name, METHODS))
    given = _settings(name, rest)
    kind = METHODS[name]
    arguments: dict[str, Any] = {}
    for field, hint in _fields(kind):
        if kinds := _kinds(hint):
            if issubclass(next(reversed(kinds.values())), Sketch):
                given = _with_sketch(field, given, sketch, sketch_size)
            arguments[field.name] = _part_argument(name, field, kinds, given)
        elif field.name in given:
            arguments[field.name] = _value(name, field.name, hint, given.pop(field.name))
        elif _is_required(field):
            raise ConfigError(f"method '{name}' needs a value for '{field.name}': write {name}:{field.name}=...")
    for leftover in given:
        raise ConfigError(unknown(f"parameter of method '{name}'", leftover, [p.name for p in parameters(kind)]))
    try:
        return Method(text.strip(), kind(**arguments))
    except ConfigError as error:
        raise ConfigError(f"method '{text.strip()}': {error}") from None


def default_method(loss: Loss, num_features: int, num_sites: int) -> str:
    """Choose the method that sends least among those that take few rounds, where nobody asks for another.

    Exact Newton steps where one is enough or coefficients are few; then `auto`, which sends the Hessian's changes in few
    bits, or its cheapest curvature where even that is more than a sketch.
    """
    if isinstance(loss, Squared):
        return EXACT
    if num_features <= FEW_COLUMNS["balanced"] or not loss.has_root:
        return EXACT_WITH_SEARCH
    sketch_size = max(_SMALLEST_SKETCH, math.ceil(4 * num_features / num_sites))
    return "auto:prefer=rounds" if triangle_size(num_features) <= sketch_size * num_features else "auto"


def alternatives(text: str) -> list[str]:
    """Every method that a text with alternatives stands for: `fedns:sketch=srht|sjlt;sketch_size=4|8` is four."""
    name, colon, rest = text.strip().partition(":")
    choices = []
    for part in rest.split(";") if colon else []:
        key, equals, values = part.partition("=")
        choices.append([f"{key}{equals}{value}" for value in values.split("|")])
    return [f"{name}:{';'.join(chosen)}" for chosen in itertools.product(*choices)] if choices else [text.strip()]


def parameters(kind: type[Algorithm]) -> list[Parameter]:
    """What can be set behind the colon, in the order of the algorithm's fields."""
    listed: list[Parameter] = []
    for field, hint in _fields(kind):
        default = _default(field)
        if kinds := _kinds(hint):
            listed += _part_parameters(field.name, default, kinds)
        else:
            listed.append(Parameter(field.name, _shown(default)))
    return listed


def _settings(name: str, text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise ConfigError(f"method '{name}': '{part}' must have the form parameter=value; semicolons separate them")
        if key in settings:
            raise ConfigError(f"method '{name}': parameter '{key}' is given twice")
        settings[key] = value
    return settings


def _fields(kind: type[Algorithm]) -> list[tuple[Field[Any], Any]]:
    own: Any = kind  # a method without parameters need not be a dataclass
    hints = get_type_hints(kind)
    return [(field, hints[field.name]) for field in fields(own) if field.init] if is_dataclass(own) else []


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return "/".join(map(str, value))
        case _:
            return str(value)


def _kinds(hint: Any) -> dict[str, Any]:
    """What a field that holds a sketch or a line search can hold, by the word for it; empty for any other field."""
    types = tuple(part for part in alternatives_of(hint) if isinstance(part, type) and issubclass(part, (Sketch, Search)))
    if not types:
        return {}
    choices: Mapping[str, Any] = SKETCHES if issubclass(types[0], Sketch) else SEARCHES
    none = {"none": None} if type(None) in alternatives_of(hint) else {}
    return none | {name: kind for name, kind in choices.items() if issubclass(kind, types)}


def _with_sketch(field: Field[Any], given: dict[str, str], sketch: str, size: int) -> dict[str, str]:
    """What was given, and the sketch of all methods where this field has one that was left open."""
    asked = {field.name, f"{field.name}_size"} & given.keys()
    wanted = asked or _is_required(field) or _default(field) is not None
    return {field.name: sketch, f"{field.name}_size": str(size)} | given if wanted else given


def _own_parameters(name: str, kind: Any) -> dict[str, tuple[Field[Any], Any]]:
    """The fields of a sketch or a line search, by what they are called behind the colon: `size` is sketch_size."""
    hints = get_type_hints(kind)
    return {f"{name}_size" if part.name == "size" else part.name: (part, hints[part.name]) for part in fields(kind)}


def _part_parameters(name: str, default: Any, kinds: Mapping[str, Any]) -> list[Parameter]:
    """Which sketch or line search, where there is a choice, and what they have."""
    listed = [Parameter(name, "none" if default is None else default.name)] if len(kinds) > 1 else []
    owned = {kind.name: _own_parameters(name, kind) for kind in kinds.values() if kind is not None}
    for key, (field, _) in {key: part for own in owned.values() for key, part in own.items()}.items():
        owners = [kind for kind, own in owned.items() if key in own]
        value = getattr(default, field.name, field.default)
        only_for = "" if len(owners) == len(owned) else " and ".join(owners)
        listed.append(Parameter(key, "" if value is MISSING else _shown(value), only_for))
    return listed


def _part_argument(method: str, field: Field[Any], kinds: Mapping[str, Any], given: dict[str, str]) -> Any:
    """The sketch or the line search of a field: what was asked for, and the field's default for what was not."""
    default = _default(field)
    word = given.pop(field.name, "none" if default is None else default.name)
    if word not in kinds:
        raise ConfigError(unknown(field.name.replace("_", " "), word, kinds))
    kind = kinds[word]
    if kind is None:  # what the others have may be set and does nothing
        for key in [p.name for p in _part_parameters(field.name, None, kinds) if not p.only_for]:
            given.pop(key, None)
        return None
    values = {
        part.name: _value(method, key, hint, given.pop(key))
        for key, (part, hint) in _own_parameters(field.name, kind).items()
        if key in given
    }
    return replace(default, **values) if type(default) is kind else kind(**values)


def _value(method: str, name: str, hint: Any, text: str) -> Any:
    try:
        return parsed(name, hint, text)
    except ConfigError as error:
        raise ConfigError(f"method '{method}': {error}") from None
