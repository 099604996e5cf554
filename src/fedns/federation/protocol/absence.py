"""Sites that do not answer: what is raised, and what it means for the run."""

from __future__ import annotations

from typing import ClassVar

from fedns.core.errors import FednsError
from fedns.core.termination import Ending


class FederationError(FednsError):
    """A run that cannot go on because of its sites: too few of them answer. Resumed later, it may."""

    ending: ClassVar[Ending] = Ending.SITES_LOST
    exit_status: ClassVar[int] = 5


class SiteRefuses(FederationError):
    """A site that refuses, or whose answer cannot be used: the same request would get the same answer."""

    ending: ClassVar[Ending] = Ending.REFUSED
    exit_status: ClassVar[int] = 7


class SitesLost(Exception):  # not an error yet: the policy decides what comes of it
    """Some sites did not answer an exchange, and there is nothing to fall back on for them there."""

    def __init__(self, reasons: dict[int, str], *, exclude: bool) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons  # by client number
        self.exclude = exclude  # leave them out of the round altogether
