"""What a site says when a run is opened."""

import json

import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of

import fedns
from fedns.core.errors import MessageError
from fedns.core.shards import Shards
from fedns.federation.coordinator import link
from fedns.federation.permissions import Permissions
from fedns.federation.protocol import opening
from fedns.federation.protocol.absence import SiteRefuses
from fedns.federation.protocol.packets import ANSWER, OPEN, Packet
from fedns.runs.over_sites import Policy

PATIENT = Policy(patience_seconds=600.0)


def with_a_rare_level() -> Shards:
    """Two sites; at the first, two of 150 rows have a level of the last column that no other row there has."""
    shards = make_shards(sizes=(150, 150))
    features = shards.rows.values.copy()
    features[:150, -1] = 0.0
    features[[3, 70], -1] = 1.0
    return Shards.from_arrays(features, shards.targets, [150, 150])


@pytest.mark.parametrize(("rule", "columns"), [("blank", 1), ("show", 0)])
def test_a_site_that_replaces_rare_levels_says_so(rule, columns, tmp_path):
    permissions = Permissions(rare_levels=rule, job_seed=True)
    federation = Federation(with_a_rare_level(), tmp_path, run_of("fednewton", 2, rounds=1), permissions=permissions)
    federation.start()
    first, second = federation.cohort.link.journal.statuses
    assert (first.blanked_columns, second.blanked_columns) == (columns, 0)
    assert ("not quite the pooled one" in first.note) == bool(columns) and second.note == ""
    assert [event["site"] for event in federation.events if event["event"] == "blanked"] == ["site-0"] * columns


@pytest.mark.parametrize(
    "said", [b"", b"[]", b"{}", b"null", b"[" * 100_000, b'{"blanked_columns": -1}', b'{"blanked_columns": "1"}']
)
def test_what_cannot_be_read_is_refused(said, tmp_path):
    federation = Federation(make_shards(sizes=(150, 150)), tmp_path, run_of("fednewton", 2, rounds=1))
    honest = federation.transport.services["site-1"]

    def forged(frame: bytes) -> bytes:
        packet = Packet.decode(frame)
        return packet.reply(ANSWER, said).encode() if packet.kind == OPEN else honest(frame)

    federation.transport.services["site-1"] = forged
    with pytest.raises(Exception, match="site 'site-1': what it said when the run was opened cannot be read"):
        federation.start()


def relabelled(federation, version):
    """Every site says that it has another version of fedns."""
    honest = dict(federation.transport.services)

    def other(site):
        def answer(frame: bytes) -> bytes:
            reply = Packet.decode(honest[site](frame))
            if Packet.decode(frame).kind != OPEN:
                return reply.encode()
            told = json.loads(reply.body)
            told["runs"]["fedns"] = version
            return reply.reply(ANSWER, json.dumps(told).encode()).encode()

        return answer

    federation.transport.services = {site: other(site) for site in honest}


def test_versions_are_exchanged_recorded_and_refused_at_once(tmp_path, monkeypatch):
    federation = Federation(make_shards(sizes=(150, 150)), tmp_path / "a", run_of("fednewton", 2, rounds=1), PATIENT)
    federation.start()
    assert all(f"fedns {fedns.__version__}, Python 3." in status.runs for status in federation.cohort.link.journal.statuses)
    assert [event["site"] for event in federation.events if event["event"] == "joined"] == ["site-1", "site-0"]
    opened = json.loads((tmp_path / "a" / "site-0" / "ledger.jsonl").read_text().splitlines()[0])
    assert opened["purpose"] == f"opens a run, fedns {fedns.__version__}"
    federation = Federation(make_shards(sizes=(150, 150)), tmp_path / "b", run_of("fednewton", 2, rounds=1), PATIENT)
    relabelled(federation, "9.8.7")
    with pytest.raises(SiteRefuses, match=f"it has fedns 9.8.7, this coordinator {fedns.__version__}: install the same"):
        federation.start()
    monkeypatch.setattr(opening, "__version__", "9.8.7")
    body = opening.opening(run_of("fednewton", 2))
    monkeypatch.undo()
    with pytest.raises(MessageError, match=f"this site has fedns {fedns.__version__}, the coordinator 9.8.7: install"):
        opening.read_opening(body)


def test_packets_of_another_version_end_the_run_at_once(tmp_path):
    federation = Federation(make_shards(sizes=(150, 150)), tmp_path, run_of("fednewton", 2, rounds=1), PATIENT)
    federation.transport.after = lambda site, payload: payload[:1] + b"\x01" + payload[2:]
    with pytest.raises(SiteRefuses, match=r"packets of version 1, this one, fedns .*, of version 2: install the same"):
        federation.start()


def test_sites_that_come_late_are_waited_for_and_no_trouble(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "PAUSE_SECONDS", 0.0)
    federation = Federation(make_shards(sizes=(150, 150)), tmp_path, run_of("fednewton", 2, rounds=1), PATIENT)
    federation.transport.before = lambda site, exchange: "has not connected yet" if exchange < 20 else ""
    federation.start()
    waiting = [event for event in federation.events if event["event"] == "waiting"]
    assert len(waiting) == 2 and "away" not in {event["event"] for event in federation.events}
    openings = len(opening.opening(federation.spec))
    assert (
        openings < federation.cohort.link.journal.statuses[0].downlink_bytes < 10 * openings
    )  # one of them arrived, not twenty
