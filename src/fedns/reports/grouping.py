"""Things put together by what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The things by their key; keys in the order of their first thing, things in the order given."""
    groups: dict[K, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups
