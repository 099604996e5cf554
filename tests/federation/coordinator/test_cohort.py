"""The networked engine against the simulator, with sites that answer real packets in this process."""

import json

import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of

import fedns
from fedns.core.messages.encoding import handler_named_in
from fedns.federation.coordinator import cohort as networked
from fedns.federation.coordinator import link
from fedns.federation.protocol.packets import OPEN, Packet
from fedns.methods import METHODS
from fedns.runs.builder import algorithm_of, problem_of
from fedns.runs.over_sites import Policy

FEDERATED = [name for name in METHODS if not METHODS[name].pooled]
SHARDS = make_shards(sizes=(90, 60, 150))


def simulated(description, **settings):
    return fedns.simulate(
        algorithm_of(description), problem_of(description), SHARDS, rounds=description.rounds, seed=description.seed,
        wire=description.wire, **settings,
    )  # fmt: skip


def measured(history):
    rows = [(r.round, r.exchanges, r.uplink_bytes, r.downlink_bytes, r.objective, r.gradient_norm) for r in history.records]
    return rows, [r.diagnostics for r in history.records], history.ledger


@pytest.mark.parametrize("wire", ["float64", "float32"])
@pytest.mark.parametrize("method", FEDERATED)
def test_every_method_gives_the_simulators_bits_and_bytes(method, wire, tmp_path):
    description = run_of(method, wire=wire)
    there = Federation(SHARDS, tmp_path, description).start()
    here = simulated(description)
    assert there.coefficients.tobytes() == here.coefficients.tobytes()
    assert measured(there) == measured(here)


def test_watching_is_metered_apart_and_nothing_that_travelled_is_left_out(tmp_path):
    """Against the sites' own ledgers, which know nothing of the coordinator's meter."""
    there = Federation(SHARDS, tmp_path, run_of("fedndes"))
    history = there.start()
    travelled = {"evaluate_locally": 0, "the method": 0}
    for site in there.spec.sites:
        for line in map(json.loads, (tmp_path / site / "ledger.jsonl").read_text().splitlines()):
            if line["kind"] != "Opening":
                travelled["evaluate_locally" if line["purpose"] == "evaluate_locally" else "the method"] += line["bytes"]
    assert history.evaluation_bytes[-1] == travelled["evaluate_locally"] > 0
    assert history.uplink_bytes[-1] + history.downlink_bytes[-1] == travelled["the method"]
    assert len(set(history.evaluation_bytes.tolist())) == len(history.records)  # more after every round
    assert not simulated(there.spec).evaluation_bytes.any()


class Scales:
    """Weighs the messages of every exchange on their way, both ways, knowing nothing of meters."""

    def __init__(self, federation):
        self.federation, self.usual = federation, federation.transport.exchange
        self.exchanges = []  # (of the objective or of the opening, else "", bytes to sites that were there, to others, back)
        self.lost = []  # those that ended a try at a round
        self.by_site = {name: [0, 0] for name in federation.spec.sites}
        federation.transport.exchange, federation.log_event = self.exchange, self.noted

    def exchange(self, requests, timeout_seconds):
        packets = {site: Packet.decode(frame) for site, frame in requests.items()}
        what = {"open" if p.kind == OPEN else handler_named_in(p.body) for p in packets.values()}
        to, vain, back = 0, 0, 0
        for arrival in self.usual(requests, timeout_seconds):
            length = len(packets[arrival.site].body)
            answer = 0 if arrival.failure else len(Packet.decode(arrival.payload).body)
            to, vain, back = to + length * (not arrival.failure), vain + length * bool(arrival.failure), back + answer
            self.by_site[arrival.site][0] += length * (not arrival.failure)
            self.by_site[arrival.site][1] += answer
            yield arrival
        (name,) = what
        self.exchanges.append((name if name in ("open", "evaluate_locally") else "", to, vain, back))

    def noted(self, event, **facts):
        self.federation.events.append({"event": event, **facts})
        if event == "round_lost":
            self.lost.append(len(self.exchanges) - 1)

    def total(self, *parts, watching=False):
        kind = "evaluate_locally" if watching else ""
        return sum(one[part] for one in self.exchanges if one[0] == kind for part in parts)


@pytest.mark.parametrize("absent", ["renormalise", "reuse"])
@pytest.mark.parametrize("method", ["fedns", "fednl", "giant"])
def test_bytes_are_those_that_travelled_also_while_a_site_is_away(method, absent, tmp_path, monkeypatch):
    """A request to a site that does not answer was sent; what others said to a try that was given up is in no round."""
    for module in (networked, link):
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    there = Federation(SHARDS, tmp_path, run_of(method, rounds=4), Policy(patience_seconds=0.0, absent=absent))
    scales = Scales(there)

    def before(site, exchange):
        away = hasattr(there, "cohort") and there.cohort.session.round in (2, 3)
        return "gone" if site == "site-1" and away else ""

    there.transport.before = before
    history = there.start()
    assert [record.diagnostics.get("sites_present") for record in history.records] == [None, None, 2.0, 2.0, None]
    assert history.evaluation_bytes[-1] == scales.total(1, 3, watching=True) > 0
    assert scales.total(2, watching=True) == 0  # who was away in the round is not asked for the objective
    assert history.downlink_bytes[-1] == scales.total(1, 2) and scales.total(2) > 0
    assert history.uplink_bytes[-1] == scales.total(3) - sum(scales.exchanges[number][3] for number in scales.lost)
    assert bool(scales.lost) == (absent == "renormalise" or method == "fednl")
    counted = {s.name: [s.downlink_bytes, s.uplink_bytes] for s in there.cohort.link.journal.statuses}
    assert counted == scales.by_site
