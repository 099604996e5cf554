"""Checking replies against each other: what no single message can tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedns.core.errors import MessageError
from fedns.core.messages import Message

LARGEST_NUMBER = 1e100  # squares of more than this overflow in the sums that follow
SUSPICIOUS, IMPOSSIBLE = 1e3, 1e8  # times the median of all sites


@dataclass(frozen=True)
class Oddity:
    """A field of one site that is far larger than those of the others."""

    client: int
    field: str
    ratio: float  # its norm over the median

    def __str__(self) -> str:
        return f"field '{self.field}' is {self.ratio:.3g} times as large as that of the median site"


def refuse_huge(message: Message) -> None:
    """Raise where a number is so large that nothing it is added to survives."""
    for name in message.specs():
        values = np.asarray(getattr(message, name))
        if values.dtype.kind == "f" and values.size and np.abs(values).max() > LARGEST_NUMBER:
            raise MessageError(f"field '{name}' of {message.kind} holds {np.abs(values).max():.3g}")


def compare(replies: Mapping[int, Message]) -> list[Oddity]:
    """Fields whose norm is far above the median over sites; needs three sites to tell who is the odd one."""
    if len(replies) < 3:
        return []
    found = []
    first = next(iter(replies.values()))
    for name in first.specs():
        norms = {client: _norm(getattr(message, name)) for client, message in replies.items()}
        middle = float(np.median(list(norms.values())))
        if middle > 0:
            found += [Oddity(c, name, norm / middle) for c, norm in norms.items() if norm > SUSPICIOUS * middle]
    return found


def _norm(values: object) -> float:
    array = np.asarray(values, dtype=np.float64)
    return float(np.sqrt(np.mean(array * array))) if array.size else 0.0
