"""A clock that can be set forward, so that nobody has to be quick and nobody has to wait."""

import time

import pytest

pytest.importorskip("flwr", reason="the Flower engine needs flwr: pip install 'fedns[flower]'")

from fedns.transports.flower import server


class Clock:
    """The coordinator's: an exchange is over when a test says so, however busy the machine is."""

    ahead_seconds = 0.0
    time, sleep = staticmethod(time.time), staticmethod(time.sleep)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_seconds

    def skip(self, seconds: float) -> None:
        self.ahead_seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server, "time", clock)
    return clock
