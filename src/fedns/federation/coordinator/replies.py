"""Replies beside each other: which cannot be true, and gradients put together so that one site cannot turn them at will.

What the rules for gradients cost is in docs/deployment.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedns.core.errors import ConfigError, NonFiniteError
from fedns.core.messages import Discloses, Message
from fedns.core.types import FloatArray
from fedns.federation.coordinator.influence import geometric_median

LARGEST_NUMBER = 1e100  # squares of more than this overflow in the sums that follow
SUSPICIOUS, IMPOSSIBLE = 1e3, 1e8  # times the median of all sites


@dataclass(frozen=True)
class Oddity:
    """A field of one site that is far larger than those of the others."""

    client: int
    field: str
    norm: float
    ratio: float  # its norm over the median

    @property
    def impossible(self) -> bool:
        """Large by itself too: where most sites have nothing but rounding errors left to send, the ratio proves nothing."""
        return min(self.norm, self.ratio) > IMPOSSIBLE

    def __str__(self) -> str:
        return f"field '{self.field}' is {self.ratio:.3g} times as large as that of the median site"


def refuse_huge(message: Message) -> None:
    """Raise where a number is so large that nothing it is added to survives."""
    for name in message.specs():
        values = np.asarray(getattr(message, name))
        if values.dtype.kind == "f" and values.size and np.abs(values).max() > LARGEST_NUMBER:
            raise NonFiniteError(f"field '{name}' of {message.kind} holds {np.abs(values).max():.3g}")


def misfits(replies: Mapping[int, Message]) -> dict[int, str]:
    """Who is wrong, and how, where the shapes of replies differ that are to be added up: all, if no majority agrees."""
    shapes = {client: _fixed_shapes(message) for client, message in replies.items()}
    votes = Counter(shapes.values()).most_common(1)
    if not votes or votes[0][1] == len(shapes):
        return {}
    usual = votes[0][0] if 2 * votes[0][1] > len(shapes) else None
    wrong = {}
    for client, own in sorted(shapes.items()):
        if own != usual:
            others = usual or next(shape for shape in shapes.values() if shape != own)
            name, shape, other = next((*a, b[1]) for a, b in zip(own, others, strict=True) if a != b)
            wrong[client] = f"field '{name}' has shape {shape}, {'most others have' if usual else 'another has'} {other}"
    return wrong


def _fixed_shapes(message: Message) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The shape of every field, without the axis that may differ from site to site."""
    specs = message.specs().items()
    return tuple((name, np.shape(getattr(message, name))[int(spec.ragged) :]) for name, spec in specs)


def compare_replies(replies: Mapping[int, Message]) -> list[Oddity]:
    """Fields whose norm is far above the median over sites; needs three sites to tell who is the odd one."""
    if len(replies) < 3:
        return []
    oddities = []
    first = next(iter(replies.values()))
    for name in first.specs():
        norms = {client: _norm(getattr(message, name)) for client, message in replies.items()}
        middle = float(np.median(list(norms.values())))
        odd = [(client, norm) for client, norm in norms.items() if norm > (SUSPICIOUS * middle or IMPOSSIBLE)]
        oddities += [Oddity(client, name, norm, norm / middle if middle else np.inf) for client, norm in odd]
    return oddities


def _norm(values: object) -> float:
    array = np.asarray(values, dtype=np.float64)
    return float(np.sqrt(np.mean(array * array))) if array.size else 0.0


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


def combine_replies(rule: str, replies: Mapping[int, Message]) -> dict[int, Message]:
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
