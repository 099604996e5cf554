"""The race: who reaches the gap is timed, who does not is shown as what happened."""

import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.race.contender import Contender, Fit, Task
from benchmarks.race.federated import OURS, seconds_of_rounds
from benchmarks.race.pooled import POOLED
from benchmarks.race.program import coefficients_in, program
from benchmarks.race.race import Result, cell, entered, main, markdown_of, raced

import fedns

SCRIPT = """
import sys
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression
data, model, cost = sys.argv[1:]
x, y = load_svmlight_file(data)
fitted = LogisticRegression(C=float(cost), fit_intercept=False, solver="newton-cholesky", tol=1e-12).fit(x, y)
open(model, "w").write(" ".join(map(repr, fitted.coef_[0].tolist())))
"""


@pytest.fixture(scope="module")
def task():
    random = np.random.default_rng(0)
    x = random.standard_normal((400, 5))
    y = np.where(random.random(400) < 1.0 / (1.0 + np.exp(-x[:, 0])), 1.0, -1.0)
    shards, problem = fedns.split(x, y, clients=4), fedns.Problem()
    return Task("test", shards, 5, problem, fedns.pooled_optimum(problem, shards))


def contender(attempt, **settings):
    return Contender("peer", "numpy", "numpy", lambda task, features: attempt, layouts=("dense",), **settings)


@pytest.mark.parametrize("one", [*OURS, POOLED[0], POOLED[1]], ids=lambda one: one.name)
def test_solvers_of_the_same_objective_reach_the_gap(one, task):
    result = entered(one, task, 1e-10)
    assert result.failure == "" and result.gap <= 1e-10
    assert (result.exchanges is not None) == (one.package == "fedns")


@pytest.mark.parametrize("begin", [0, 4, 13])
def test_the_least_effort_that_reaches_the_gap_is_timed_wherever_the_search_begins(begin, task):
    best = task.optimum.coefficients
    one = contender(lambda tolerance: Fit(best + tolerance, seconds=1.0 / tolerance))
    result = entered(one, task, 1e-10, begin)
    assert (result.effort, result.seconds) == pytest.approx((1e-5, 1e5))
    assert raced([replace(result, seconds=0.5, attempt=lambda _: Fit(best, seconds=0.25))], turns=2)[0].seconds == 0.25


def test_who_is_far_behind_takes_no_turns(task):
    first, last = (
        Result(contender(None), seconds=seconds, attempt=lambda _: Fit(np.zeros(5), seconds=0.1)) for seconds in (1, 6)
    )
    assert [
        result.seconds for result in raced([first, replace(last, contender=replace(last.contender, name="last"))], 1)
    ] == [0.1, 6]


def test_what_does_not_get_there_says_so(task):
    assert cell(entered(contender(lambda _: Fit(np.zeros(5))), task, 1e-10)).startswith("stays at ")
    assert cell(entered(contender(lambda _: Fit(np.full(5, np.nan))), task, 1e-10)) == "stays at inf"
    assert (
        cell(entered(contender(lambda _: time.sleep(5), warm_up=None, limit_seconds=0.1), task, 1e-10))
        == "over 0.1 s, at inf"
    )
    assert cell(entered(Contender("none", "none", "no_such_module", task.gap), task, 1e-10)) == "not installed"
    assert cell(entered(contender(lambda _: Fit(np.zeros(5)), only_on=("w8a",)), task, 1e-10)) == "not run"

    def fails(_):
        raise ValueError("singular\nmatrix")

    assert cell(entered(contender(fails), task, 1e-10)) == "ValueError: singular"


def test_the_page_has_the_quickest_in_bold():
    one, other = contender(None), replace(contender(None), name="other")
    results = {"a": [Result(one, seconds=0.002, exchanges=5, bytes=361_000_000), Result(other, seconds=27.56)],
               "b": [Result(one, failure="not installed"), Result(other, seconds=0.25)]}  # fmt: skip
    assert markdown_of(results, 1e-10) == (
        "| milliseconds (exchanges, megabytes) to 1e-10 | a | b |\n|---|---|---|\n"
        "| peer | **2** (5, 360) | not installed |\n| other | 27,600 | **250** |"
    )


def test_any_program_that_reads_libsvm_text(task, tmp_path):
    script = tmp_path / "solve.py"
    script.write_text(SCRIPT, encoding="utf-8")
    stated = f"own={sys.executable} {script} {{data}} {{model}} {{cost}}"
    attempt = program(stated).prepare(task, task.layouts["compressed"])
    assert task.gap(attempt(None).coefficients) <= 1e-10
    with pytest.raises(RuntimeError, match="ended with 1"):
        program(stated.replace("{cost}", "many")).prepare(task, task.layouts["compressed"])(None)
    with pytest.raises(SystemExit, match="NAME=COMMAND"):
        program("own=solve")


def test_a_model_of_liblinear_is_read_with_the_sign_of_its_labels():
    model = "solver_type L2R_LR\nnr_class 2\nlabel {}\nnr_feature 2\nbias -1\nw\n0.5 \n-2 \n"
    np.testing.assert_array_equal(coefficients_in(model.format("1 -1")), [0.5, -2.0])
    np.testing.assert_array_equal(coefficients_in(model.format("-1 1")), [-0.5, 2.0])


def test_the_clock_of_a_simulator_is_in_its_log():
    log = "2026-01-02 03:04:05,250 - X - Round 0 started.\nmore\n2026-01-02 03:04:07,750 - X - Finished FedAvg.\n"
    assert seconds_of_rounds(log) == 2.5
    with pytest.raises(RuntimeError, match="does not say"):
        seconds_of_rounds("nothing")


def test_a_data_set_that_is_not_here_is_named_and_left_out(monkeypatch, tmp_path, capsys):
    for variable in ("FEDNS_DATA", "FEDNS_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["race", "--data", "phishing", "a9a", "--out", str(tmp_path / "race")])
    with pytest.raises(SystemExit, match="none of the data sets is here"):
        main()
    said = capsys.readouterr().out
    assert "'phishing' is not on this machine" in said and "'a9a'" in said
