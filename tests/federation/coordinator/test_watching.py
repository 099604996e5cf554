"""What a coordinator shows and serves while it runs."""

import io
import time
import urllib.error
import urllib.request

import pytest
from rich.console import Console

from fedns.core.history import History, Record
from fedns.core.termination import Ending
from fedns.federation.coordinator import link
from fedns.federation.coordinator.watching import Metrics, SiteStatus, serve_metrics
from fedns.reports.view import LineView, LiveView, view_on

STATUSES = [
    SiteStatus("north", "answered", answers=4, uplink_bytes=1200, downlink_bytes=300, heard=time.time()),
    SiteStatus("south", "away", "no answer within 4 s", rejected=1),
]
RECORD = Record(3, 7, 1.5, 2400, 600, 0.25, None, 1e-4)
HISTORY = History("fedns", [RECORD], None, Ending.OUT_OF_ROUNDS, "used all 3 rounds")


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode()


def test_metrics_are_served_in_the_text_format_of_prometheus():
    with serve_metrics(0) as metrics:
        metrics.on_start(STATUSES)
        metrics.on_round(RECORD, None)
        lines = get(metrics.port, "/metrics").splitlines()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(metrics.port, "/elsewhere")
    assert "fedns_round 3" in lines and "fedns_uplink_bytes_total 2400" in lines and "fedns_objective 0.25" in lines
    assert 'fedns_site_up{site="north"} 1' in lines and 'fedns_site_up{site="south"} 0' in lines
    assert 'fedns_site_rejected_total{site="south"} 1' in lines
    for line in lines:
        assert line.startswith("# ") or len(line.rsplit(" ", 1)) == 2
        if not line.startswith("# "):
            float(line.rsplit(" ", 1)[1])


def test_lines_name_the_sites_that_are_in_trouble():
    text = io.StringIO()
    view = LineView(Console(file=text, width=200))
    view.on_start(STATUSES)
    view.on_round(RECORD, None)
    view.on_end(HISTORY)
    first, second, last = text.getvalue().splitlines()
    assert first == "waiting for 2 sites: north, south"
    assert second.startswith("round 3") and "south away: no answer within 4 s" in second and "north" not in second
    assert last == "used all 3 rounds"


def test_without_a_terminal_waiting_is_told_of_and_ever_more_rarely(monkeypatch):
    text, now = io.StringIO(), [1000.0]
    monkeypatch.setattr(link.time, "time", lambda: now[0])
    view = LineView(Console(file=text, width=200))
    site = SiteStatus("south", "asked", heard=998.0, asked=1000.0)
    view.on_start([SiteStatus("north", "answered", heard=1000.0), site])
    for second in range(601):
        now[0] = 1000.0 + second
        view.look()
    lines = text.getvalue().splitlines()[1:]
    assert lines[0] == "waiting for 5 s: south (last heard 7 s ago)"
    assert [int(line.split()[2]) for line in lines] == [5, 10, 20, 40, 80, *range(140, 601, 60)]
    site.asked = 0.0
    view.look()
    site.asked = now[0] - 6.0
    view.look()
    assert "waiting for 6 s" in text.getvalue().splitlines()[-1]


def test_a_site_that_is_cut_off_is_not_up():
    asked = SiteStatus("south", "asked", heard=time.time() - 30.0, asked=time.time() - 1.0)
    assert asked.up
    asked.asked -= 10.0
    assert not asked.up and not SiteStatus("new", "asked", asked=time.time()).up
    metrics = Metrics()
    metrics.on_start([asked])
    lines = dict(line.rsplit(" ", 1) for line in metrics.text().splitlines() if not line.startswith("#"))
    assert (
        lines['fedns_site_up{site="south"}'] == "0" and 11 <= float(lines['fedns_site_waiting_seconds{site="south"}']) < 60
    )
    assert float(lines['fedns_site_heard{site="south"}']) == pytest.approx(asked.heard, abs=0.01)


def test_a_terminal_gets_a_table_of_the_sites():
    text = io.StringIO()
    view = LiveView()
    view.on_start(STATUSES)
    view.on_round(RECORD, None)
    Console(file=text, width=160).print(view)
    assert all(
        word in text.getvalue() for word in ("north", "answered", "1.2 kB", "south", "no answer within 4 s", "round 3")
    )


def test_the_view_suits_the_console():
    with view_on(Console(file=io.StringIO()), quiet=True) as watchers:
        assert watchers == []
    with view_on(Console(file=io.StringIO()), quiet=False) as watchers:
        assert isinstance(watchers[0], LineView)
    with view_on(Console(file=io.StringIO(), force_terminal=True), quiet=False) as watchers:
        assert isinstance(watchers[0], LiveView)
