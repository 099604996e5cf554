"""What a coordinator does when sites are late, gone or wrong: part of the description of a run over sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedns.core.checked import Checked, Count, NotNegative, Positive

LARGEST_BYTES = 256 * 2**20  # of one message
WORDS = {
    "wait": "every site took part in every round",
    "renormalise": "each round optimised the objective over the sites present in it, weighted among themselves",
    "reuse": "the objective over all sites, with the last curvature and gradient of a site standing in while it was away",
}


@dataclass(frozen=True)
class Policy(Checked):
    """How long to wait for whom, and how the objective is kept when somebody is missing."""

    is_settings: ClassVar[bool] = True
    timeout_seconds: Positive = 60.0  # for one exchange
    quorum: Count = 1  # fewer sites than this, and the round waits
    absent: Literal["wait", "renormalise", "reuse"] = "wait"
    patience_seconds: NotNegative = 600.0  # how long to wait for sites before giving up
    largest_bytes: int = LARGEST_BYTES
    largest_rows: Count | dict[str, Count] | None = None  # that a site may state, or each by its name; more ends the run
    # How gradients are put together; the others keep one site from turning them at will.
    aggregate: Literal["mean", "median", "trimmed", "geometric"] = "mean"

    def most_rows(self, site: str) -> int | None:
        """How many rows were agreed on for a site; none where nothing was."""
        return self.largest_rows.get(site) if isinstance(self.largest_rows, dict) else self.largest_rows
