"""Refusals before the first round: of what does not fit into memory, into headers, or to the penalty."""

from __future__ import annotations

from collections.abc import Callable

from fedns.core.algorithm import Algorithm
from fedns.core.clients import messages_of
from fedns.core.errors import ConfigError
from fedns.core.messages.encoding import most_clients, most_rounds
from fedns.core.problem import Penalty
from fedns.core.registry import registered
from fedns.numerics import memory


def refuse_too_large(algorithm: Algorithm, bytes_of: Callable[[Algorithm], float], features: int) -> None:
    """Raise where a method needs more memory than there is, before any of it is taken."""
    needed, most = bytes_of(algorithm), memory.machine()
    if needed <= most:
        return
    fitting = next((other for other in _of_any_width() if bytes_of(other) <= most), None)
    instead = f"take {fitting.name}, which needs {bytes_of(fitting) / 1e9:.2g} GB" if fitting else "take fewer columns"
    raise ConfigError(
        f"{algorithm.name} needs about {needed / 1e9:.3g} GB of memory for {features} coefficients, "
        f"and there are {most / 1e9:.3g} GB: {instead}"
    )


def refuse_too_many(algorithm: Algorithm, rounds: int, clients: int) -> None:
    """Raise where a method's headers have no room for so many rounds or clients, before the first round."""
    compact = _has_short_headers(algorithm)
    for what, number, most in (("rounds", rounds, most_rounds(compact)), ("clients", clients, most_clients(compact))):
        if number > most:
            fitting = next((f": take {other.name}" for other in _of_any_width() if not _has_short_headers(other)), "")
            raise ConfigError(f"the messages of {algorithm.name} are for up to {most} {what}, not {number}{fitting}")


def refuse_penalty(algorithm: Algorithm, penalty: Penalty) -> None:
    """Raise where a method is made for a quadratic penalty and this one is not."""
    if algorithm.quadratic_penalty_only and not penalty.quadratic:
        why = algorithm.quadratic_penalty_only
        raise ConfigError(f"{algorithm.name} does not take the penalty {penalty.name}: {why}, or take fedns.Ridge")


def _of_any_width() -> list[Algorithm]:
    """List what can be recommended where a method does not fit, with its default parameters, the best first."""
    return [kind() for kind in reversed(registered(Algorithm)) if kind.takes_any_width]


def _has_short_headers(algorithm: Algorithm) -> bool:
    return any(message.compact for handler in algorithm.handlers() for message in messages_of(handler))
