"""When a fit ends, and whether it ended at the maximum: one rule for studies and estimators, whatever the method."""

from __future__ import annotations

from collections.abc import Sequence

from fedns.core.algorithm import Algorithm
from fedns.core.run import Stop
from fedns.core.termination import Ending, Verdict
from fedns.models.family import Outcomes

_LARGEST_LEFT = 1e-4  # standard errors from the maximum that a fit may be and be called converged
_NOTHING_LEFT = 1e-8  # so near no further round changes a digit that is written


def stop_of(algorithm: Algorithm, rounds: int, tolerance: float) -> Stop:
    """By the Newton decrement where the method tells it of each round's Hessian, else by the gradient."""
    if algorithm.ends_by_decrement:
        return Stop(rounds, newton_decrement=tolerance)
    return Stop(rounds, gradient_norm=tolerance)


def judged(found: Verdict, left: float, tolerance: float, refusal: str = "") -> Verdict:
    """Judge how a fit ended, by where its coefficients are and not by what its method made of it.

    - left: standard errors from the maximum, by the exact Newton decrement; nan where it could not be asked for.
    - tolerance: the same that would have ended it.
    - refusal: why it could not be asked for.
    """
    if refusal:
        return Verdict(Ending.STOPPED, f"{found.reason}, but whether that is the maximum cannot be told: {refusal}")
    if found.ending.converged and not left <= _LARGEST_LEFT:  # a method that goes by an estimate of the Hessian may err
        away = f"the coefficients are still {left:.1e} standard errors from the maximum"
        reason = f"{found.reason}, but {away}: use fednewton, or a smaller tolerance"
        return Verdict(Ending.STOPPED, reason)
    if found.ending.used_all_rounds and left <= max(tolerance, _NOTHING_LEFT):  # nothing of its own tells a method so
        return Verdict(Ending.DECREMENT, f"{found.reason}, and is {left:.1e} standard errors from the maximum")
    return found


def no_maximum(names: Sequence[str], outcomes: Outcomes) -> str:
    """Say what columns with these names do, along which an outcome is separated."""
    what = {Outcomes.CLASS: "some classes", Outcomes.COUNT: "rows without any count"}.get(outcomes, "the events")
    return (
        f"{', '.join(names)} separate{'s' if len(names) == 1 else ''} {what} from the rest, wholly or in part: the "
        "coefficients would be infinite; leave out or merge those columns or levels, or set a penalty"
    )
