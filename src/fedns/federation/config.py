"""The two small files of a federation: what a site holds and permits, and what a coordinator runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fedns.core.errors import ConfigError
from fedns.core.suggestions import unknown
from fedns.federation.protocol.policy import Policy
from fedns.federation.site.permissions import Permissions
from fedns.runs.job import Job
from fedns.runs.spec import read_toml

ENGINES = {"flower": "flwr", "nvflare": "nvflare"}  # by name, the package that each needs
SITE_FILE, EXPERIMENT_FILE, CREDENTIALS_FOLDER = "site.toml", "experiment.toml", "credentials"
T = TypeVar("T")


@dataclass(frozen=True)
class DataSource:
    """Where a site's rows are, in the words of `fedns.load`."""

    dataset: str  # a path, from the folder of the file, or a name
    target: str | None = None
    weight: str | None = None
    positive: str | None = None


@dataclass(frozen=True)
class SiteConfig:
    """A site: its name, its data, and what it will answer."""

    name: str
    engine: str
    folder: Path  # of the file; the site's credentials are in it
    data: DataSource
    state: str = "state"  # what the site remembers of runs, and its ledger
    permit: Permissions = field(default_factory=Permissions)

    @property
    def credentials(self) -> Path:
        return self.folder / CREDENTIALS_FOLDER

    @classmethod
    def read(cls, path: Path) -> SiteConfig:
        values = read_toml(path)
        data = _filled(DataSource, f"{path}, [data]", values.pop("data", {}))
        permit = _filled(Permissions, f"{path}, [permit]", values.pop("permit", {}))
        config = _filled(cls, str(path), values, folder=path.resolve().parent, data=data, permit=permit)
        _check_engine(path, config.engine)
        return config


@dataclass(frozen=True)
class Experiment:
    """What a coordinator runs, with whom, and what it does when somebody is missing."""

    engine: str
    sites: tuple[str, ...]
    folder: Path  # of the file; the coordinator's credentials are in it
    method: str = "fedns"
    sketch: str = "srht"
    sketch_size: int = 16
    loss: str = "logistic"
    strength: float = 1e-3
    intercept: bool = False
    rounds: int = 30
    gradient_tol: float | None = 1e-8
    seed: int = 0
    wire: str = "float64"
    listen: str = "127.0.0.1:9092"  # host and port that sites connect to
    out: str = "run"
    policy: Policy = field(default_factory=Policy)

    @property
    def credentials(self) -> Path:
        return self.folder / CREDENTIALS_FOLDER

    @property
    def outputs(self) -> Path:
        return self.folder / self.out

    @property
    def job(self) -> Job:
        names = [f.name for f in fields(Job)]
        return Job(**{name: getattr(self, name) for name in names})

    @classmethod
    def read(cls, path: Path) -> Experiment:
        values = read_toml(path)
        policy = _filled(Policy, f"{path}, [policy]", values.pop("policy", {}))
        experiment = _filled(cls, str(path), values, folder=path.resolve().parent, policy=policy)
        _check_engine(path, experiment.engine)
        if not experiment.sites or len(set(experiment.sites)) < len(experiment.sites):
            raise ConfigError(f"{path}: sites must be names, each once, got {list(experiment.sites)}")
        if experiment.policy.quorum > len(experiment.sites):
            raise ConfigError(f"{path}: a quorum of {experiment.policy.quorum} is more than the sites there are")
        host, _, port = experiment.listen.rpartition(":")
        if not (host and port.isdecimal() and int(port) < 2**16):
            raise ConfigError(f"{path}: listen must be a host and a port, like 127.0.0.1:9092, got {experiment.listen!r}")
        return experiment


def require_engine(engine: str) -> None:
    """Raise unless the engine is one that is known and installed."""
    if engine not in ENGINES:
        raise ConfigError(unknown("engine", engine, ENGINES))
    if find_spec(ENGINES[engine]) is None:
        raise ConfigError(f"the engine {engine} is not installed: pip install 'fedns[{engine}]'")


def _check_engine(path: Path, engine: str) -> None:
    if engine not in ENGINES:
        raise ConfigError(f"{path}: {unknown('engine', engine, ENGINES)}")


def _filled(cls: type[T], where: str, values: Any, **given: Any) -> T:
    """An object of this class from the settings of a table, each checked to be of its field's type."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} must be a table")
    hints = {name: hint for name, hint in get_type_hints(cls).items() if name not in given}
    known = [f.name for f in fields(cls) if f.name not in given]  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: {unknown('setting', key, known)}")
    try:
        return cls(**{key: _typed(key, hints[key], value) for key, value in values.items()}, **given)
    except TypeError as error:
        missing = str(error).partition("argument")[2].strip(" s:")
        raise ConfigError(f"{where} lacks {missing}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def _typed(key: str, hint: Any, value: Any) -> Any:
    kinds = [kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,)) if kind is not NoneType]
    for kind in kinds:
        if get_origin(kind) is tuple and isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is kind:
            return value
    expected = " or ".join(_WORDS.get(kind, "a list of texts") for kind in kinds)
    raise ConfigError(f"{key} must be {expected}, got {value!r}")
