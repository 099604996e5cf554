"""A backend around another: whatever is asked of it goes through one function, on the way there and back."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fedns.numerics.backend import Backend


@dataclass(frozen=True)
class Pass:
    """Something asked of a backend: its name and its arguments, both as `Backend` declares them."""

    name: str
    arguments: dict[str, Any]

    def made_by(self, backend: Backend, **changed: Any) -> Any:
        """Have it made by a backend, with some of the arguments changed."""
        return getattr(backend, self.name)(**self.arguments | changed)

    def arguments_of(self, shape: str) -> dict[str, Any]:
        """Return its arguments of a shape: POINTS or DIRECTIONS."""
        hints = _hints(self.name)
        return {name: value for name, value in self.arguments.items() if _shape(hints[name]) == shape}

    def with_results(self, results: Any, change: Callable[[str, Any], Any]) -> Any:
        """Return its results, each changed by its shape: VECTORS, TRIANGLES, or none."""
        hint = _hints(self.name)["return"]
        if get_origin(hint) is not tuple:
            return change(_shape(hint), results)
        return tuple(change(_shape(one), result) for one, result in zip(get_args(hint), results, strict=True))


def _through(name: str) -> Any:
    declared = getattr(Backend, name)
    parameters = [*inspect.signature(declared).parameters][1:]

    def asked(self: AroundBackend, *given: Any, **named: Any) -> Any:
        return self.around(Pass(name, dict(zip(parameters, given, strict=False)) | named))

    asked.__name__, asked.__qualname__, asked.__doc__ = name, f"AroundBackend.{name}", declared.__doc__
    return asked


@dataclass(frozen=True)
class AroundBackend(Backend):
    """A backend around another, with every pass that `Backend` declares, and no other.

    A subclass says in `around` what becomes of all passes that it has no method for.
    """

    inside: Backend

    @abstractmethod
    def around(self, one: Pass) -> Any:
        """Make a pass by the backend inside, or refuse."""

    derivatives = _through("derivatives")
    losses_along = _through("losses_along")
    gradient = _through("gradient")
    value_and_gradient = _through("value_and_gradient")
    value_gradient_and_curvatures = _through("value_gradient_and_curvatures")
    curvatures_along = _through("curvatures_along")
    gradient_and_hessian = _through("gradient_and_hessian")
    hessian_times = _through("hessian_times")
    gradient_and_sketch = _through("gradient_and_sketch")
    sketched_rows = _through("sketched_rows")
    local_steps = _through("local_steps")
    blocks = _through("blocks")
    before_rows_are_read = _through("before_rows_are_read")
    before_counts_leave = _through("before_counts_leave")


@cache
def _hints(name: str) -> dict[str, Any]:
    return get_type_hints(getattr(Backend, name), include_extras=True)


def _shape(hint: Any) -> str:
    return str(hint.__metadata__[0]) if get_origin(hint) is Annotated else ""
