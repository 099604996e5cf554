"""Things of one kind by name: the package's own, and those that other packages bring through entry points."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from fedns.core.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
_REGISTRIES: dict[type[Any], Registry[Any]] = {}


def registered(kind: type[Any]) -> list[Any]:
    """All of this kind that can be used, in the order they are listed."""
    return list(_REGISTRIES[kind].values()) if kind in _REGISTRIES else []


class Registry(Mapping[str, T]):
    """A mapping from names to methods, losses, sketches or transports.

    A package outside adds to it by an entry point in `group`, named like what it points to and imported when it is needed.
    One that cannot be used is refused with a sentence where it is asked for, and left out, with the same sentence, where all
    are.
    """

    def __init__(self, what: str, group: str, kind: type[Any], own: Iterable[T]) -> None:
        self._what = what
        self._group = group
        self._kind = kind
        self._own: dict[str, T] = {thing.name: thing for thing in own}  # type: ignore[attr-defined]
        self._loaded: dict[str, T] = {}
        self._broken: dict[str, str] = {}
        _REGISTRIES[kind] = self

    @cached_property
    def _outside(self) -> dict[str, EntryPoint]:
        """By name; our own cannot be replaced, and of two packages with the same name the first on the path has it."""
        from importlib.metadata import entry_points  # slow to import, and a command that shows its help needs none

        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self._group):
            if entry.name in self._own or entry.name in found:
                logging.getLogger("fedns").warning("%s is left out: the name is taken", self._origin(entry))
            else:
                found[entry.name] = entry
        return found

    def __getitem__(self, name: str) -> T:
        if name in self._own:
            return self._own[name]
        if name in self._broken:
            raise ConfigError(self._broken[name])
        if name not in self._loaded:
            self._loaded[name] = self._load(self._outside[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._outside

    def __iter__(self) -> Iterator[str]:
        """The names of all that can be used."""
        yield from self._own
        for name in self._outside:
            if name in self._broken:
                continue
            try:
                self[name]
            except ConfigError as error:
                self._broken[name] = str(error)
                logging.getLogger("fedns").warning("%s", error)
            else:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load(self, entry: EntryPoint) -> Any:
        try:
            thing = entry.load()
        except Exception as error:  # whatever a stranger's module does when it is imported
            raise ConfigError(f"{self._origin(entry)} cannot be imported: {type(error).__name__}: {error}") from error
        fits = issubclass(thing, self._kind) if isinstance(thing, type) else isinstance(thing, self._kind)
        if not fits:
            raise ConfigError(f"{self._origin(entry)} must be a {self._kind.__name__}, but {entry.value} is {thing!r}")
        if thing.name != entry.name:
            raise ConfigError(f"{self._origin(entry)} must be registered by its own name, '{thing.name}'")
        return thing

    def _origin(self, entry: EntryPoint) -> str:
        package = entry.dist.name if entry.dist is not None else entry.module
        return f"{self._what} '{entry.name}' of the package {package}"
