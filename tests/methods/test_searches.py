"""A search takes no step that does not decrease the objective, and a method that has none says so."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.core.cohort import Session
from fedns.core.shards import Shards
from fedns.core.termination import Ending
from fedns.methods.searches import ArmijoSearch, Found, LocalSearch, search_repeatedly
from fedns.models.problem import NewtonStep, Problem
from fedns.runs.methods import parse_method
from fedns.simulation.simulator import SimulatedCohort, simulate


def counts(mean: float, columns: int = 4, rows: int = 300) -> Shards:
    """Counts with this mean, and columns that say something about them."""
    random = np.random.default_rng(3)
    x = random.normal(size=(rows, columns))
    y = random.poisson(mean * np.exp(x @ random.normal(0, 0.2, columns))).astype(float)
    return Shards.from_arrays(x, y, [rows // 3] * 3)


@pytest.mark.parametrize(
    "method",
    [
        "fednewton:line_search=aggregate",
        "fedns:sketch_size=64;line_search=aggregate",
        "fedndes:sketch_size=64",
        "giant",
        "shed:eigenpairs=5",
        "fednl:line_search=aggregate",
        "localnewton:finish=giant;finish_after=1",
        "newtonzero:line_search=aggregate",
        "lbfgs",
        "gd",
    ],
)
@pytest.mark.parametrize("mean", [30.0, 1e5])
def test_no_round_goes_uphill(method, mean):
    """From 0 a Newton step overflows, and so did the shortest of twelve halvings, which was taken."""
    problem = Problem(fedns.Poisson(), fedns.Ridge(1e-3), intercept=True)
    history = simulate(parse_method(method).algorithm, problem, counts(mean), rounds=12)
    objectives = [record.objective for record in history.records]
    assert history.ending is not Ending.DIVERGED
    assert all(after <= before + 1e-13 * abs(before) for before, after in itertools.pairwise(objectives))
    assert objectives[-1] < objectives[0]


@dataclass(frozen=True)
class Hopeless(ArmijoSearch):
    """Finds nothing, near the optimum or not."""

    resolved: bool = True

    def step_size(self, problem, w, newton, cohort, unresolved=None):
        return Found(0.0, False, self.resolved, self.resolved)


STOPS = ("fednewton", "giant", "newtonzero", "lbfgs", "gd")
GO_ON = ("fedns", "fedndes", "shed", "fednl")


@pytest.mark.parametrize("resolved", [True, False])
@pytest.mark.parametrize("method", STOPS)
def test_a_method_without_a_step_is_stuck_unless_what_is_left_is_rounding(method, resolved):
    algorithm = replace(parse_method(method).algorithm, line_search=Hopeless(resolved=resolved))
    history = simulate(algorithm, Problem(), make_shards(), rounds=8)
    assert history.ending is (Ending.STUCK if resolved else Ending.METHOD)
    assert history.ending.converged is not resolved
    assert "decreases the objective" in history.stop_reason
    assert not history.coefficients.any() and len(history.records) == 2


@pytest.mark.parametrize("method", GO_ON)
def test_methods_whose_next_direction_is_another_one_say_so_and_go_on(method):
    algorithm = replace(parse_method(method).algorithm, line_search=Hopeless())
    history = simulate(algorithm, Problem(), make_shards(), rounds=3)
    assert history.ending is Ending.OUT_OF_ROUNDS and not history.coefficients.any()
    assert all("decreases the objective" in record.note for record in history.records[1:])
    assert all(record.diagnostics["step_size"] == 0.0 for record in history.records[1:])


def test_other_clients_may_know_a_way():
    algorithm = replace(parse_method("fednewton").algorithm, line_search=Hopeless())
    assert simulate(algorithm, Problem(), make_shards(), rounds=3, participation=0.5).ending is Ending.OUT_OF_ROUNDS


def test_a_search_uphill_finds_nothing_and_one_that_overflows_goes_on_below_its_shortest_step():
    shards = counts(5.0)
    problem = Problem(fedns.Poisson(), fedns.Ridge(1e-3))
    cohort = SimulatedCohort(shards, Session(problem, 0))
    w = np.zeros(4)
    gradient = shards.total_weights @ problem.gradient(w, shards) / shards.total_weights.sum()
    uphill = NewtonStep(gradient, -float(gradient @ gradient))
    assert search_repeatedly(ArmijoSearch(), problem, w, uphill, cohort) == Found(0.0, False, True, False)
    longer = NewtonStep(-1e6 * gradient, -1e6 * float(gradient @ gradient))
    assert ArmijoSearch().step_size(problem, w, longer, cohort) == Found(0.0, False, True, True)
    found = search_repeatedly(ArmijoSearch(), problem, w, longer, cohort)
    assert found.passed and 0 < found.step_size < ArmijoSearch().shortest
    value = problem.value(w + found.step_size * longer.step, shards).mean()
    assert value < problem.value(w, shards).mean()


def test_clients_of_whom_one_finds_nothing_take_no_step():
    shards = make_shards()
    problem = Problem(penalty=fedns.Ridge(1e-3))
    cohort = SimulatedCohort(shards, Session(problem, 0))
    w = np.zeros(problem.num_features(shards.num_columns))
    own = problem.gradient(w, shards)
    direction = own[0] - 3 * own[1:].mean(axis=0)  # uphill for the first
    found = LocalSearch(max_backtracks=3).step_size(problem, w, NewtonStep(direction, -1.0), cohort)
    assert found == Found(0.0, False)
