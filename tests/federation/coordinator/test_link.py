"""What the coordinator's end of every exchange keeps of each site, and how long it asks on."""

from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Events, Federation, run_of

from fedns.core.errors import MessageError
from fedns.federation.coordinator import cohort, link
from fedns.federation.coordinator.link import LONGEST_SENTENCE, Link
from fedns.federation.coordinator.state import RunState
from fedns.federation.protocol.absence import FederationError, SiteRefuses
from fedns.federation.protocol.packets import ANSWER, ASK, KINDS, OPEN, OVERFLOW, REFUSAL, UNABLE, Packet, kind_of
from fedns.federation.protocol.transport import Arrival, failed_with, not_connected, too_late
from fedns.methods.searches import LossesAlong
from fedns.runs.over_sites import LARGEST_BYTES, Policy

SHARDS = make_shards(sizes=(90, 60, 150))
HEAD = len(Packet(ASK, bytes(16), 0, 0, 0).encode())
PATIENT = Policy(patience_seconds=600.0)


class Clock:
    """A clock that only pauses move."""

    def __init__(self, monkeypatch):
        self.now, self.pauses = 1000.0, 0
        for module in (link, cohort):
            monkeypatch.setattr(module, "time", self)

    def monotonic(self):
        return self.now

    def time(self):
        return 1e9 + self.now

    def sleep(self, seconds):
        self.pauses += 1
        assert self.pauses < 10_000
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def federation(folder, policy=PATIENT, method="fednewton", **changes):
    return Federation(SHARDS, folder, run_of(method, rounds=2, **changes), policy)


def link_of(there):
    """The link alone, of a run that begins."""
    return Link(
        there.transport,
        RunState.open(there.spec, there.folder, resume=False),
        Events(there.spec.sites, there.log_event),
    )


def troubles(there, site="site-1"):
    return [(e["event"], e["reason"]) for e in there.events if e.get("site") == site and "reason" in e]


def test_what_each_site_did_is_counted(tmp_path, clock):
    there = federation(tmp_path)
    usual, bodies = there.transport.exchange, {name: [0, 0, 0] for name in there.spec.sites}

    def exchange(requests, timeout_seconds):
        assert timeout_seconds == there.spec.policy.timeout_seconds
        for number, arrival in enumerate(usual(requests, timeout_seconds)):
            clock.now += 1.0  # each takes a second more than the one before
            down, up, count = bodies[arrival.site]
            size = len(requests[arrival.site]) - HEAD, len(arrival.payload) - HEAD
            bodies[arrival.site] = [down + size[0], up + size[1], count + 1]
            yield replace(arrival, envelope_bytes=10 + number)

    there.transport.exchange = exchange
    there.start()
    for number, status in enumerate(reversed(there.cohort.link.journal.statuses)):  # which is how they answer
        down, up, count = bodies[status.name]
        assert (status.downlink_bytes, status.uplink_bytes, status.answers) == (down, up, count)
        assert status.envelope_bytes == count * (10 + number + 2 * HEAD)
        assert (status.state, status.detail, status.rejected, status.asked) == ("answered", "", 0, 0.0)
        assert status.seconds == number + 1.0 and status.heard == 1e9 + clock.now - 2.0 + number
        assert status.waiting_seconds == 0.0


def test_a_site_that_is_asked_again_and_again_has_been_asked_since_the_first_time(tmp_path, clock):
    there = federation(tmp_path)
    opened, seen = link_of(there), []

    def before(site, exchange):
        status = opened.journal.statuses[1]
        if site == "site-1":
            seen.append((status.state, status.asked, status.heard))
        return too_late(4.0) if site == "site-1" and len(seen) < 4 else ""

    there.transport.before = before
    opened.open()
    assert seen == [("asked", 1e9 + 1000.0, 0.0)] * 4 and clock.pauses == 3
    status = opened.journal.statuses[1]
    assert (status.state, status.asked, status.heard) == ("answered", 0.0, 1e9 + clock.now)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 30.0])
def test_patience_is_kept_for_so_long_and_no_longer(seconds, tmp_path, clock):
    there = federation(tmp_path, Policy(patience_seconds=seconds))
    there.transport.before = lambda site, exchange: not_connected() if site == "site-1" else ""
    with pytest.raises(FederationError, match=r"the run cannot start: site 'site-1': it is not connected$"):
        there.start()
    assert seconds < clock.now - 1000.0 <= seconds + 2 * link.PAUSE_SECONDS


def test_who_has_answered_is_not_asked_again(tmp_path, clock):
    there = federation(tmp_path)
    asked = []
    there.transport.before = lambda site, exchange: asked.append(site) or (too_late(1.0) if len(asked) < 6 else "")
    there.start()
    assert asked[:3] == ["site-2", "site-1", "site-0"] == asked[3:6] and asked[6:9] != asked[:3]
    asked.clear()
    there = federation(tmp_path / "b")
    there.transport.before = lambda site, exchange: (
        asked.append((site, exchange)) or (too_late(1.0) if site == "site-1" and exchange < 4 else "")
    )
    there.start()
    assert [site for site, _ in asked[:6]] == ["site-2", "site-1", "site-0", "site-1", "site-1", "site-1"]


def test_the_same_trouble_is_a_line_a_minute_and_another_is_one_at_once(tmp_path, clock):
    there = federation(tmp_path, Policy(patience_seconds=600.0))
    rounds = iter(range(10**6))

    def before(site, exchange):
        if site != "site-1" or not hasattr(there, "cohort") or there.cohort.session.round != 1:
            return ""
        number = next(rounds)  # five in a second
        return too_late(1.0) if number < 700 else not_connected() if number < 705 else ""

    there.transport.before = before
    there.start()
    slow, gone = ("away", "no answer within 1 s"), ("away", "it is not connected")
    assert troubles(there) == [slow, slow, slow, gone]  # at 0, 60 and 120 seconds, and when it changes
    assert [e["site"] for e in there.events if e["event"] == "back"] == ["site-1"]


def test_who_was_never_heard_of_is_waited_for(tmp_path, clock):
    there = federation(tmp_path)
    there.transport.before = lambda site, exchange: not_connected() if site == "site-1" and exchange < 3 else ""
    there.start()
    assert troubles(there) == [("waiting", "it is not connected")]


def answering(kind, body=b"", at=2, **changes):
    """From this exchange on site-1 says something else."""

    def after(site, payload):
        packet = Packet.decode(payload)
        if site != "site-1" or packet.exchange < at:
            return payload
        return replace(packet, kind=kind, body=body or packet.body, **changes).encode()

    return after


@pytest.mark.parametrize(
    ("kind", "state", "rejected", "error"),
    [
        (REFUSAL, "refused", 0, SiteRefuses),
        (UNABLE, "away", 0, FederationError),
        (OPEN, "rejected", 2, FederationError),  # it is asked again
        (OVERFLOW, "rejected", 1, SiteRefuses),
    ],
)
def test_what_a_site_says_decides_how_it_is_shown(kind, state, rejected, error, tmp_path, clock):
    there = federation(tmp_path, Policy(patience_seconds=0.0))
    there.transport.after = answering(kind, b"a reason", at=1)
    opened = link_of(there)
    with pytest.raises(error, match="site 'site-1': ") as raised:
        opened.open()
    assert type(raised.value) is error
    status = opened.journal.statuses[1]
    assert (status.state, status.rejected, status.answers) == (state, rejected, 0) and status.heard
    words = {REFUSAL: "refuses: a reason", UNABLE: "cannot answer now: a reason", OVERFLOW: "a reason"}
    assert status.detail == words.get(kind, status.detail) and troubles(there) == [(state, status.detail)]


@pytest.mark.parametrize("change", [{"run": bytes(reversed(range(16)))}, {"epoch": 9}, {"site": 0}, {"exchange": 1}])
def test_an_inability_of_another_question_is_no_answer_to_this_one(change, tmp_path, clock):
    there = federation(tmp_path, Policy(patience_seconds=0.0, absent="renormalise"))
    there.transport.after = answering(UNABLE, b"a reason", at=5, **change)
    there.start()
    assert all("a replay?" in reason for event, reason in troubles(there) if event in ("away", "rejected"))
    assert {event for event, _ in troubles(there)} == {"rejected"}


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [(REFUSAL, SiteRefuses, "refuses: it is cut short"), (UNABLE, FederationError, "cannot answer now: it is cut short")],
)
def test_a_site_may_speak_of_a_request_that_it_could_not_read(kind, error, words, tmp_path, clock):
    """It knows neither run nor exchange then; of another run it may not speak so."""
    there = federation(tmp_path, Policy(patience_seconds=0.0))
    said = Packet(kind, bytes(16), 0, 0, 0, 0, b"it is cut short")
    there.transport.after = lambda site, payload: said.encode() if site == "site-1" else payload
    with pytest.raises(error, match=f"site 'site-1': {words}"):
        there.start()
    for change in ({"run": bytes(15) + b"1"}, {"epoch": 1}, {"exchange": 2}, {"site": 2}):
        other = replace(said, **change)
        there = federation(tmp_path / str(change), Policy(patience_seconds=0.0))
        there.transport.after = lambda site, payload, other=other: other.encode() if site == "site-1" else payload
        with pytest.raises(FederationError, match=r"site 'site-1': the .* came where that of .*: a replay"):
            there.start()


def test_a_sentence_of_a_site_has_a_length(tmp_path, clock):
    there = federation(tmp_path, Policy(patience_seconds=0.0, absent="renormalise"))
    there.transport.after = answering(UNABLE, b"x" * 5000, at=5)
    there.start()
    assert troubles(there)[0] == ("away", f"cannot answer now: {'x' * LONGEST_SENTENCE}")


def test_nobody_waits_for_the_others_once_one_has_refused(tmp_path, clock):
    there = federation(tmp_path)
    there.transport.before = lambda site, exchange: not_connected() if site == "site-2" else ""
    there.transport.after = answering(REFUSAL, b"never", at=1)
    with pytest.raises(SiteRefuses, match=r"^site 'site-1': refuses: never$"):
        there.start()
    assert clock.pauses == 0


def test_a_stranger_and_a_second_word_change_nothing(tmp_path, clock):
    there = federation(tmp_path)
    usual = there.transport.exchange

    def exchange(requests, timeout_seconds):
        for arrival in usual(requests, timeout_seconds):
            yield Arrival("stranger", arrival.payload)
            yield arrival
            yield replace(arrival, payload=b"", failure="gone after all")

    there.transport.exchange = exchange
    there.start()
    assert all(status.state == "answered" for status in there.cohort.link.journal.statuses)
    odd = [e["site"] for e in there.events if e["event"] == "rejected"]
    assert odd.count("stranger") == len(odd) / 2 == 3 * there.transport.exchanges


def test_a_site_of_whom_nothing_came_is_away(tmp_path, clock):
    there = federation(tmp_path, Policy(patience_seconds=0.0))
    usual = there.transport.exchange
    there.transport.exchange = lambda requests, seconds: (a for a in usual(requests, seconds) if a.site != "site-1")
    with pytest.raises(FederationError, match="site 'site-1' did not answer"):
        there.start()


PACKET = Packet(ANSWER, bytes(range(16)), 1, 2, 3, 4, b"body")


@pytest.mark.parametrize("kind", KINDS)
def test_a_packet_is_read_as_it_was_written(kind):
    packet = replace(PACKET, kind=kind)
    assert Packet.decode(packet.encode()) == packet and kind_of(packet.encode()) == kind
    assert packet.reply(ASK, b"other") == replace(packet, kind=ASK, body=b"other")


def test_a_packet_has_a_length_and_a_version():
    data = PACKET.encode()
    assert Packet.decode(data, len(data)) == PACKET
    for given, limit, words in (
        (data, len(data) - 1, f"a packet of {len(data)} bytes is over the limit of {len(data) - 1}"),
        (data[: HEAD - 1], LARGEST_BYTES, f"a packet of {HEAD - 1} bytes is cut short"),
        (data[:-1], LARGEST_BYTES, "a packet of 4 bytes arrived with 3"),
        (data + b"!", LARGEST_BYTES, "a packet of 4 bytes arrived with 5"),
        (b"\xfe" + data[1:], LARGEST_BYTES, "not a fedns packet of version 2: it starts with fe0203"),
        (data[:2] + b"\x07" + data[3:], LARGEST_BYTES, "not a fedns packet of version 2: it starts with fd0207"),
        (data[:2] + b"\x00" + data[3:], LARGEST_BYTES, "not a fedns packet of version 2: it starts with fd0200"),
        (data[:1] + b"\x01" + data[2:], LARGEST_BYTES, "speaks packets of version 1, this one, fedns .*, of version 2"),
    ):
        with pytest.raises(MessageError, match=words):
            Packet.decode(given, limit)
    assert Packet.decode(replace(PACKET, body=b"").encode()).body == b""


def test_failures_have_the_same_words_over_every_engine():
    assert (too_late(60), failed_with("KeyError")) == ("no answer within 60 s", "its service failed with KeyError")
    assert not_connected() == "it is not connected"
    assert not_connected("a visitor has no certificate").startswith(
        "it is not connected, and a visitor has no certificate: "
    )


def test_replies_that_cannot_be_true_beside_the_others_are_taken_out(tmp_path):
    opened = link_of(federation(tmp_path))
    for lie in (np.zeros(5), np.full(13, 1e12)):
        replies = {0: LossesAlong(np.ones(13)), 1: LossesAlong(lie), 2: LossesAlong(np.ones(13))}
        assert list(opened._compared(replies)) == [1] and sorted(replies) == [0, 2]
    assert (opened.journal.statuses[1].state, opened.journal.statuses[1].rejected) == ("rejected", 2)
