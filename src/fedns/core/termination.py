"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fedns.core.errors import DataError


class Ending(Enum):
    """How a run ended: a word or two for a table, and a sentence."""

    GAP = ("converged", "the gap to the optimum reached its tolerance")
    GRADIENT = ("converged", "the norm of the gradient reached its tolerance")
    DECREMENT = ("converged", "the Newton decrement reached its tolerance")
    METHOD = ("converged", "the method itself found that it was done")
    OUT_OF_ROUNDS = ("out of rounds", "all rounds were used")
    AT_OPTIMUM = ("at the optimum", "all rounds were used, and no objective tells the end from the optimum")
    IMPROVING = ("still improving", "all rounds were used, and the gap was still falling")
    PLATEAU = ("plateau", "all rounds were used, and the gap had stopped falling")
    UNSETTLED = ("not settling", "all rounds were used, and the gap went up and down")
    STUCK = ("stuck", "the method found no step that decreases the objective")
    DIVERGED = ("diverged", "the objective ended above where it began, or it or the coefficients grew beyond all bounds")
    STOPPED = ("stopped", "an observer asked for the end")
    REFUSED = ("refused", "a site refuses, or sends what cannot be used")
    SITES_LOST = ("sites lost", "too few sites answered for too long")
    ENGINE_LOST = ("engine lost", "what carries the messages ended again and again")
    INTERRUPTED = ("interrupted", "the process ended before the run did")

    def __init__(self, label: str, sentence: str) -> None:
        self.label = label
        self.sentence = sentence

    @property
    def converged(self) -> bool:
        return self in (Ending.GAP, Ending.GRADIENT, Ending.DECREMENT, Ending.METHOD)

    @property
    def used_all_rounds(self) -> bool:
        """Whether nothing but the number of rounds ended it."""
        return self in (Ending.OUT_OF_ROUNDS, Ending.AT_OPTIMUM, Ending.IMPROVING, Ending.PLATEAU, Ending.UNSETTLED)

    @property
    def key(self) -> str:
        """The name under which it is written to files."""
        return self.name.lower()

    @classmethod
    def of(cls, key: str) -> Ending:
        """The ending that was written as `key`."""
        if key not in {ending.key for ending in cls}:
            raise DataError(f"no run ends with {key!r}: known endings are {', '.join(ending.key for ending in cls)}")
        return cls[key.upper()]


@dataclass(frozen=True)
class Verdict:
    """That a run is over: how it ended, and why in one sentence with its numbers."""

    ending: Ending
    reason: str
