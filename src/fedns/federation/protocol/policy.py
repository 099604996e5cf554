"""What the coordinator does when sites are late, gone or wrong."""

from __future__ import annotations

from dataclasses import dataclass

from fedns.core.errors import ConfigError, FednsError
from fedns.federation.protocol.packets import LARGEST_BYTES

ABSENT = ("wait", "renormalise", "reuse")
WORDS = {
    "wait": "every site took part in every round",
    "renormalise": "each round optimised the objective over the sites present in it, weighted among themselves",
    "reuse": "the objective over all sites, with the last curvature and gradient of a site standing in while it was away",
}


class FederationError(FednsError):
    """A run that cannot go on because of its sites."""


class SitesLost(Exception):  # not an error yet: the policy decides what comes of it
    """Some sites did not answer an exchange, and nothing can stand in for them there."""

    def __init__(self, reasons: dict[int, str], *, exclude: bool) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons  # by client number
        self.exclude = exclude  # leave them out of the round altogether


@dataclass(frozen=True)
class Policy:
    """How long to wait for whom, and how the objective is kept when somebody is missing."""

    timeout_seconds: float = 60.0  # for one exchange
    quorum: int = 1  # fewer sites than this, and the round waits
    absent: str = "wait"
    patience_seconds: float = 600.0  # how long to wait for sites before giving up
    largest_bytes: int = LARGEST_BYTES

    def __post_init__(self) -> None:
        if self.absent not in ABSENT:
            raise ConfigError(f"absent must be one of {', '.join(ABSENT)}, got {self.absent!r}")
        if not (self.timeout_seconds > 0 and self.patience_seconds >= 0):
            raise ConfigError("timeout_seconds must be above 0 and patience_seconds at least 0")
        if self.quorum < 1:
            raise ConfigError(f"quorum must be at least 1, got {self.quorum}")
