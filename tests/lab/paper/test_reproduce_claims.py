"""Verdicts follow the figures, whatever they are."""

import pytest

from fedns.core.history import Record
from fedns.core.termination import Ending
from fedns.lab.comparison.results import TrialRun
from fedns.lab.paper import accuracy, figure2, heterogeneity, table1, table2
from fedns.lab.paper.cases import CaseRuns, MethodRuns
from fedns.lab.paper.dimensions import Dimension, dimension_of
from fedns.runs.compare import Compare


def measured(name, gaps, clients=10, ending=Ending.GAP):
    records = [Record(t, t, 0.0, 1000 * t, 0, gap, gap, gap) for t, gap in enumerate(gaps)]
    return MethodRuns(name, clients, [TrialRun(name, 0, records, ending, ending.sentence, [])])


def steady(rounds, to=1e-10):
    return [(0.99 * to) ** (t / rounds) for t in range(rounds + 1)]


KNOWN = [Dimension("digits", 1797, 64, "logistic", "none", 20.0)]


def sketched(gaps_by_size):
    methods = {}
    for name in ("fedns", "fedndes"):
        for size, gaps in gaps_by_size[name].items():
            typed = f"{name}:sketch=srht;sketch_size={size}"
            methods[typed] = measured(typed, gaps)
    return CaseRuns("digits 10", Compare("digits", rounds=10), 10, methods)


def test_the_sketch_size():
    stuck = [1.0, *[0.5] * 10]
    good = {"fedns": {2: stuck, 8: steady(8), 16: steady(5)}, "fedndes": {2: steady(9), 8: steady(6), 16: steady(5)}}
    larger, newton, small, smaller = figure2.build([sketched(good)], KNOWN).verdicts
    assert (larger.outcome, newton.outcome, smaller.outcome) == ("holds", "holds", "holds")
    assert small.outcome == "holds if"
    assert "m k > 1.0 d_λ" in small.condition  # 10 clients, 2 rows, a dimension of 20
    bad = {"fedns": {2: steady(5), 8: stuck}, "fedndes": {2: steady(5), 8: stuck}}
    outcomes = [verdict.outcome for verdict in figure2.build([sketched(bad)], KNOWN).verdicts]
    assert outcomes[0] == outcomes[1] == outcomes[3] == "does not hold"


def point(method, size, last, early=0.8):
    return accuracy.Accuracy("digits", method, size, early, last, 64, 360)


def test_accuracy():
    points = [point("pooled optimum", 0, 0.9), *(point(m, k, 0.9) for m in ("fedns", "fedndes") for k in (1, 8, 16))]
    higher, small, monotone, better = accuracy.build(points).verdicts
    assert higher.outcome == monotone.outcome == better.outcome == "does not hold"
    assert small.outcome == "holds"
    points = [point("pooled optimum", 0, 0.9)]
    points += [point("fedns", 1, 0.5), point("fedns", 8, 0.6), point("fedndes", 1, 0.8), point("fedndes", 8, 0.9)]
    higher, small, monotone, better = accuracy.build(points).verdicts
    assert higher.outcome == monotone.outcome == better.outcome == "holds"
    assert small.outcome == "does not hold"


def test_rates_of_the_table():
    newton = [1e-1, 1e-2, 1e-4, 1e-8, 1e-16]
    methods = {
        "fednewton": measured("fednewton", newton),
        "fedns": measured("fedns", steady(8, 1e-13)),
        "fednl:compressor=rank1": measured("fednl:compressor=rank1", steady(12, 1e-13)),
        "fedavg": measured("fedavg", [1.0, *[1e-4] * 30], ending=Ending.PLATEAU),
    }
    found = table1.build([CaseRuns("digits logistic", Compare("digits", loss="logistic"), 10, methods)])
    outcomes = {verdict.claim: verdict.outcome for verdict in found.verdicts}
    assert outcomes == {
        "Table 1, FedAvg": "does not hold",
        "Table 1, FedNL": "holds",
        "Table 1, FedNewton": "holds",
        "Table 1, FedNS, Table 2's k": "does not hold",
    }
    ((_, headings, rows),) = found.tables
    assert {len(row) for row in rows} == {len(headings)}


def test_one_newton_step_solves_least_squares():
    done = measured("fednewton", [1.0, 1e-16])
    assert table1.fast_enough(done, table1.rate(done), "super-linear")


def test_what_a_sketch_costs():
    cases = [CaseRuns("d", Compare("digits", sketch_size=size), 10, {}) for size in (8,)]
    cheaper, dimension = table2.build(cases, KNOWN).verdicts
    assert (cheaper.outcome, dimension.outcome) == ("holds", "holds")
    cases = [CaseRuns("d", Compare("digits", sketch_size=33), 10, {})]
    assert table2.build(cases, KNOWN).verdicts[0].outcome == "does not hold"
    assert dimension_of(KNOWN, "digits", "maxabs") is None


def test_clients_that_differ():
    stuck, printed = [1.0, *[0.3] * 30], "fedndes:line_search=local"
    names = {"fedns": steady(6), "fedndes": steady(6), printed: stuck, "localnewton": stuck, "distributednewton": stuck}
    case = CaseRuns("d sorted", Compare("digits", split="sorted"), 10, {n: measured(n, g) for n, g in names.items()})
    outcomes = [verdict.outcome for verdict in heterogeneity.build([case]).verdicts]
    assert outcomes == ["holds", "holds", "does not hold", "holds"]
    helped = {"fedns": stuck, "fedns:line_search=aggregate": steady(9)}
    other = CaseRuns("e group", Compare("digits", split="group"), 10, {n: measured(n, g) for n, g in helped.items()})
    verdict = heterogeneity.SAFE["fedns"]([case, other])
    assert (verdict.outcome, verdict.condition) == (
        "holds if",
        "a line search is added where few clients have small sketches",
    )


@pytest.mark.parametrize("quick", [True, False])
def test_accuracy_is_only_measured_where_the_data_are(tmp_path, quick, monkeypatch):
    monkeypatch.setattr(accuracy, "names_at_hand", lambda: ["cod_rna"])
    assert accuracy.tasks(tmp_path, quick) == []  # its test rows are missing
    monkeypatch.setattr(accuracy, "names_at_hand", lambda: ["phishing"])
    assert [task.label for task in accuracy.tasks(tmp_path, quick)] == ["held-out accuracy on phishing"]
