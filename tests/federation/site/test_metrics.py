"""What a site tells a monitoring system, read with Prometheus' own parser and compared with the site's ledger."""

import json
import socket
import time
import urllib.request

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.federation.in_process import Federation, run_of

from fedns.core.errors import ConfigError
from fedns.core.shards import Shards
from fedns.federation.protocol.packets import Packet
from fedns.federation.protocol.transport import COORDINATOR, Presence
from fedns.federation.site import metrics
from fedns.federation.site.metrics import Counted, watched

HEAD_BYTES = len(Packet(1, bytes(16), 0, 0, 0).encode())


def read(text):
    return {(sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text) for sample in family.samples}  # fmt: skip


def test_a_sites_numbers_are_those_of_its_ledger_and_of_the_wire(tmp_path):
    rng = np.random.default_rng(0)
    shards = Shards.from_arrays(rng.standard_normal((60, 3)), rng.choice([-1.0, 1.0], 60), [20, 20, 20])
    federation, lengths = Federation(shards, tmp_path, run_of("fedns")), []
    counted = Counted("site-1", federation.transport.services["site-1"])
    federation.transport.services["site-1"] = counted
    federation.transport.after = lambda site, answer: (site == "site-1" and lengths.append(len(answer))) or answer
    federation.start()
    refusal = counted(b"not a packet")
    lines = [json.loads(line) for line in (tmp_path / "site-1" / "ledger.jsonl").read_text().splitlines()]
    asked = [line["bytes"] + HEAD_BYTES for line in lines if line["direction"] == "downlink"]
    found = {name: value for (name, site), value in read(counted.text()).items() if site == "site-1"}
    assert found["fedns_requests_answered_total"] == len(asked) > 5 and found["fedns_requests_refused_total"] == 1
    assert found["fedns_request_bytes_total"] == sum(asked) + len(b"not a packet")
    assert found["fedns_answer_bytes_total"] == sum(lengths) + len(refusal)


def test_waiting_is_told_from_working():
    counted = Counted("north", lambda request: (time.sleep(0.05), seen.append(counted.waiting_seconds)) and b"???")
    seen = []
    time.sleep(0.02)
    assert counted.waiting_seconds >= 0.02 and counted.round_trip_seconds == 0.0
    counted(b"?")
    time.sleep(0.03)
    counted(b"?")
    assert seen == [0.0, 0.0] and counted.answer_seconds >= 0.05 and counted.round_trip_seconds >= 0.03
    assert counted.waiting_seconds < counted.answer_seconds + 60.0


def test_a_failure_is_counted_as_neither_and_ends_the_work():
    def fail(request):
        raise OSError("full")

    counted = Counted("north", fail)
    with pytest.raises(OSError, match="full"):
        counted(b"?")
    time.sleep(0.01)
    assert counted.waiting_seconds > 0.0 and counted.requests_answered == counted.requests_refused == 0


def test_the_coordinator_is_there_or_was(monkeypatch):
    monkeypatch.setattr(COORDINATOR, "connected", False)
    monkeypatch.setattr(COORDINATOR, "heard", 0.0)
    counted = Counted("north", bytes)
    assert read(counted.text())["fedns_connected", "north"] == 0.0
    COORDINATOR.note(True)
    assert read(counted.text())["fedns_connected", "north"] == 1.0
    COORDINATOR.note(False)
    found = read(counted.text())
    assert found["fedns_connected", "north"] == 0.0 and abs(found["fedns_heard", "north"] - time.time()) < 60.0


def test_they_are_served_where_a_port_is_named_and_a_taken_one_is_said_to_be():
    assert watched("north", bytes, None) is bytes
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    service = watched("north", lambda request: b"???", port)
    service(b"?")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert read(answer.read().decode())["fedns_requests_refused_total", "north"] == 1.0
    with pytest.raises(ConfigError, match=f"metrics cannot be served on port {port}"):
        watched("north", bytes, port)


def test_the_coordinator_was_last_heard_when_it_was_there(monkeypatch):
    now = [123.0]
    monkeypatch.setattr(metrics.time, "time", lambda: now[0])
    presence, seen = Presence(), []
    for moment, connected in ((123.0, False), (124.0, True), (125.0, False), (126.0, True)):
        now[0] = moment
        presence.note(connected)
        seen.append((presence.connected, presence.heard))
    assert seen == [(False, 0.0), (True, 124.0), (False, 124.0), (True, 126.0)]
