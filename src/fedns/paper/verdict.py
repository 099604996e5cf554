"""What became of a claim of the paper, decided from measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "holds if", "does not hold"]


@dataclass(frozen=True)
class Verdict:
    """One claim of the paper, what became of it, and the figures that decided."""

    claim: str  # number and place, such as "Fig. 1, claim 2"
    says: str  # the paper's sentence, in other words
    outcome: Outcome
    condition: str  # under which it holds; empty unless the outcome is "holds if"
    evidence: str  # the measured figures
