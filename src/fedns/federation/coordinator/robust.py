"""Ways to put gradients together that one site cannot turn at will; what they cost is in docs/deployment.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import ConfigError
from fedns.core.messages import Discloses, Message
from fedns.federation.coordinator.influence import geometric_median

FloatArray = NDArray[np.float64]


def trimmed_mean(points: FloatArray) -> FloatArray:
    """The mean of every coordinate without a fifth of the sites, and at least one, at each end."""
    cut = max(1, len(points) // 5)
    ordered = np.sort(points, axis=0)
    middle: FloatArray = ordered[cut : len(points) - cut].mean(axis=0)
    return middle


RULES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "median": lambda points: np.median(points, axis=0),
    "trimmed": trimmed_mean,
    "geometric": geometric_median,
}


def combined(rule: str, replies: Mapping[int, Message]) -> dict[int, Message]:
    """The replies, each with the sites' common gradient in place of its own, so that every sum of them is that one."""
    if rule == "mean" or not replies:
        return dict(replies)
    specs = next(iter(replies.values())).specs()
    if any(spec.discloses is Discloses.DIRECTION for spec in specs.values()):
        raise ConfigError(f"aggregate = '{rule}' needs a method whose sites send gradients; choose another, or 'mean'")
    names = [name for name, spec in specs.items() if spec.discloses is Discloses.GRADIENT]
    if not names:
        return dict(replies)
    if len(replies) < 3:
        raise ConfigError(f"aggregate = '{rule}' needs three sites or more, {len(replies)} answered")
    common = {}
    for name in names:
        points = np.array([np.asarray(getattr(reply, name), dtype=np.float64) for reply in replies.values()])
        common[name] = RULES[rule](points)
    return {client: replace(reply, **common) for client, reply in replies.items()}  # type: ignore[type-var]
