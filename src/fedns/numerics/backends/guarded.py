"""A backend that is watched: no pass over rows is made without whoever guards them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fedns.numerics.backend import Backend
from fedns.numerics.backends.around import AroundBackend


@dataclass(frozen=True)
class GuardedBackend(AroundBackend):
    """The way from those who compute to rows that others own: a subclass makes passes, or refuses them.

    It stays outermost. What a loss or an offset makes of a backend is made of the one inside (`within`).
    """


def within(backend: Backend, change: Callable[[Backend], Backend]) -> Backend:
    """Return what `change` makes of a backend, or of the one inside a guard, which stays around it."""
    if isinstance(backend, GuardedBackend):
        return replace(backend, inside=change(backend.inside))
    return change(backend)
