"""No merged cell holds a few rows of a kind, none is lost, and no more are merged than must be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedns.studies.questions.cells import CELLS, RESIDUAL_EDGES, SCORE_EDGES, cells_of, merged, summed


def table(rows, events, seed, spread=40):
    random = np.random.default_rng(seed)
    places = np.clip(random.normal(CELLS / 2, spread, rows).astype(int), 0, CELLS - 1)
    kinds = (random.random(rows) < events).astype(int)
    counts = np.zeros((CELLS, 2), dtype=np.int64)
    np.add.at(counts, (places, kinds), 1)
    return counts


@given(st.integers(0, 400), st.floats(0, 1), st.integers(0, 10**6), st.integers(1, 12))
def test_every_group_may_be_seen_and_none_is_lost(rows, events, seed, smallest):
    counts = table(rows, events, seed)
    stops = merged(counts, smallest)
    groups = summed(counts.T, stops).T
    assert ((groups == 0) | (groups >= smallest)).all() and (groups.sum(axis=1) >= smallest).all()
    if stops.size:
        assert stops[-1] == CELLS and (np.diff(stops) > 0).all()
        assert (groups.sum(axis=0) == counts.sum(axis=0)).all()
    else:
        total = counts.sum(axis=0)
        assert rows < smallest or ((total > 0) & (total < smallest)).any()


def test_many_rows_keep_the_cells_apart():
    counts = np.full((CELLS, 2), 5, dtype=np.int64)
    assert merged(counts, 5).tolist() == list(range(1, CELLS + 1))


def test_a_few_at_the_end_join_their_neighbours():
    counts = np.zeros((CELLS, 2), dtype=np.int64)
    counts[10] = 5, 5
    counts[20] = 7, 0
    counts[30] = 0, 3  # with the group before it there would be three events
    assert merged(counts, 5).tolist() == [CELLS]
    assert merged(counts, 3).tolist() == [11, 21, CELLS]


@pytest.mark.parametrize("edges", [SCORE_EDGES, RESIDUAL_EDGES])
def test_edges_go_up_and_values_on_one_belong_above(edges):
    assert len(edges) == CELLS - 1 and (np.diff(edges) > 0).all()
    assert cells_of(np.array([-np.inf, edges[0], np.inf]), edges).tolist() == [0, 1, CELLS - 1]
    assert 1.09 < RESIDUAL_EDGES[-1] / RESIDUAL_EDGES[-2] < 1.0906
