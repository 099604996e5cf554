"""What a coordinator does when sites are late, gone or wrong: part of the description of a run over sites."""

from __future__ import annotations

from dataclasses import dataclass

from fedns.core.errors import ConfigError

LARGEST_BYTES = 256 * 2**20  # of one message
ABSENT = ("wait", "renormalise", "reuse")
AGGREGATES = ("mean", "median", "trimmed", "geometric")
WORDS = {
    "wait": "every site took part in every round",
    "renormalise": "each round optimised the objective over the sites present in it, weighted among themselves",
    "reuse": "the objective over all sites, with the last curvature and gradient of a site standing in while it was away",
}


@dataclass(frozen=True)
class Policy:
    """How long to wait for whom, and how the objective is kept when somebody is missing."""

    timeout_seconds: float = 60.0  # for one exchange
    quorum: int = 1  # fewer sites than this, and the round waits
    absent: str = "wait"
    patience_seconds: float = 600.0  # how long to wait for sites before giving up
    largest_bytes: int = LARGEST_BYTES
    largest_rows: int | dict[str, int] | None = None  # that a site may state, or each by its name; more ends the run
    aggregate: str = "mean"  # how gradients are put together; the others keep one site from turning them at will

    def __post_init__(self) -> None:
        if self.absent not in ABSENT:
            raise ConfigError(f"absent must be one of {', '.join(ABSENT)}, got {self.absent!r}")
        if not (self.timeout_seconds > 0 and self.patience_seconds >= 0):
            raise ConfigError("timeout_seconds must be above 0 and patience_seconds at least 0")
        if self.aggregate not in AGGREGATES:
            raise ConfigError(f"aggregate must be one of {', '.join(AGGREGATES)}, got {self.aggregate!r}")
        limits = self.largest_rows.values() if isinstance(self.largest_rows, dict) else [self.largest_rows]
        for limit in limits:
            if limit is not None and not (type(limit) is int and limit >= 1):
                raise ConfigError(f"largest_rows must be whole numbers of at least 1, got {limit!r}")
        if self.quorum < 1:
            raise ConfigError(f"quorum must be at least 1, got {self.quorum}")

    def most_rows(self, site: str) -> int | None:
        """How many rows were agreed on for a site; none where nothing was."""
        return self.largest_rows.get(site) if isinstance(self.largest_rows, dict) else self.largest_rows
