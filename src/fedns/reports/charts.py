"""A figure as plain values: drawn on paper by `plots` and on the page by `interactive`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedns.core.errors import ConfigError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Scale:
    """An axis: what it says and how it runs."""

    label: str
    logarithmic: bool = False
    unit: str = ""  # "bytes" is shown as kB, MB, ...


@dataclass(frozen=True)
class Curve:
    """One curve. `x` has one list of positions per horizontal scale of its chart, each as long as `y`."""

    label: str
    x: Mapping[str, Sequence[float]]
    y: Sequence[float]
    low: Sequence[float] | None = None  # the spread over trials
    high: Sequence[float] | None = None
    dashed: bool = False  # a reference, such as a claimed rate

    @classmethod
    def over(
        cls, label: str, x: Mapping[str, Sequence[float]], y: Sequence[float], trials: Iterable[Sequence[float]]
    ) -> Curve:
        """A curve with the range of the values that its trials have at each point."""
        ends = [(min(values), max(values)) for values in trials]
        return cls(label, x, y, [low for low, _ in ends], [high for _, high in ends])

    def __post_init__(self) -> None:
        for name, positions in [*self.x.items(), ("low", self.low), ("high", self.high)]:
            if positions is not None and len(positions) != len(self.y):
                raise ConfigError(f"line '{self.label}': {name} has {len(positions)} values, y has {len(self.y)}")


@dataclass(frozen=True)
class Chart:
    """A figure. Where it has several horizontal scales the page lets a reader switch, and paper gets one file for each."""

    name: str  # the stem of its files, unique within a report
    title: str
    caption: str
    x: Mapping[str, Scale]  # by a short name such as "rounds", the first one shown first
    y: Scale
    lines: Sequence[Curve] = field(default_factory=tuple)
    level: float | None = None  # a horizontal line, such as a tolerance

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Chart:
        """The chart that `asdict` took apart."""
        scales = {name: Scale(**scale) for name, scale in values["x"].items()}
        lines = [Curve(**line) for line in values["lines"]]
        return cls(**values | {"x": scales, "y": Scale(**values["y"]), "lines": lines})

    def __post_init__(self) -> None:
        for line in self.lines:
            if not set(line.x) <= set(self.x):
                raise ConfigError(f"line '{line.label}' has positions that chart '{self.name}' has no scale for")


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The things by their key; keys in the order of their first thing, things in the order given."""
    groups: dict[K, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups
