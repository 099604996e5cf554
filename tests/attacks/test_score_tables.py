"""Tables of scores at chosen coefficients: the outcome of somebody whose columns are known, by two tables."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Attacker, Refused

from fedns.core.shards import Shards
from fedns.models.families import FAMILIES
from fedns.studies.questions.asking import Point
from fedns.studies.questions.cells import SCORE_EDGES
from fedns.studies.questions.diagnostic import Predicted
from fedns.studies.questions.scores import Scoring

ROWS, COLUMNS, TARGETS = 2000, 5, 20


def people(seed=0):
    random = np.random.default_rng(seed)
    columns = random.normal(size=(ROWS, COLUMNS))
    outcomes = np.where(random.random(ROWS) < 0.4, 1.0, -1.0)  # nothing but a table could tell them
    return columns, outcomes


def attacker_of(folder, permissions, smallest):
    columns, outcomes = people()
    shards = Shards.from_arrays(columns, outcomes, [ROWS])
    scoring = Scoring(Predicted(FAMILIES["binomial"](), smallest=smallest))
    return Attacker(shards, folder, permissions, "fednewton", (scoring.look_at_scores,), intercept=False), columns, outcomes


def table(attacker, w):
    found = attacker.ask("look_at_scores", Point(w))
    return {
        int(stop): (weight, events) for stop, weight, events in zip(found.stops, found.weights, found.outcomes, strict=True)
    }


def read_outcome(attacker, person):
    """Two tables that only this person is counted differently in: the coefficients put them at the edge of a cell."""
    w = person / (person @ person) * SCORE_EDGES[len(SCORE_EDGES) // 2 + 12]
    above, below = table(attacker, w * (1 + 1e-9)), table(attacker, w * (1 - 1e-9))
    change = sum(abs(above.get(stop, (0, 0))[1] - below.get(stop, (0, 0))[1]) for stop in above | below)
    return 1.0 if change else -1.0


def test_without_a_guard_two_tables_tell_the_outcome_of_anybody_whose_columns_are_known(tmp_path):
    attacker, columns, outcomes = attacker_of(tmp_path, replace(GUARD_OFF, score_tables=1000, smallest_rows=0), smallest=1)
    assert [read_outcome(attacker, columns[one]) for one in range(TARGETS)] == outcomes[:TARGETS].tolist()


def test_by_default_the_second_table_does_not_leave(tmp_path):
    attacker, columns, _ = attacker_of(tmp_path, DEFAULTS, DEFAULTS.smallest_cell)
    with pytest.raises(Refused, match="R5: fewer than 20 of its rows tell this table of scores from an earlier one"):
        read_outcome(attacker, columns[0])


def test_the_second_table_stays_also_in_another_run_of_another_process(tmp_path):
    attacker, columns, _ = attacker_of(tmp_path, DEFAULTS, DEFAULTS.smallest_cell)
    w = columns[0] / (columns[0] @ columns[0])
    table(attacker, w)
    again, _, _ = attacker_of(tmp_path, DEFAULTS, DEFAULTS.smallest_cell)
    assert table(again, w)  # the same once more tells nothing new
    with pytest.raises(Refused, match="R5: fewer than 20"):
        table(again, w * (1 + 1e-6))


def test_by_default_no_group_is_small(tmp_path):
    attacker, _, _ = attacker_of(tmp_path, DEFAULTS, DEFAULTS.smallest_cell)
    for place in range(COLUMNS):
        w = np.zeros(COLUMNS)
        w[place] = 1.5
        for weight, events in table(attacker, w).values():
            assert all(count == 0 or count >= DEFAULTS.smallest_cell for count in (events, weight - events))


def test_by_default_tables_are_counted_over_all_runs(tmp_path):
    attacker, _, _ = attacker_of(tmp_path, DEFAULTS, DEFAULTS.smallest_cell)
    random = np.random.default_rng(1)
    left = 0
    with pytest.raises(Refused, match="R5: its owner permits 20 tables of scores"):
        for _ in range(100):
            attacker.begin()
            table(attacker, 0.5 * random.normal(size=COLUMNS))
            left += 1
    assert left == DEFAULTS.score_tables


def test_by_default_sharp_coefficients_are_refused(tmp_path):
    attacker, columns, _ = attacker_of(tmp_path, DEFAULTS, DEFAULTS.smallest_cell)
    with pytest.raises(Refused, match="R4"):
        table(attacker, columns[0] * 1e4)


def test_a_switched_off_permission_refuses_before_any_pass(tmp_path, passes):
    attacker, columns, _ = attacker_of(tmp_path, replace(DEFAULTS, score_tables=0), 5)
    passes.clear()
    with pytest.raises(Refused, match="R5: its owner permits no table of scores"):
        table(attacker, columns[0])
    assert passes == [] and math.isfinite(DEFAULTS.largest_released_fraction)
