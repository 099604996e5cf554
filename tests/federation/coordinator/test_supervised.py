"""An engine that ends: started again within a bound, or the run ends and says so."""

from contextlib import contextmanager

import pytest

from fedns.federation.coordinator import supervised
from fedns.federation.coordinator.supervised import MOST_RESTARTS, Supervised
from fedns.federation.processes import EngineError, EngineLost
from fedns.federation.protocol.transport import Arrival, Transport


class Mortal(Transport):
    """Answers for the first site and ends before the second, as often as `deaths` says."""

    def __init__(self, log):
        self.log = log

    def connected(self):
        return ["north", "south"]

    def exchange(self, requests, timeout_seconds):
        sites = iter(requests)
        yield Arrival(next(sites), b"answer")
        if self.log["deaths"] > 0:
            self.log["deaths"] -= 1
            raise EngineLost("the engine ended with status 9, its last words: ouch")
        yield from (Arrival(site, b"answer") for site in sites)

    def close(self):
        """Counted by whoever opened it."""


@contextmanager
def opened(log):
    if log.pop("cannot start", False):
        raise EngineError("port 9092 is taken")
    log["opened"] += 1
    try:
        yield Mortal(log)
    finally:
        log["closed"] += 1


def federation(**changes):
    log = {"opened": 0, "closed": 0, "deaths": 0} | changes
    return log, Supervised(lambda: opened(log))


def ask(transport):
    return {arrival.site: arrival for arrival in transport.exchange({"north": b"?", "south": b"?"}, 1.0)}


def test_an_engine_that_ends_is_started_again_and_nobody_is_heard_twice():
    log, transport = federation(deaths=1)
    first = ask(transport)
    assert first["north"].payload == b"answer" and first["south"].failure.endswith("ouch: it was started again")
    assert {site: arrival.failure for site, arrival in ask(transport).items()} == {"north": "", "south": ""}
    assert (log["opened"], log["closed"]) == (2, 1)
    transport.close()
    assert log["closed"] == 2


def test_one_that_ends_again_and_again_ends_the_run(monkeypatch):
    log, transport = federation(deaths=100)
    for _ in range(MOST_RESTARTS):
        ask(transport)
    with pytest.raises(EngineLost, match=r"last words: ouch: the 4th time in 10 minutes"):
        ask(transport)
    assert log["opened"] == log["closed"] == MOST_RESTARTS + 1
    log, transport = federation(deaths=100)
    monkeypatch.setattr(supervised, "WINDOW_SECONDS", 0.0)  # ends that lie far enough apart are forgiven
    for _ in range(2 * MOST_RESTARTS):
        ask(transport)


def test_one_that_cannot_be_started_again_ends_the_run():
    log, transport = federation(deaths=1)
    log["cannot start"] = True
    with pytest.raises(EngineLost, match=r"ouch, and could not be started again: port 9092 is taken"):
        ask(transport)
