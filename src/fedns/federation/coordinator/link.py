"""The coordinator's end of every exchange: sends packets, admits answers, and knows how each site is doing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fedns.core.clients import Handler, messages_of
from fedns.core.errors import MessageError, NonFiniteError
from fedns.core.messages import Message
from fedns.core.messages.encoding import decode
from fedns.core.messages.ledger import LedgerEntry, shapes_of
from fedns.federation.coordinator.replies import compare_replies, misfits, refuse_huge
from fedns.federation.coordinator.state import RunState
from fedns.federation.coordinator.watching import Journal
from fedns.federation.protocol.absence import FederationError, SiteRefuses
from fedns.federation.protocol.opening import BUDGET_LEVELS, fit_to_show, opening, read_introduction
from fedns.federation.protocol.packets import ANSWER, ASK, KINDS, OPEN, OVERFLOW, REFUSAL, UNABLE, Packet, VersionError
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.numerics.backend import triangle_size
from fedns.runs.over_sites import Policy

log = logging.getLogger("fedns.coordinator")
PAUSE_SECONDS = 0.2  # between two looks at whether a site is back
REPEATED_SECONDS = 60.0  # how often the same trouble of a site is a line of the log again
LONGEST_SENTENCE = 1000  # of a refusal, in bytes
UNREADABLE = (bytes(16), 0, 0, 0)  # run, epoch, exchange and site of a refusal of a request that could not be read


@dataclass
class Link:
    """One run's connection to its sites; shared by a cohort and its parts."""

    transport: Transport
    state: RunState
    journal: Journal
    _logged: dict[int, tuple[str, float]] = field(default_factory=dict)  # by client: its last trouble, and when

    @property
    def sites(self) -> tuple[str, ...]:
        return self.state.spec.sites

    @property
    def policy(self) -> Policy:
        return self.state.spec.policy

    def open(self) -> None:
        """Tell every site about the run, waiting for those that are not there yet."""
        everyone = range(len(self.sites))
        body = opening(self.state.spec)
        _, reasons = self._exchange(OPEN, body, everyone, partial(self._opened, len(body)), patient=True)
        if reasons:
            raise FederationError(f"the run cannot start: {'; '.join(reasons.values())}")
        self.journal.event("opened", sites=list(self.sites))

    def _opened(self, length: int, client: int, body: bytes) -> None:
        """What a site says when a run is opened: its versions, and in how many columns it replaces rare levels."""
        try:
            told = json.loads(body)
            columns, spent, enough = (
                told["blanked_columns"],
                told.get("budget_spent", 0.0),
                told.get("budget_is_enough", True),
            )
            readable = (
                type(columns) is int and 0 <= columns < 2**31 and spent in (0.0, *BUDGET_LEVELS) and type(enough) is bool
            )
        except (ValueError, RecursionError, KeyError, TypeError):
            readable = False
        if not readable:
            raise MessageError("what it said when the run was opened cannot be read")
        status, name = self.journal.statuses[client], self.sites[client]
        status.blanked_columns, status.runs = columns, read_introduction(told.get("runs"))
        status.budget_spent, status.budget_is_enough = spent, enough
        self.journal.event("joined", site=name, runs=status.runs)
        opening = LedgerEntry(0, self.state.exchange, "downlink", "Opening", (), 1, length, "opens a run")
        self.journal.message(name, opening, runs=status.runs)
        if status.budget_note:
            self.journal.event("budget", site=name, reason=status.budget_note)
            log.warning("%s", status.budget_note)
        if columns:
            self.journal.event("blanked", site=self.sites[client], reason=self.journal.statuses[client].note)

    def ask(
        self, handler: Handler, frame: bytes, clients: Iterable[int], round: int
    ) -> tuple[dict[int, Message], dict[int, str]]:
        """Replies by client, and for those without one the reason."""
        _, expected = messages_of(handler)
        num_features = self.state.session.num_features
        known = {"features": num_features, "entries": triangle_size(num_features)} if num_features else {}

        def admit(client: int, body: bytes) -> Message:
            message, envelope = decode(expected, body, known, self.policy.largest_bytes)
            if (envelope.round, envelope.client) != (round, client):
                raise MessageError(f"a reply for round {envelope.round} of site {envelope.client} came in round {round}")
            refuse_huge(message)
            message.check()
            self._enter(handler, client, round, frame, body, message)
            return message

        patient = self.policy.absent == "wait" or round == 0  # whoever is to take part must be there at the start
        replies, reasons = self._exchange(ASK, frame, clients, admit, patient=patient, compared=True)
        if expected.fallback == "last" and self.policy.absent == "reuse":
            self.state.last |= {(handler.__name__, client): reply for client, reply in replies.items()}
        self.journal.event("exchange", round=round, handler=handler.__name__, answered=len(replies), missing=len(reasons))
        return replies, reasons

    def _enter(self, handler: Handler, client: int, round: int, frame: bytes, body: bytes, reply: Message) -> None:
        """A request and its answer in the ledger."""
        request, at, purpose = messages_of(handler)[0], (round, self.state.exchange), handler.__name__
        for entry in (
            LedgerEntry(*at, "downlink", request.kind, tuple(request.specs()), 1, len(frame), purpose),
            LedgerEntry(*at, "uplink", reply.kind, shapes_of(reply), 1, len(body), purpose),
        ):
            self.journal.message(self.sites[client], entry)

    def _exchange(
        self,
        kind: int,
        body: bytes,
        clients: Iterable[int],
        admit: Callable[[int, bytes], Any],
        *,
        patient: bool,
        compared: bool = False,
    ) -> tuple[dict[int, Any], dict[int, str]]:
        self.state.exchange += 1
        accepted: dict[int, Any] = {}
        final: dict[int, MessageError] = {}  # what a site would only say again
        away: dict[int, str] = {}
        asked = pending = list(clients)
        deadline = time.monotonic() + self.policy.patience_seconds
        while pending:
            away = self._once(kind, body, pending, admit, accepted, final)
            pending = list(away)
            if not patient or not pending or final or time.monotonic() > deadline:
                break
            time.sleep(PAUSE_SECONDS)
        if compared:
            final |= self._compared(accepted)
        sentences = {client: f"site '{self.sites[client]}': {error}" for client, error in final.items()}
        if 2 * sum(isinstance(error, NonFiniteError) for error in final.values()) > len(asked):
            raise NonFiniteError("; ".join(sentences.values()))  # nobody lies: this is what divergence looks like
        refused = any(isinstance(error, _Refused) for error in final.values())
        if final and (self.policy.absent == "wait" or (refused and patient)):
            raise SiteRefuses("; ".join(sentences.values()))
        return accepted, away | sentences

    def _once(
        self,
        kind: int,
        body: bytes,
        pending: list[int],
        admit: Callable[[int, bytes], Any],
        accepted: dict[int, Any],
        final: dict[int, MessageError],
    ) -> dict[int, str]:
        """Ask once; what can be admitted is, what never can be is final, and for every other there is a reason."""
        state, numbers = self.state, {self.sites[client]: client for client in pending}
        frames = {}
        for name, client in numbers.items():
            packet = Packet(kind, state.run, state.epoch, state.exchange, client, state.committed_rounds[client], body)
            frames[name] = packet.encode()
            status = self.journal.statuses[client]
            status.state, status.asked = "asked", status.asked or time.time()
        reasons = {client: f"site '{name}' did not answer" for name, client in numbers.items()}
        heard: set[int] = set()
        started = time.monotonic()
        for arrival in self.transport.exchange(frames, self.policy.timeout_seconds):
            client = numbers.get(arrival.site, -1)
            if client < 0 or client in heard:
                self.journal.event("rejected", site=arrival.site, reason="an answer that nobody asked for, or a second one")
                continue
            heard.add(client)
            status = self.journal.statuses[client]
            status.seconds = time.monotonic() - started
            if not arrival.failure:
                status.heard, status.asked = time.time(), 0.0
                status.downlink_bytes += len(body)  # it arrived
            try:
                accepted[client] = admit(client, self._body(arrival, client))
            except MessageError as error:
                reasons[client] = f"site '{arrival.site}': {error}"
                status.state = (
                    "refused" if isinstance(error, _Refused) else "away" if isinstance(error, _Absent) else "rejected"
                )
                status.detail = str(error)
                status.rejected += int(status.state == "rejected")
                self._log_trouble(client, str(error))
                if not isinstance(error, _NotYet):
                    final[client] = error
                    del reasons[client]
                continue
            del reasons[client]
            status.state, status.detail, status.answers = "answered", "", status.answers + 1
            if self._logged.pop(client, None):
                self.journal.event("back", site=arrival.site)
            status.uplink_bytes += len(arrival.payload) - len(frames[arrival.site]) + len(body)
            status.envelope_bytes += arrival.envelope_bytes + 2 * (len(frames[arrival.site]) - len(body))
        for client, reason in reasons.items():
            if self.journal.statuses[client].state == "asked":
                self.journal.statuses[client].state, self.journal.statuses[client].detail = "away", reason
        return reasons

    def _body(self, arrival: Arrival, client: int) -> bytes:
        """The answer within what came back, checked to be the one that was asked for."""
        if arrival.failure:
            raise _Absent(arrival.failure)
        try:
            packet = Packet.decode(arrival.payload, self.policy.largest_bytes)
        except VersionError:
            raise
        except MessageError as error:  # damaged on the way, or not a site's words at all
            raise _NotYet(str(error)) from None
        state = self.state
        expected = (state.run, state.epoch, state.exchange, client)
        actual = (packet.run, packet.epoch, packet.exchange, packet.site)
        if packet.kind == REFUSAL and actual in (expected, UNREADABLE):
            raise _Refused(f"refuses: {_sentence(packet.body)}")
        if packet.kind == UNABLE and actual in (expected, UNREADABLE):
            raise _Absent(f"cannot answer now: {_sentence(packet.body)}")
        if packet.kind == OVERFLOW and actual == expected:
            raise NonFiniteError(_sentence(packet.body))
        if packet.kind != ANSWER or actual != expected:
            raise _NotYet(
                f"the {KINDS[packet.kind]} of epoch {packet.epoch}, exchange {packet.exchange}, site {packet.site} came "
                f"where that of epoch {state.epoch}, exchange {state.exchange}, site {client} was expected: a replay?"
            )
        return packet.body

    def _log_trouble(self, client: int, reason: str) -> None:
        """A line for a new trouble of a site, and one a minute for as long as it stays; none was there to lose at first."""
        status = self.journal.statuses[client]
        event = status.state if status.heard else "waiting"
        last, when = self._logged.get(client, ("", 0.0))
        if last != f"{event}: {reason}" or time.monotonic() - when > REPEATED_SECONDS:
            self._logged[client] = (f"{event}: {reason}", time.monotonic())
            self.journal.event(event, site=status.name, reason=reason)

    def _compared(self, accepted: dict[int, Any]) -> dict[int, MessageError]:
        """Take out replies that cannot be true beside the others; report those that are merely strange."""
        reasons = {}
        for client, misfit in misfits(accepted).items():
            del accepted[client]
            reasons[client] = self._reject(client, misfit)
        for oddity in compare_replies(accepted):
            if not oddity.impossible:
                self.journal.event("suspicious", site=self.sites[oddity.client], reason=str(oddity))
            elif accepted.pop(oddity.client, None) is not None:
                reasons[oddity.client] = self._reject(oddity.client, str(oddity))
        return reasons

    def _reject(self, client: int, why: str) -> MessageError:
        """Note that an answer was taken out again, and why."""
        status = self.journal.statuses[client]
        status.state, status.detail, status.rejected = "rejected", why, status.rejected + 1
        self.journal.event("rejected", site=status.name, reason=why)
        return MessageError(why)


class _NotYet(MessageError):
    """No answer, or one to an earlier question: asked again, the site may give it."""


class _Absent(_NotYet):
    """No answer at all, for a reason that passes: the site is away."""


class _Refused(MessageError):
    """What a site says in place of an answer."""


def _sentence(body: bytes) -> str:
    """What a site says in place of an answer."""
    return fit_to_show(body[:LONGEST_SENTENCE].decode(errors="replace"))
