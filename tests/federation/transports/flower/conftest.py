"""The clock of a coordinator over Flower."""

import pytest
from tests.federation.transports.clock import Clock

pytest.importorskip("flwr", reason="the Flower engine needs flwr: pip install 'fedns[flower]'")

from fedns.federation.transports.flower import server


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server, "time", clock)
    return clock
