"""States of methods, and what a method says of itself unless it says something else."""

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.core.algorithm import StateOfAll
from fedns.core.cohort import Session
from fedns.core.messages import Payload, wire
from fedns.methods import METHODS
from fedns.simulation.simulator import SimulatedCohort


class Many(StateOfAll):
    pairs: Payload = wire("pairs", "features", dtype="float64")
    counts: Payload = wire("clients", dtype="int64")
    rounds: Payload = wire(dtype="int32")


def cohort():
    return SimulatedCohort(make_shards(sizes=(90, 60, 150)), Session(fedns.Problem(), 0))


def test_the_first_state_has_zeros_of_the_declared_types_where_nothing_is_known():
    clients = cohort()
    state = Many.first(clients, rounds=7.0)
    assert state.pairs.shape == (0, clients.num_features) and state.counts.tolist() == [0, 0, 0]
    assert state.counts.dtype == np.int64 and type(state.rounds) is np.int32 and state.rounds == 7
    assert state.coefficients.tolist() == clients.start.tolist() and state.total_weight == clients.total_weights.sum()


def test_a_state_after_a_round_differs_in_the_fields_that_are_named():
    state = Many.first(cohort(), rounds=7)
    after = state.after(rounds=np.int64(8), counts=[1, 2, 3])
    assert type(after.rounds) is np.int32 and (int(state.rounds), int(after.rounds)) == (7, 8)
    assert after.counts.tolist() == [1, 2, 3] and after.total_weight == state.total_weight


def test_the_share_of_those_who_take_part():
    clients = cohort()
    part = clients.part(np.array([0, 2]))
    assert Many.first(clients).share(part) == pytest.approx(0.8)


@pytest.mark.parametrize("name", ["fednewton", "fednl", "newtonzero", "giant", "shed", "fedndes"])
def test_a_method_without_its_search_says_to_take_it(name):
    assert METHODS[name](line_search=None).way_out == f"{name}:line_search=aggregate"
    assert METHODS[name](line_search=fedns.ArmijoSearch()).way_out == ""


def test_a_method_that_has_no_such_setting_has_no_advice():
    assert METHODS["fedavg"]().way_out == METHODS["lbfgs"]().way_out == ""
