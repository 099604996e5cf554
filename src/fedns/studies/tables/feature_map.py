"""A study's rule for a feature map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fedns.core.checked import Checked, refuse_unknown
from fedns.core.errors import ConfigError, unknown
from fedns.models.maps.kernel_maps import Kernel

KINDS = ("fourier", "orthogonal", "nystroem")
_MOST_FEATURES = 1000  # a site answers no larger number in a request, unless its owner says otherwise


@dataclass(frozen=True)
class MapRule(Checked):
    """Features of a kernel in place of the formula's columns, which enter it in units of their standard deviations.

    - kind: fourier, orthogonal or nystroem.
    - size: features, at least 2; an even number of random waves.
    - kernel: gaussian or laplace.
    - width: of the kernel, above 0; 0 takes the median distance between rows, found in the handshake.
    - seed: of the random waves, or of the choice of landmarks.
    """

    kind: str
    size: int
    kernel: Kernel = "gaussian"
    width: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"[feature_map]: {unknown('kind', self.kind, KINDS)}")
        if self.kind == "orthogonal" and self.kernel != "gaussian":
            raise ConfigError('[feature_map]: orthogonal waves are for the gaussian kernel: take kind = "fourier"')
        if not 2 <= self.size <= _MOST_FEATURES or (self.kind != "nystroem" and self.size % 2):
            raise ConfigError(f"[feature_map]: size must be an even number from 2 to {_MOST_FEATURES}, got {self.size}")
        if self.width < 0 or self.seed < 0:
            raise ConfigError("[feature_map]: width and seed must be at least 0")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MapRule:
        refuse_unknown("setting of [feature_map]", values, [one.name for one in fields(cls)])
        for name in ("kind", "size"):
            if name not in values:
                raise ConfigError(f"[feature_map] has no {name}: set {name} = ...")
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """As the file has it, without what is left at its default."""
        defaults = asdict(MapRule(self.kind, self.size))
        return {name: value for name, value in asdict(self).items() if name in ("kind", "size") or value != defaults[name]}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.kind}[{number}]" for number in range(1, self.size + 1))

    @property
    def asks(self) -> bool:
        """Whether sites have to tell something about their rows first."""
        return not self.width or self.kind == "nystroem"
