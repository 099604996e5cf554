"""Levels that few rows have."""

import numpy as np
import pytest
import scipy.sparse
from tests.conftest import dense_features

from fedns.core.errors import ConfigError
from fedns.core.shards import Shards
from fedns.federation.site.levels import blanked, named_columns, rare_levels


def table(sparse):
    random = np.random.default_rng(0)
    x = np.zeros((400, 10))
    x[:, 0] = random.normal(size=400)
    x[:4, 1] = 1.0  # four rows have it
    x[:5, 2] = 1.0  # five
    x[:, 3] = 1.0
    x[10:12, 3] = 0.0  # two lack it
    x[::2, 4] = 1.0
    x[7, 5], x[8, 5] = 2.5, -1.0  # two different values
    data = scipy.sparse.csr_matrix(x) if sparse else x
    return x, Shards.from_arrays(data, np.where(np.arange(400) < 200, 1.0, -1.0), [400])


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_with_a_level_of_fewer_rows_are_found_and_blanked(sparse):
    x, shards = table(sparse)
    rare = rare_levels(shards, 5)
    assert rare.columns.tolist() == [1, 3, 5]
    assert rare.usual.tolist() == [0.0, 1.0, 0.0]
    assert not rare.outcome
    expected = x.copy()
    expected[:, [1, 3, 5]] = [0.0, 1.0, 0.0]
    assert np.array_equal(dense_features(blanked(shards, rare)), expected)
    assert np.array_equal(dense_features(shards), x)
    assert rare_levels(blanked(shards, rare), 5).columns.size == 0


@pytest.mark.parametrize(("others", "rare"), [(0, False), (1, True), (4, True), (5, False)])
def test_outcomes_are_counted_in_the_same_way(others, rare):
    y = np.where(np.arange(60) >= 60 - others, 3.0, 0.0)
    assert rare_levels(Shards.from_arrays(np.ones((60, 1)), y, [60]), 5).outcome == rare


def test_a_limit_of_zero_finds_nothing():
    rare = rare_levels(table(False)[1], 0)
    assert rare.columns.size == 0 and not rare.outcome


@pytest.mark.parametrize("sparse", [False, True])
def test_a_rare_code_of_a_declared_category_becomes_the_most_common_one(sparse):
    x, _ = table(sparse=False)
    x[:, 6] = np.arange(400) % 3 + 1.0
    x[[5, 9], 6] = 7.0, 8.0
    expected = x.copy()
    expected[[5, 9], 6] = 1.0  # 134 rows have it; the others 133 less one
    data = scipy.sparse.csr_matrix(x) if sparse else x
    shards = Shards.from_arrays(data, np.where(np.arange(400) < 200, 1.0, -1.0), [400])
    assert 6 not in rare_levels(shards, 5).columns
    rare = rare_levels(shards, 5, named_columns(shards, ["6", "4"]))
    assert rare.columns.tolist() == [1, 3, 5, 6]
    assert dense_features(blanked(shards, rare))[:, 6].tolist() == expected[:, 6].tolist()


def test_a_category_that_is_no_column_is_named():
    shards = Shards.from_arrays(np.eye(3), np.ones(3), [3], columns=["a", "b", "c"])
    assert named_columns(shards, ["c", "a"]) == [2, 0]
    with pytest.raises(ConfigError, match="names 'd', which is no column"):
        named_columns(shards, ["d"])
