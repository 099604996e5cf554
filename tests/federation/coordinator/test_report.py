"""The report of a run over sites: every figure in it is one that the run counted, and every sentence the right one."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of

from fedns.core.cohort import Registration
from fedns.core.errors import NonFiniteError
from fedns.core.history import History, Record
from fedns.core.messages.ledger import Meter
from fedns.core.problem import Evaluation
from fedns.core.termination import Ending
from fedns.federation.coordinator import cohort as networked
from fedns.federation.coordinator import link
from fedns.federation.coordinator.session import Result
from fedns.federation.coordinator.watching import SiteStatus
from fedns.federation.protocol.absence import FederationError
from fedns.models.evaluation import EvaluationPoint, evaluate_locally
from fedns.reports.run_page import write_report
from fedns.runs.over_sites import WORDS, Policy

SHARDS = make_shards(sizes=(90, 60, 150))


def records(away=()):
    return [
        Record(
            t, t + 1, 0.25 * t, 1000 + 7 * t, 200 + 3 * t, 0.5 / (t + 1), None, 10.0**-t,
            {"sites_present": 2.0} if t in away else {}, 40 * t, f"<note {t}>" if t == 1 else "",
        )
        for t in range(5)
    ]  # fmt: skip


def report_of(folder, *, away=(), log=(), ledger=(), statuses=(), ending=Ending.GAP, found=None, **changes):
    spec = run_of("fedns", home=folder, out="run", engine="flower", **changes)
    spec.folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("ledger.jsonl", ledger), ("log.jsonl", log)):
        (spec.folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    history = History("fedns", found or records(away), np.array([1.5, -2.0, 0.25]), ending, "it is <done>")
    path = write_report(spec, Result(history, list(statuses)))
    assert path == spec.folder / "report.html"
    return path.read_text(encoding="utf-8")


def table_below(text, heading):
    """The cells of the first table after a heading, as a reader sees them."""
    part = text[text.index(f">{heading}</h2>") :]
    part = part[part.index("<table") : part.index("</table>")]
    rows = re.findall(r"<tr>(.*?)</tr>", part, flags=re.DOTALL)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, flags=re.DOTALL) for row in rows]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in cells]


def test_every_round_with_what_was_sent_received_and_spent_on_watching(tmp_path):
    text = report_of(tmp_path, away=(2, 3))
    rows = table_below(text, "Rounds")[1:]
    assert rows[3] == ["3", "0.125", "1.00e-03", "1.02 kB", "209 B", "120 B", "0.75", "2"]
    assert [row[5] for row in rows] == ["0 B", "40 B", "80 B", "120 B", "160 B"]
    assert [row[7] for row in rows] == ["all", "all", "2", "2", "all"]
    (drawn,) = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', text)[0])["lines"]
    assert drawn["y"] == [1, 0.1, 0.01, 0.001, 0.0001] and drawn["x"]["bytes"] == [1000, 1007, 1014, 1021, 1028]
    assert drawn["x"]["seconds"] == [0, 0.25, 0.5, 0.75, 1] and drawn["x"]["rounds"] == [0, 1, 2, 3, 4]
    assert "<li>round 1: &lt;note 1&gt;</li>" in text and "<note" not in text
    assert "Converged after 4 rounds on flower: it is &lt;done&gt;. All sites together sent 1.03 kB." in text
    assert "Ended after 4 rounds" in report_of(tmp_path, ending=Ending.OUT_OF_ROUNDS)


@pytest.mark.parametrize("absent", ["renormalise", "reuse"])
def test_what_was_optimised_while_sites_were_away(tmp_path, absent):
    policy = Policy(absent=absent)
    assert f"Sites were missing in 2 of 4 rounds (2, 3). By the policy &#x27;{absent}&#x27;, {WORDS[absent]}." in report_of(
        tmp_path, away=(2, 3), policy=policy
    )
    assert f"The objective over all 3 sites: {WORDS['wait']}." in report_of(tmp_path, policy=policy)
    many = [replace(records()[1], round=t, diagnostics={"sites_present": 2.0}) for t in range(1, 14)]
    assert "missing in 13 of 13 rounds (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ...)." in report_of(tmp_path, found=many)
    assert "missing in 12 of 12 rounds (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)." in report_of(tmp_path, found=many[:-1])


def test_every_site_with_its_answers_and_bytes(tmp_path):
    statuses = [
        SiteStatus(
            "north", answers=4, rejected=1, uplink_bytes=1200, downlink_bytes=300, envelope_bytes=77, runs="0.1 & 3.11"
        ),
        SiteStatus("south", answers=3, blanked_columns=2),
    ]
    text = report_of(tmp_path, statuses=statuses)
    assert table_below(text, "Sites")[1:] == [
        ["north", "4", "1", "1.2 kB", "300 B", "77 B", "0", "0.1 & 3.11"],
        ["south", "3", "0", "0 B", "0 B", "0 B", "2", "not told"],
    ]
    assert (
        "site &#x27;south&#x27; replaces rare levels in 2 columns" in text and "site &#x27;north&#x27; replaces" not in text
    )


def test_what_left_each_site_is_added_up_and_what_went_to_it_is_not(tmp_path):
    line = {"direction": "uplink", "site": "b", "purpose": "curvature", "kind": "Sketch", "fields": {"rows": [3], "g": [3]}}
    ledger = [
        line | {"bytes": 100}, line | {"bytes": 50}, line | {"bytes": 7, "site": "a"},
        line | {"bytes": 9, "purpose": "register"}, line | {"bytes": 5000, "direction": "downlink"},
    ]  # fmt: skip
    assert table_below(report_of(tmp_path, ledger=ledger), "What left each site")[1:] == [
        ["a", "curvature", "Sketch", "rows, g", "1", "7 B"],
        ["b", "curvature", "Sketch", "rows, g", "2", "150 B"],
        ["b", "register", "Sketch", "rows, g", "1", "9 B"],
    ]


def test_what_went_wrong_up_to_two_hundred_lines(tmp_path):
    away = {"time": "12:00", "event": "away", "site": "<a>", "reason": "no answer"}
    lost = {"time": "12:01", "event": "round_lost", "reasons": ["a is away", "b is away"]}
    fine = {"time": "12:02", "event": "answered", "site": "a"}
    text = report_of(tmp_path, log=[away, lost, fine])
    assert table_below(text, "What went wrong")[1:] == [
        ["12:00", "away", "<a>", "no answer"],
        ["12:01", "round_lost", "", "a is away; b is away"],
    ]
    assert "<a>" not in text and "more lines are in" not in text
    assert "Nothing: every request was answered" in report_of(tmp_path, log=[fine])
    assert "more lines" not in report_of(tmp_path, log=[away] * 200)
    text = report_of(tmp_path, log=[away] * 203)
    assert "3 more lines are in log.jsonl" in text and len(table_below(text, "What went wrong")) == 201


def test_settings_and_policy_are_all_there(tmp_path):
    text = report_of(tmp_path, policy=Policy(quorum=2, absent="reuse"))
    told = {row[0]: row[1] for row in table_below(text, "Settings") if len(row) == 2}
    assert told["policy: quorum"] == "2" and told["policy: absent"] == "reuse" and told["strength"] == "0.01"
    assert "policy" not in told


class Watched:
    """A federation that has begun, whose sites a test takes away."""

    def __init__(self, folder, monkeypatch, absent="renormalise", **policy):
        policy["absent"] = absent
        for module in (networked, link):
            monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
        self.federation = Federation(SHARDS, folder, run_of("fednewton"), Policy(patience_seconds=0.0, **policy))
        self.federation.start(gradient_tol=1e9)  # the sites have registered, and no round has been made
        self.cohort, self.meter = self.federation.cohort, self.federation.cohort.session.meter
        self.cohort.session.round = 2
        self.gone = set()
        self.federation.transport.before = lambda site, exchange: f"{site} is off" if site in self.gone else ""


def test_the_objective_is_asked_of_those_who_are_there_and_metered_apart(tmp_path, monkeypatch):
    here = Watched(tmp_path, monkeypatch)
    before = here.meter.evaluation_bytes, here.meter.uplink_bytes, here.meter.downlink_bytes, len(here.meter.ledger)
    whole = here.cohort.evaluate(np.zeros(14))
    each = here.meter.evaluation_bytes - before[0]
    here.gone = {"site-1"}
    part = here.cohort.evaluate(np.zeros(14))
    assert whole.objective == pytest.approx(np.log(2)) == part.objective and whole.gradient_norm != part.gradient_norm
    assert here.cohort.state.away == {1} and here.cohort.session.meter is here.meter
    assert here.meter.evaluation_bytes - before[0] > 2 * each - 1  # the try that was given up was sent, too
    assert (here.meter.uplink_bytes, here.meter.downlink_bytes, len(here.meter.ledger)) == before[1:]
    assert here.cohort._evaluating is None


def test_an_objective_that_lacks_a_site_ends_a_run_that_waits_for_all(tmp_path, monkeypatch):
    here = Watched(tmp_path, monkeypatch, absent="wait")
    here.gone = {"site-2"}
    with pytest.raises(FederationError, match=r"the objective after round 2 lacks a site: .*site-2 is off"):
        here.cohort.evaluate(np.zeros(14))
    assert here.cohort.session.meter is here.meter and here.cohort._evaluating is None


def test_without_any_site_there_is_no_objective(tmp_path, monkeypatch):
    here = Watched(tmp_path, monkeypatch)
    here.gone = {"site-0", "site-1", "site-2"}
    with pytest.raises(FederationError, match=r"no site can be asked for the objective: .*site-0 is off.*site-2 is off"):
        here.cohort.evaluate(np.zeros(14))


def test_an_objective_that_is_not_finite_everywhere_ends_the_run_as_diverged(tmp_path, monkeypatch):
    here = Watched(tmp_path, monkeypatch)
    monkeypatch.setattr(networked, "evaluate", lambda *given: (_ for _ in ()).throw(NonFiniteError("huge")))
    assert here.cohort.evaluate(np.zeros(14)) == Evaluation(np.inf, np.inf)
    assert isinstance(here.cohort.session.meter, Meter) and here.cohort.session.meter is here.meter


@pytest.mark.parametrize(("quorum", "present", "goes_on"), [(2, 2, True), (3, 2, False), (2, 1, False), (1, 1, True)])
def test_a_round_goes_on_with_a_quorum_and_not_below_it(tmp_path, monkeypatch, quorum, present, goes_on):
    here = Watched(tmp_path, monkeypatch, quorum=quorum)
    clock = iter(range(10**6))
    monkeypatch.setattr(networked, "time", SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=lambda s: None))
    here.gone = {f"site-{j}" for j in range(present, 3)}
    committed = list(here.cohort.state.committed_rounds)
    ask = lambda part: part.num_clients if [*part.ask(evaluate_locally, EvaluationPoint(np.zeros(14)))] else 0  # noqa: E731
    if goes_on:
        assert here.cohort.with_retries(ask) == present
        assert here.cohort.state.committed_rounds[:present] == [3] * present
        assert here.cohort.state.committed_rounds[present:] == committed[present:]
    else:
        needed = max(quorum, present + 1)
        with pytest.raises(FederationError, match=rf"round 2 has {present} of 3 sites and needs {needed}: .*is off"):
            here.cohort.with_retries(ask)


@pytest.mark.parametrize(
    ("rows", "weight", "ends"), [(150, 150.0, False), (151, 50.0, True), (50, 151.0, True), (50, 50.0, False)]
)
def test_a_site_that_states_more_rows_or_weight_than_was_agreed_on_ends_the_run(tmp_path, monkeypatch, rows, weight, ends):
    here = Watched(tmp_path, monkeypatch, largest_rows=150)
    stated = Registration(np.int64(rows), np.float64(weight), np.int64(13))
    monkeypatch.setattr(here.cohort.link, "ask", lambda *given: (dict.fromkeys(range(3), stated), {}))
    if ends:
        said = f"site 'site-0' states {rows} rows with a weight of {weight:g}, and at most 150 were agreed on"
        with pytest.raises(FederationError, match=said):
            here.cohort.register_clients()
    else:
        here.cohort.register_clients()
        assert here.cohort.total_weights.tolist() == [weight] * 3
