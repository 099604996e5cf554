"""Sites that do not answer: what is raised, and what it means for the run."""

from __future__ import annotations

from fedns.core.errors import FednsError


class FederationError(FednsError):
    """A run that cannot go on because of its sites."""


class SitesLost(Exception):  # not an error yet: the policy decides what comes of it
    """Some sites did not answer an exchange, and there is nothing to fall back on for them there."""

    def __init__(self, reasons: dict[int, str], *, exclude: bool) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons  # by client number
        self.exclude = exclude  # leave them out of the round altogether
