"""Clients at real sites: whatever the transport, a cohort whose members may be late, gone or wrong."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Outcome
from fedns.core.clients import Handler, Ids, messages_of
from fedns.core.cohort import Cohort, Session
from fedns.core.messages import Message, as_batch
from fedns.core.run import Evaluation
from fedns.federation.coordinator.link import PAUSE_SECONDS, Link
from fedns.federation.protocol.policy import FederationError, SitesLost
from fedns.problems.evaluation import evaluate

T = TypeVar("T")


class NetworkedCohort(Cohort):
    """Sites behind a link. A round either has an answer, or a fallback, from all its members, or is repeated."""

    def __init__(self, session: Session, link: Link, total_weights: NDArray[np.float64] | None = None) -> None:
        super().__init__(session, np.arange(len(link.job.sites), dtype=np.int64))
        self.link = link
        if total_weights is None:
            link.open()
            try:
                self._register()
            except SitesLost as lost:
                raise FederationError(f"the run cannot start: {lost}") from None
        else:  # a run that goes on knows its sites already
            self.total_weights = total_weights
            self.weights = total_weights / total_weights.sum()

    def _deliver(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[Ids, Message]]:
        link = self.link
        here = [int(client) for client in ids if client not in link.away]
        replies, reasons = link.ask(handler, frame, here, self.session.round, self.session.num_features)
        link.away |= set(reasons)
        for client in ids:
            if int(client) not in replies:
                replies[int(client)] = self._fallback(handler, int(client), reasons)
        for client in ids:
            yield np.array([client]), as_batch([replies[int(client)]])

    def _fallback(self, handler: Handler, client: int, reasons: dict[int, str]) -> Message:
        """The client's last reply of this kind; where there may be none, the round cannot go on as it is."""
        old = self.link.last.get((handler.__name__, client))
        if old is not None:
            return old
        lost = reasons or {client: f"site '{self.link.job.sites[client]}' is away"}
        # Where others may speak for it the next try leaves it out of this exchange only.
        raise SitesLost(lost, exclude=not (self._reuses and messages_of(handler)[1].fallback == "others"))

    def _label(self, client: int) -> str:
        return f"site '{self.link.job.sites[client]}'"

    def _asked(self, handler: Handler) -> Self:
        if messages_of(handler)[1].fallback != "others" or not self.link.away:
            return self
        here = np.flatnonzero([client not in self.link.away for client in self.ids])
        return self.part(here) if here.size else self

    def _reached(self, ids: Ids) -> Ids:
        return ids if not self.link.away else ids[[client not in self.link.away for client in ids]]

    def with_retries(self, round: Callable[[Cohort], T]) -> T:
        link = self.link
        link.away = set()
        excluded: set[int] = set()
        deadline = time.monotonic() + link.policy.patience_seconds
        while True:
            try:
                outcome = round(self._without(excluded))
            except SitesLost as lost:
                link.away |= set(lost.reasons)
                excluded |= set(lost.reasons) if lost.exclude else set()
                link.log_event("round_lost", round=self.session.round, reasons=list(lost.reasons.values()))
                if self.num_clients - len(link.away) < link.policy.quorum or link.policy.absent == "wait":
                    self._wait(deadline, lost)
                    link.away, excluded = set(), set()
                link.new_epoch()
                continue
            for client in self._reached(self.ids):
                link.committed_rounds[client] = self.session.round + 1
            return self._noted(outcome)

    def evaluate(self, w: NDArray[np.float64]) -> Evaluation:
        """The objective over the sites that can be reached, outside the meter; the sites' own ledgers have it."""
        session = self.session
        metered, session.metered = session.metered, False
        reasons: dict[int, str] = {}
        try:
            for _ in range(self.num_clients + 1):
                try:
                    return evaluate(session.problem, self, w)
                except SitesLost as lost:
                    if self.link.policy.absent == "wait":
                        raise FederationError(f"the objective after round {session.round} lacks a site: {lost}") from None
                    self.link.away |= set(lost.reasons)
                    reasons = lost.reasons | reasons  # the first word on a site tells most
            raise FederationError(f"no site can be asked for the objective: {'; '.join(reasons.values())}")
        finally:
            session.metered = metered

    @property
    def _reuses(self) -> bool:
        return self.link.policy.absent == "reuse"

    def _without(self, excluded: set[int]) -> Cohort:
        if not excluded:
            return self
        return self.part(np.flatnonzero([client not in excluded for client in self.ids]))

    def _wait(self, deadline: float, lost: SitesLost) -> None:
        if time.monotonic() > deadline:
            present = self.num_clients - len(self.link.away)
            raise FederationError(
                f"round {self.session.round} has {present} of {self.num_clients} sites and needs "
                f"{max(self.link.policy.quorum, present + 1)}: {lost}"
            )
        time.sleep(PAUSE_SECONDS)

    def _noted(self, outcome: T) -> T:
        """The outcome, saying how many sites it came from where not all took part."""
        if not self.link.away or not isinstance(outcome, Outcome):
            return outcome
        present = float(self.num_clients - len(self.link.away))
        return dataclasses.replace(outcome, diagnostics={**outcome.diagnostics, "sites_present": present})
