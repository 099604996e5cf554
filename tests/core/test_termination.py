"""Endings, and the verdicts that lead to them."""

from dataclasses import replace

import pytest

from fedns.core.errors import ConfigError, DataError
from fedns.core.history import Record
from fedns.core.run import Stop
from fedns.core.termination import Ending


def records(gaps, optimum=1.0, gradient_norm=1.0):
    return [
        Record(t, t, 0.0, 0, 0, optimum + (gap or 0.0), gap, gradient_norm) for t, gap in enumerate(gaps)
    ]  # a gap of None where the optimum is not known


@pytest.mark.parametrize(
    ("gaps", "ending", "words"),
    [
        ([10 / 2**t for t in range(31)], Ending.IMPROVING, "used all 30 rounds, still improving at gap 9.3e-09"),
        ([10.0] + [0.5] * 30, Ending.PLATEAU, "on a plateau: the gap has stayed at 5.0e-01 for 10 rounds"),
        ([10.0] + [0.5, 5.0] * 15, Ending.UNSETTLED, "the gap moved between 5.0e-01 and 5.0e+00"),
        ([10.0] + [0.0] * 30, Ending.AT_OPTIMUM, "at the optimum as far as the objective can tell"),
        ([10.0] * 11, Ending.OUT_OF_ROUNDS, "used all 10 rounds"),  # too few to see a trend
        ([None] * 31, Ending.OUT_OF_ROUNDS, "used all 30 rounds"),
    ],
)
def test_out_of_rounds(gaps, ending, words):
    verdict = Stop(len(gaps) - 1).verdict(records(gaps))
    assert verdict.ending is ending and not ending.converged
    assert verdict.reason.startswith(f"used all {len(gaps) - 1} rounds") and words in verdict.reason
    assert Stop(len(gaps)).verdict(records(gaps)) is None


def test_tolerances_come_before_everything_else():
    both = Stop(2, suboptimality=1e-3, gradient_norm=1.0)
    assert both.verdict(records([1.0, 1e-2, 1e-3])).ending is Ending.GAP
    assert both.verdict(records([1.0, 1e-2, 1e-2])).ending is Ending.GRADIENT
    assert both.verdict(records([1.0, 1e-2, 1e-2], gradient_norm=1.1)).ending is Ending.OUT_OF_ROUNDS
    assert Stop(9, suboptimality=1e-3).verdict(records([None, None])) is None  # no gap is known, so none is met


def test_an_objective_that_rises_without_bound_has_diverged():
    assert Stop(9).verdict(records([1.0, 1e8])) is None
    verdict = Stop(9).verdict(records([1.0, 2e8]))
    assert (verdict.ending, verdict.reason) == (Ending.DIVERGED, "diverged in round 1: the objective rose to 2e+08")


@pytest.mark.parametrize("gaps", [[1.0] + [9.8e5] * 30, [1.0, 0.5, 1.1], [None, None], [0.0] * 29 + [1e-8]])
def test_an_objective_that_ends_above_its_start_has_diverged(gaps):
    """Whatever its trend: on a plateau, up and down, too short to tell, or without a known optimum."""
    run = records(gaps)
    run[-1] = replace(run[-1], objective=run[0].objective + (gaps[-1] if gaps[-1] and gaps[-1] > 1 else 3e-9))
    verdict = Stop(len(run) - 1).verdict(run)
    assert verdict.ending is Ending.DIVERGED
    rise = f"used all {len(run) - 1} rounds and diverged: the objective rose from {run[0].objective:.3g} to"
    assert verdict.reason.startswith(rise)
    level = [*run[:-1], replace(run[-1], objective=run[0].objective + 0.9e-9)]  # rounding
    assert Stop(len(run) - 1).verdict(level).ending is not Ending.DIVERGED
    assert Stop(len(run)).verdict(run) is None  # it may come down again


def test_only_tolerances_and_the_method_itself_mean_convergence():
    success = {Ending.GAP, Ending.GRADIENT, Ending.DECREMENT, Ending.METHOD}
    assert {ending for ending in Ending if ending.converged} == success
    assert all((ending.label == "converged") == ending.converged for ending in Ending)


def test_endings_are_told_apart_and_read_back():
    assert len({ending.sentence for ending in Ending}) == len({ending.key for ending in Ending}) == len(Ending)
    assert [Ending.of(ending.key) for ending in Ending] == list(Ending)
    with pytest.raises(DataError, match="no run ends with 'GAP': known endings are gap, gradient, "):
        Ending.of("GAP")


@pytest.mark.parametrize(
    ("tolerance", "sentence"),
    [(-1.0, "gradient_norm must be a finite number >= 0"), (float("nan"), "gradient_norm must be a finite number")],
)
def test_tolerances_are_checked(tolerance, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Stop(1, gradient_norm=tolerance)


def test_the_newton_decrement_ends_a_run_whose_method_reports_one():
    stop = Stop(rounds=10, newton_decrement=1e-6)
    plain = records([1.0, 0.5])
    small = [plain[0], replace(plain[1], diagnostics={"newton_decrement": 1e-7})]
    assert stop.verdict(plain) is None
    assert stop.verdict(small).ending is Ending.DECREMENT and Ending.DECREMENT.converged
