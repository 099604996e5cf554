"""What auto decides, and the words for it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.core.cohort import Session
from fedns.methods.auto import thresholds
from fedns.methods.auto.rules import Rules, Seen, drawn_clients
from fedns.methods.auto.sources import (
    EXACT_HESSIANS,
    HESSIANS,
    OWN_HESSIANS,
    ROOTS,
    SKETCHES,
    SOME_ROOTS,
    Following,
    first_source,
)
from fedns.methods.auto.state import AutoState
from fedns.methods.auto.thresholds import FEW_COLUMNS, FEW_QUADRATIC, ROOT_COLUMNS
from fedns.simulation.simulator import SimulatedCohort

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-3))


def rules(prefer="bytes"):
    return Rules(prefer, sketch_bits=5, direction_bits=8)


def state(source, **changes):
    cohort = SimulatedCohort(make_shards(), Session(PROBLEM, 0))
    return AutoState.first(cohort, source=source.number, rows=3, contraction=1.0, clients=cohort.num_clients).after(
        **changes
    )


def asks(prefer, source, **changes):
    return source.asks(rules(prefer), state(source, **changes))


def looks(prefer, source, **changes):
    return source.looks(rules(prefer), state(source, **changes))


@pytest.mark.parametrize("prefer", ["bytes", "balanced"])
def test_few_columns_take_hessians_few_sites_their_own_and_the_rest_roots_of_some(prefer):
    few, quadratic = FEW_COLUMNS[prefer], FEW_QUADRATIC[prefer]
    many = max(few, ROOT_COLUMNS.get(prefer, 0)) + 1

    def chosen(columns, sites, squared=False, rows=1000.0):
        return first_source(rules(prefer), columns, np.full(sites, rows), squared)

    assert chosen(few, 40) == HESSIANS and chosen(many, 40) == SOME_ROOTS
    assert chosen(many, 16) == OWN_HESSIANS and chosen(many, 17) == SOME_ROOTS
    assert chosen(many, 40, rows=2.0) == SKETCHES  # the rows of some would be fewer than the columns
    assert chosen(quadratic, 40, True) == EXACT_HESSIANS and chosen(many, 40, True) == SOME_ROOTS
    assert first_source(rules("rounds"), 1000, np.ones(40), False) == HESSIANS


def test_sites_are_drawn_by_weight_and_others_come_in_turn():
    equal = np.full(40, 1 / 40)
    assert rules().senders(equal, 68, 0).size == 2 and rules().senders(np.full(200, 1 / 200), 53, 0).size == 15
    assert set(np.concatenate([drawn_clients(equal, 2, turn) for turn in range(200)])) == set(range(40))
    assert drawn_clients(np.array([0.01, 0.97, 0.01, 0.01]), 2, 0).tolist() == [1]
    assert rules().solvers(np.ones(1), 0).tolist() == [0] and rules().solvers(np.full(4, 0.25), 0).size == 2
    counts = np.bincount(np.concatenate([drawn_clients(np.array([0.1, 0.2, 0.7]), 1, turn) for turn in range(1000)]))
    np.testing.assert_allclose(counts / 1000, [0.1, 0.2, 0.7], atol=0.01)


def test_a_sketch_is_asked_for_again_when_a_round_has_brought_too_little():
    taken, words = asks("bytes", SKETCHES, curvatures=4, age=1, contraction=0.7)
    assert taken and words == "the last step contracted by 0.7 only"
    taken, words = asks("bytes", SKETCHES, curvatures=4, age=1, contraction=0.1)
    assert not taken and words == "the last step contracted by 0.1"
    assert not asks("bytes", SKETCHES, curvatures=4, age=0, contraction=0.7).taken
    assert not asks("bytes", OWN_HESSIANS).taken
    assert asks("rounds", HESSIANS, curvatures=9, contraction=0.01).taken


def test_balanced_asks_other_sites_where_a_direction_left_much():
    for columns in (FEW_COLUMNS["balanced"] + 1, ROOT_COLUMNS["balanced"]):
        assert first_source(rules("balanced"), columns, np.full(4, 1000.0), False) == SOME_ROOTS
    taken, words = asks("balanced", SOME_ROOTS, curvatures=1, left=0.25)
    assert taken and words == "the last direction left 0.25 of the decrement"
    assert not asks("balanced", SOME_ROOTS, curvatures=1, left=0.15).taken
    assert asks("balanced", SOME_ROOTS, curvatures=1, left=0.15, clients=17).taken


def test_balanced_asks_all_again_when_their_roots_are_stale():
    assert asks("balanced", ROOTS, curvatures=0).taken
    assert asks("balanced", ROOTS, curvatures=1, left=0.6).taken
    # A step that was cut has contracted by little, whatever its metric was worth.
    assert not asks("balanced", ROOTS, curvatures=2, age=3, contraction=1.0, left=0.01).taken


def test_balanced_leaves_the_roots_of_all_where_two_directions_show_that_they_are_poor():
    def following(before, left):
        reached = replace(state(ROOTS, left=before, curvatures=thresholds.ROOTS), coefficients=np.zeros(100))
        return ROOTS.following(rules("balanced"), reached, Seen(True, contraction=1.0, left=left))

    source, _, words = following(0.6, 0.7)
    assert source == HESSIANS and words.endswith("because two directions left 0.6 and 0.7 of the decrement")
    assert following(0.7, 0.4)[0] == following(0.4, 0.7)[0] == ROOTS


def test_sketches_grow_and_give_way_to_roots_and_roots_to_hessians():
    def next_source(source, contraction, *, asked=True, astray=False, rows=3, **changes):
        before = replace(state(source, **changes), coefficients=np.zeros(100), rows=np.int32(rows))
        return source.following(rules(), before, Seen(asked, contraction, astray))

    source, rows, words = next_source(SKETCHES, 0.8, curvatures=4)
    assert (source, rows) == (SKETCHES, 6) and "contracted by 0.8 only" in words
    assert next_source(SKETCHES, 0.8, curvatures=4, rows=64)[0] == ROOTS
    assert next_source(ROOTS, 0.8, curvatures=1)[0] == ROOTS
    assert next_source(ROOTS, 0.8, curvatures=thresholds.ROOTS)[0] == HESSIANS
    assert next_source(OWN_HESSIANS, 0.1, asked=False, astray=True)[0] == SOME_ROOTS
    assert next_source(SOME_ROOTS, 0.8, curvatures=thresholds.SOMES)[0] == SKETCHES
    assert next_source(SOME_ROOTS, 0.2, curvatures=thresholds.SOMES)[0] == SOME_ROOTS
    assert next_source(OWN_HESSIANS, 0.1, asked=False) == Following(OWN_HESSIANS, 3)


def test_balanced_asks_all_where_directions_leave_much_and_roots_of_all_are_cheaper_than_going_on():
    def following(columns, left, *, prefer="balanced", rounds=2, to_go=18.0):
        before = replace(state(SOME_ROOTS, rounds=rounds, left=left), coefficients=np.zeros(columns))
        return SOME_ROOTS.following(rules(prefer), before, Seen(True, 0.4, left=left, to_go=to_go))[0]

    assert following(54, 0.6) == ROOTS
    assert following(54, 0.2) == SOME_ROOTS  # the roots of some serve
    assert following(300, 0.6) == SOME_ROOTS  # the roots of all cost more than going on
    assert following(54, 0.6, to_go=3.0) == SOME_ROOTS  # nearly there
    assert following(54, 0.6, rounds=1) == following(54, 0.6, prefer="bytes") == SOME_ROOTS


def test_hessians_have_fewer_bits_where_the_penalty_leaves_curvature_or_many_clients_are_averaged():
    bits = rules("rounds").bits_of_hessians
    assert bits(0.25, 1e-10, 1.0) == 16 and bits(0.25, 1.0, 1.0) == 10
    few, many = bits(0.25, 1e-3, np.sqrt(100 / 4)), bits(0.25, 1e-3, np.sqrt(100 / 64))
    assert few - many == 2  # 16 times the clients: a quarter of the noise
    unit = 0.25 / 2 ** (few - 1)
    assert unit * np.sqrt(100 / 4) <= 0.3 * 1e-3 < 2 * unit * np.sqrt(100 / 4)
    assert bits(np.inf, 1e-3, 1.0) == bits(0.25, 0.0, 1.0) == 16
    assert rules("bytes").bits_of_hessians(0.25, 1.0, 1.0) == 10
    assert replace(rules("rounds"), hessian_bits=6).bits_of_hessians(0.25, 1e-10, 1.0) == 6


def test_it_does_as_rounds_does_where_as_much_is_spent_as_hessians_would_have_cost():
    many, dear = np.zeros(54), Seen(False, spent=1001.0, hessians=1000.0, to_go=1.1)
    for prefer in ("bytes", "balanced"):
        for source in (SOME_ROOTS, OWN_HESSIANS, SKETCHES, ROOTS, HESSIANS):
            here = replace(state(source), coefficients=many)
            taken, words = rules(prefer).gives_up(here, dear)
            assert taken and words.startswith("Hessians in every round from the next one on, because 1001 bytes a client")
            assert not rules(prefer).gives_up(here, dear._replace(spent=999.0)).taken
            assert not rules(prefer).gives_up(here, dear._replace(to_go=0.9)).taken  # nearly there, however dear
            assert not rules("rounds").gives_up(here, dear).taken
        few = replace(state(HESSIANS), coefficients=np.zeros(FEW_COLUMNS[prefer]))
        assert not rules(prefer).gives_up(few, dear).taken  # Hessians are what it sends
    entries = 54 * 55 // 2
    assert rules().cost_of_hessians(54, 16, False) == pytest.approx(10 * (2 * entries + 14 * 54 / 8), rel=0.01)
    assert rules().cost_of_hessians(54, 16, True) == pytest.approx(4 * (entries + 54), rel=0.01)  # one, in full


def test_a_direction_is_looked_at_before_it_is_taken_where_both_count():
    assert looks("balanced", SKETCHES) == looks("balanced", SOME_ROOTS) == 2
    assert looks("balanced", OWN_HESSIANS, contraction=0.5) == 1
    assert looks("balanced", OWN_HESSIANS, contraction=0.01) == 0
    assert looks("balanced", HESSIANS) == looks("bytes", SKETCHES) == 0


def test_every_round_says_what_was_chosen(tmp_path):
    history = fedns.simulate(fedns.Auto(), PROBLEM, make_shards(sizes=(15,) * 20), rounds=4)
    notes = [record.note for record in history.records]
    assert notes[0] == "" and notes[1].startswith("asked for Hessians in 10 bits, because nothing is known yet")
    assert all("because" in note or "asked for gradients alone" in note for note in notes[1:])
    history.save(tmp_path / "history.jsonl")
    assert [record.note for record in fedns.History.load(tmp_path / "history.jsonl").records] == notes
