"""What a comparison is made of: data, split, problem, methods and how long to run, as a value, a file or a command."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from fedns.core.errors import ConfigError
from fedns.core.suggestions import unknown

DEFAULT_CLIENTS = 10
DEFAULT_METHODS = ("fednewton", "fedns", "fedndes")


@dataclass(frozen=True)
class Spec:
    """Every setting of a comparison; creating one checks all that can be checked without the data."""

    dataset: str  # a name, a path or synthetic:...
    methods: tuple[str, ...] = DEFAULT_METHODS
    target: str | None = None  # columns of a CSV or Parquet file
    group: str | None = None
    weight: str | None = None
    positive: str | None = None  # the label that becomes +1
    scale: str = "none"
    clients: int | None = None  # None: 10, or the natural sites where split is "group"
    split: str = "iid"
    loss: str = "auto"
    strength: float = 1e-3
    intercept: bool = False
    sketch: str = "srht"
    sketch_size: int = 16
    rounds: int = 30
    tol: float | None = 1e-10
    trials: int = 5
    seed: int = 0
    wire: str = "float64"
    participation: float = 1.0
    threads: int | None = None  # None: all cores
    out: str | None = None  # None: runs/<dataset>
    missing: str = "refuse"  # or drop the rows, or fill in the mean

    def __post_init__(self) -> None:
        _check_ranges(self)
        _check_names(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spec:
        """From plain values, as a file or a command line gives them."""
        hints = get_type_hints(cls)
        for key in values:
            if key not in hints:
                raise ConfigError(unknown("setting", key, hints))
        if "dataset" not in values:
            raise ConfigError('no data set was given: set dataset = "..."')
        return cls(**{key: _as_type(key, hints[key], value) for key, value in values.items()})

    @classmethod
    def from_toml(cls, path: str | Path, overrides: Mapping[str, Any] | None = None) -> Spec:
        """From a file, with these settings in place of the file's."""
        values = read_toml(path)
        changed = dict(overrides or {})
        # Natural sites bring their own number, so the file's would only stand in the way.
        if changed.get("split") == "group" and "clients" not in changed:
            values.pop("clients", None)
        try:
            return cls.from_dict(values | changed)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @property
    def num_clients(self) -> int | None:
        """The number of clients to split over; None where the data's own sites decide."""
        return self.clients or (None if self.split == "group" else DEFAULT_CLIENTS)

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return Path(self.out) if self.out else Path("runs") / _file_name(self.dataset)

    def as_dict(self) -> dict[str, Any]:
        """Every setting in order, tuples as lists."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    def to_toml(self) -> str:
        """A file that `from_toml` reads back to an equal spec; a setting that is not set has no line."""
        return "".join(f"{key} = {_toml(value)}\n" for key, value in self.as_dict().items() if value is not None)

    def to_command(self) -> str:
        """The command line that runs this."""
        words = ["fedns", "compare", self.dataset, "--methods", ",".join(self.methods)]
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if value is None or (value == field.default and field.name not in ("strength", "seed", "rounds", "tol")):
                continue
            flag = "--" + field.name.replace("_", "-")
            words += [flag] if isinstance(value, bool) else [flag, str(value)]
        return shlex.join(words)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read '{path}': {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is not TOML: {error}") from None


def _check_ranges(spec: Spec) -> None:
    lowest = {"clients": 1, "sketch_size": 1, "rounds": 1, "trials": 1, "seed": 0, "threads": 1}
    for name, bound in lowest.items():
        value = getattr(spec, name)
        if value is not None and value < bound:
            raise ConfigError(f"{name} must be at least {bound}, got {value}")
    if not 0 <= spec.strength < float("inf"):
        raise ConfigError(f"strength must be a number >= 0, got {spec.strength:g}")
    if spec.tol is not None and not 0 <= spec.tol < float("inf"):
        raise ConfigError(f"tol must be a number >= 0, got {spec.tol:g}")
    if not 0 < spec.participation <= 1:
        raise ConfigError(f"participation must be above 0 and at most 1, got {spec.participation:g}")


def _check_names(spec: Spec) -> None:
    # Imported here so that a command line that only shows its help does not load the kernels.
    from fedns.core.messages import WIRE_PRECISIONS
    from fedns.data.missing import MISSING_RULES
    from fedns.data.scaling import SCALINGS
    from fedns.problems.losses import LOSSES
    from fedns.runs.methods import parse_methods
    from fedns.sketches import SKETCHES

    choices = {
        "missing": MISSING_RULES,
        "scale": SCALINGS,
        "loss": ("auto", *LOSSES),
        "sketch": tuple(SKETCHES),
        "wire": tuple(WIRE_PRECISIONS),
    }
    for name, known in choices.items():
        value = getattr(spec, name)
        if value not in known:
            raise ConfigError(unknown(name, value, known))
    parse_methods(spec.methods, spec.sketch, spec.sketch_size)


def _as_type(key: str, hint: Any, value: Any) -> Any:
    """The value as the type of its field: whole numbers serve as numbers, a comma-separated text as methods."""
    if key == "methods":
        return _as_methods(value)
    if key == "positive" and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}"  # labels are compared as text or as numbers later
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if type(value) in kinds:
        return value
    if float in kinds and type(value) is int:
        return float(value)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    expected = " or ".join(names[kind] for kind in kinds if kind in names)
    raise ConfigError(f"{key} must be {expected}, got {value!r}")


def _as_methods(value: Any) -> tuple[str, ...]:
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"methods must be a list of texts, got {value!r}")
    from fedns.runs.methods import alternatives

    return tuple(one for text in texts if text.strip() for one in alternatives(text))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):  # JSON's escapes are TOML's, but for the delete character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _file_name(dataset: str) -> str:
    """A folder name for a data set that may be a path or a recipe."""
    stem = Path(dataset).stem if not dataset.startswith("synthetic:") else dataset
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem) or "data"
