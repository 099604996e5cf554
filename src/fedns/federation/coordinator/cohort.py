"""Clients at real sites: whatever the transport, a cohort whose members may be late, gone or wrong."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Outcome
from fedns.core.clients import Handler, Ids, messages_of
from fedns.core.cohort import Cohort, Registration
from fedns.core.errors import NonFiniteError
from fedns.core.messages import Message, as_batch, nothing_changed
from fedns.core.messages.ledger import Meter
from fedns.core.problem import Evaluation
from fedns.federation.coordinator.influence import SiteInfluence
from fedns.federation.coordinator.link import PAUSE_SECONDS, Link
from fedns.federation.coordinator.replies import combine_replies
from fedns.federation.protocol.absence import FederationError, SitesLost
from fedns.models.evaluation import evaluate

T = TypeVar("T")


class NetworkedCohort(Cohort):
    """Sites behind a link. A round either has an answer, or a fallback, from all its members, or is repeated."""

    def __init__(self, link: Link) -> None:
        super().__init__(link.state.session, np.arange(len(link.sites), dtype=np.int64))
        self.link, self.state = link, link.state
        self._evaluating: NDArray[np.float64] | None = None  # where, while the objective is asked for
        if not self.state.total_weights.size:  # a run that goes on knows its sites already
            link.open()
            try:
                self.register_clients()
            except SitesLost as lost:
                raise FederationError(f"the run cannot start: {lost}") from None
            self.state.total_weights, self.state.rows = self.total_weights, self.rows
        self.total_weights, self.rows = self.state.total_weights, self.state.rows
        self.weights = self.total_weights / self.total_weights.sum()

    def _deliver(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[Ids, Message]]:
        # All answers are in before the first is handed on: one that cannot be true beside the others, being far
        # above their median or of another shape, must not be added to anything, and a sum cannot be taken apart again.
        replies, reasons = self.link.ask(handler, frame, self._reached(ids).tolist(), self.session.round)
        self.state.away |= set(reasons)
        self._noticed(handler, replies)
        present = next(iter(replies.values()), None)
        for client in ids.tolist():
            if client not in replies:
                replies[client] = self._fallback(handler, client, reasons, present)
        replies = combine_replies(self.link.policy.aggregate, replies)
        for client in ids.tolist():  # each is let go of as soon as it is folded
            yield np.array([client]), as_batch([replies.pop(client)])

    def _noticed(self, handler: Handler, replies: Mapping[int, Message]) -> None:
        """Keep what tells of a site's influence, and end a run in which a site states more rows than were agreed."""
        if self._evaluating is not None:
            self.state.evidence.evaluated(self._evaluating, handler, replies)
        else:
            self.state.evidence.heard(handler, replies, self.num_features)
        for client, reply in replies.items():
            most = self.link.policy.most_rows(self.link.sites[client])
            if most is not None and isinstance(reply, Registration) and max(reply.num_rows, reply.total_weight) > most:
                stated = f"{int(reply.num_rows)} rows with a weight of {float(reply.total_weight):g}"
                raise FederationError(
                    f"{self._label(client)} states {stated}, and at most {most} were agreed on (largest_rows): the run ends"
                )

    def _fallback(self, handler: Handler, client: int, reasons: dict[int, str], present: Message | None) -> Message:
        """The client's last reply of this kind, or no change; where neither will do, the round cannot go on as it is."""
        old = self.state.last.get((handler.__name__, client))
        if old is not None:
            return old
        if present is not None and present.fallback == "unchanged" and self._reuses:
            return nothing_changed(present)
        lost = reasons or {client: f"site '{self.link.sites[client]}' is away"}
        # Where others of those asked may speak for it the next try leaves it out of this exchange only.
        spoken_for = present is not None and self._reuses and messages_of(handler)[1].fallback == "others"
        raise SitesLost(lost, exclude=not spoken_for)

    def _label(self, client: int) -> str:
        return f"site '{self.link.sites[client]}'"

    def _asked(self, handler: Handler) -> Self:
        if messages_of(handler)[1].fallback != "others" or not self.state.away:
            return self
        here = np.flatnonzero([client not in self.state.away for client in self.ids])
        return self.part(here) if here.size else self

    def _reached(self, ids: Ids) -> Ids:
        return ids if not self.state.away else ids[[client not in self.state.away for client in ids]]

    def with_retries(self, round: Callable[[Cohort], T]) -> T:
        link, state = self.link, self.state
        state.away = set()
        excluded: set[int] = set()
        deadline = time.monotonic() + link.policy.patience_seconds
        while True:
            try:
                outcome = round(self._without(excluded))
            except SitesLost as lost:
                excluded |= set(lost.reasons) if lost.exclude else set()
                link.journal.event("round_lost", round=self.session.round, reasons=list(lost.reasons.values()))
                if self.num_clients - len(state.away) < link.policy.quorum or link.policy.absent == "wait":
                    self._wait(deadline, lost)
                    state.away, excluded = set(), set()
                state.new_epoch()
                continue
            for client in self._reached(self.ids):
                state.committed_rounds[client] = self.session.round + 1
            return self._noted(outcome)

    def evaluate(self, w: NDArray[np.float64]) -> Evaluation:
        """The objective over the sites that can be reached, metered apart from what the method sends."""
        session = self.session
        meter, session.meter = session.meter, Meter()
        reasons: dict[int, str] = {}
        self._evaluating = w
        try:
            for _ in range(self.num_clients + 1):
                try:
                    return evaluate(session.problem, self, w)
                except NonFiniteError:  # of too many for a lie: the run is told, and ends as diverged
                    return Evaluation(np.inf, np.inf)
                except SitesLost as lost:
                    if self.link.policy.absent == "wait":
                        raise FederationError(f"the objective after round {session.round} lacks a site: {lost}") from None
                    reasons = lost.reasons | reasons  # the first word on a site tells most
            raise FederationError(f"no site can be asked for the objective: {'; '.join(reasons.values())}")
        finally:
            self._evaluating = None
            meter.evaluation_bytes += session.meter.uplink_bytes + session.meter.downlink_bytes
            session.meter = meter

    def influences(self, w: NDArray[np.float64]) -> list[SiteInfluence]:
        """What each site did to the model w, from what was sent anyway."""
        agreed = all(self.link.policy.most_rows(site) is not None for site in self.link.sites)
        return self.state.evidence.influences(self.session.problem, w, self.link.sites, self.total_weights, agreed=agreed)

    @property
    def _reuses(self) -> bool:
        return self.link.policy.absent == "reuse"

    def _without(self, excluded: set[int]) -> Cohort:
        if not excluded:
            return self
        return self.part(np.flatnonzero([client not in excluded for client in self.ids]))

    def _wait(self, deadline: float, lost: SitesLost) -> None:
        if time.monotonic() > deadline:
            present = self.num_clients - len(self.state.away)
            raise FederationError(
                f"round {self.session.round} has {present} of {self.num_clients} sites and needs "
                f"{max(self.link.policy.quorum, present + 1)}: {lost}"
            )
        time.sleep(PAUSE_SECONDS)

    def _noted(self, outcome: T) -> T:
        """The outcome, saying how many sites it came from where not all took part."""
        if not self.state.away or not isinstance(outcome, Outcome):
            return outcome
        present = float(self.num_clients - len(self.state.away))
        return dataclasses.replace(outcome, diagnostics={**outcome.diagnostics, "sites_present": present})
