"""The paper's claims: how they are decided, and the ones that must hold on the data at hand."""

import json
import math
import re
from html import escape

import pytest

from fedns.cli import app as cli
from fedns.core.history import Record
from fedns.core.termination import Ending
from fedns.lab.comparison.compare import compare
from fedns.lab.comparison.results import TrialRun
from fedns.lab.comparison.sweep import read_sweep
from fedns.lab.data.catalogue import available
from fedns.lab.paper import figure1, plan, report
from fedns.lab.paper.cases import CaseRuns, MethodRuns
from fedns.lab.paper.command import reproduce
from fedns.lab.paper.part import Check, ClaimVerdict, claim, gathered, in_order
from fedns.lab.paper.rates import rate
from fedns.runs.compare import Compare


def run_of(gaps, method="m", trial=0, ending=Ending.GAP):
    records = [Record(t, t, 0.0, 1000 * t, 0, gap, gap, gap) for t, gap in enumerate(gaps)]
    return TrialRun(method, trial, records, ending, ending.sentence, [])


def measured(gaps, **named):
    return MethodRuns("m", 10, [run_of(gaps, **named)])


def test_rates_of_known_sequences():
    newton, linear = [1e-1], [1.0]
    while newton[-1] > 1e-14:
        newton.append(newton[-1] ** 2)
    while linear[-1] > 1e-13:
        linear.append(0.3 * linear[-1])
    assert rate(measured(newton)).kind == "quadratic"
    fitted = rate(measured(linear))
    assert fitted.kind == "linear"
    assert fitted.factor == pytest.approx(0.3)
    assert fitted.order == pytest.approx(1.0)
    super_linear = [1.0, 1e-1, 1e-2, 1e-4, 10**-6.8, 10**-11]
    assert rate(measured(super_linear)).kind == "super-linear"


def test_a_run_that_stops_falling_is_a_plateau_and_one_that_rises_diverges():
    flat = [1.0, 1e-2, 1e-3] + [1e-4] * 20
    assert rate(measured(flat, ending=Ending.PLATEAU)).kind == "plateau"
    assert rate(measured([1.0, 10.0, 1e9], ending=Ending.DIVERGED)).kind == "diverges"
    assert math.isnan(rate(measured([1.0, 1e-14])).order)


def test_rounds_and_bytes_count_only_where_every_trial_got_there():
    found = MethodRuns("m", 10, [run_of([1.0, 1e-3, 1e-11]), run_of([1.0, 1e-3], trial=1)])
    assert found.rounds_to(1e-2) == 1
    assert found.bytes_to(1e-2) == 100
    assert found.rounds_to(1e-10) is None


def test_a_claim_is_judged_by_where_it_holds():
    judge = claim("c", "s", "e")(lambda *checks: checks)
    assert judge(Check("a", True), Check("b", True)).outcome == "holds"
    assert judge(Check("a", False)).outcome == "does not hold"
    assert judge(Check("a", True), Check("a", False)).outcome == "does not hold"
    some = judge(Check("x on a", True), Check("x on b", True), Check("y on a", False))
    assert (some.outcome, some.condition) == ("holds if", "one looks at x on a and b; not at y on a")
    assert judge(Check("", True, "only words")) is None
    assert gathered(["a", "b"]) == "a, b"


def test_verdicts_are_sorted_by_place():
    claims = ["Theorem 1", "Table 1, FedNS", "Table 1, FedAvg", "Fig. 2, claim 1", "Fig. 1, claim 3", "Fig. 1, claim 1"]
    verdicts = [ClaimVerdict(claim, "", "holds", "", "") for claim in claims]
    assert [verdict.claim for verdict in in_order(verdicts)] == [
        "Fig. 1, claim 1", "Fig. 1, claim 3", "Fig. 2, claim 1", "Table 1, FedNS", "Table 1, FedAvg", "Theorem 1",
    ]  # fmt: skip


def invented(rounds):
    """A case in which each method gains as many digits in every round and is done after so many rounds."""
    methods = {}
    for name, count in rounds.items():
        gaps = [10 ** (-10.01 * t / count) for t in range(count + 1)]
        methods[name] = MethodRuns(name, 10, [run_of(gaps, name)])
    return CaseRuns("digits none", Compare("digits", sketch_size=2), 10, methods)


def test_outcomes_follow_the_measurements():
    usual = {"fednewton": 4, "fedns": 6, "fedndes": 5, "fednl": 12, "newtonzero": 20, "fednew": 30, "fedavg": 60}
    assert figure1.speed_verdict([invented(usual)]).outcome == "holds"
    assert figure1.speed_verdict([invented(usual | {"fednl": 7})]).outcome == "holds if"
    assert figure1.newton_verdict([invented(usual)]).outcome == "holds"
    assert figure1.newton_verdict([invented(usual | {"fedns": 9, "fedndes": 9})]).outcome == "does not hold"
    assert figure1.faster_verdict([invented(usual)]).outcome == "holds"
    assert figure1.faster_verdict([invented(usual | {"fedndes": 6})]).outcome == "does not hold"
    assert figure1.superlinear_verdict([invented(usual)]).outcome == "does not hold"
    assert figure1.bytes_verdict([invented(usual)]).outcome == "holds"  # the same bytes a round here


def test_every_configuration_can_be_read_in_both_sizes():
    for name in (*plan.CONFIGS, "table2"):
        whole = read_sweep(plan.config(f"{name}.toml"), {})
        quick = read_sweep(plan.config(f"{name}.toml"), {}, quick=True)
        assert [case.label for case in quick.cases] == [case.label for case in whole.cases]
        for small, large in zip(quick.cases, whole.cases, strict=True):
            assert small.spec.trials * small.spec.rounds <= large.spec.trials * large.spec.rounds


def test_missing_data_are_left_out_with_the_way_to_get_them(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDNS_DATA", raising=False)
    monkeypatch.setenv("FEDNS_CACHE", str(tmp_path / "cache"))
    found = plan.make_plan(tmp_path, quick=True)
    assert any("fedns data fetch phishing" in sentence for sentence in found.left_out)
    assert any("susy_11k.npz" in sentence for sentence in found.left_out)
    assert [case.spec.dataset for case in found.sweeps["figure1"].cases] == ["synthetic:susy"]


SMALL = """
dataset = "digits"
scale = ["none"]
clients = 8
sketch_size = 8
rounds = 12
trials = 2
tol = 1e-12
"""


def test_from_runs_to_a_report_and_nothing_twice(tmp_path, monkeypatch):
    three = '["fednewton", "fedns", "fedndes", "newtonzero", "fedavg"]'
    sketched = '["fednewton", "fedns:sketch=srht|sjlt;sketch_size=2|8", "fedndes:sketch=srht|sjlt;sketch_size=2|8"]'
    for name in plan.CONFIGS:
        (tmp_path / f"{name}.toml").write_text(f"methods = {sketched if name == 'figure2' else three}\n{SMALL}")
    monkeypatch.setattr(plan, "config", lambda name: tmp_path / name)
    monkeypatch.setattr(plan.theorems, "tasks", lambda folder, quick: [])
    monkeypatch.setattr(plan.accuracy, "SETTINGS", ())
    monkeypatch.setattr(plan.dimensions, "available", lambda: [info for info in available() if info.name == "digits"])
    whole = report.draw
    monkeypatch.setattr(report, "draw", lambda charts, *rest: whole(charts[:1], *rest))  # the others would only take time
    folder = tmp_path / "out"
    found = reproduce(folder, quick=True, processes=1)
    assert found.report == folder / "report.html"
    text = found.report.read_text()
    assert all(escape(verdict.claim) in text for verdict in found.verdicts)
    first = text[: text.index("<h2>")]  # the scoreboard: a line for each claim, with a link that leads somewhere
    links = re.findall(r'<a href="#([^"]+)"', first)
    assert len(set(links)) == len(found.verdicts) and all(text.count(f'id="{link}"') == 1 for link in links)
    for word, outcome in (("hold", "holds"), ("hold in part", "holds if"), ("do not hold", "does not hold")):
        number = sum(verdict.outcome == outcome for verdict in found.verdicts)
        assert f"<b>{number} of {len(found.verdicts)}</b><span>{word}</span>" in first
    assert json.loads((folder / "findings.json").read_text())
    assert (folder / "figures" / "figure1_digits_none_rounds.pdf").is_file()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("rounds.jsonl")}
    again = reproduce(folder, quick=True, processes=1)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("rounds.jsonl")} == before
    assert again.verdicts == found.verdicts


def test_the_command_has_help(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["reproduce", "--help"])
    assert not end.value.code
    assert "--quick" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "clients", "size", "scale"),
    [
        ("phishing", 40, 17, "none"),
        ("cod_rna", 60, 10, "maxabs"),
        ("covtype", 200, 20, "maxabs"),
        ("susy_11k", 1000, 10, "none"),
    ],
)
def test_the_papers_sizes(real_data, tmp_path, name, clients, size, scale):
    """FedNS within two rounds of FedNewton, FedNDES never above FedNS."""
    real_data(name)
    trials = 1 if name == "covtype" else 3
    spec = Compare(
        name, ("fednewton", "fedns", "fedndes"), clients=clients, sketch_size=size, scale=scale, trials=trials, rounds=12,
        out=str(tmp_path),
    )  # fmt: skip
    rounds = {}
    for run in compare(spec).runs:
        reached = run.first_below(1e-10)
        assert reached is not None
        rounds[run.method, run.trial] = reached.round
    for trial in range(trials):
        assert rounds["fedns", trial] <= rounds["fednewton", trial] + 2
        assert rounds["fedndes", trial] <= rounds["fedns", trial]
