import numpy as np
import pytest
import scipy.sparse
from tests.conftest import make_shards

from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.numerics.rows import SparseRows


def test_sizes_weights_and_selection():
    shards = make_shards(weighted=True)
    assert shards.sizes.tolist() == [1, 90, 7, 150, 52] and shards.num_samples == 300
    chosen = shards.select([3, 0])
    assert chosen.sizes.tolist() == [150, 1] and chosen.rows is shards.rows
    np.testing.assert_allclose(chosen.total_weights, shards.total_weights[[3, 0]])
    assert shards.pooled().sizes.tolist() == [300]


def test_what_is_kept_is_made_again_for_another_key_and_for_other_clients():
    shards, made = make_shards(), []
    for key in ("a", "a", "b", "b", "a"):
        assert shards.cached("name", key, lambda key=key: made.append(key) or key) == key
    assert made == ["a", "b", "a"]
    assert shards.cached("another name", "a", lambda: 1) == 1
    assert shards.select([0, 1]).cached("name", "a", lambda: 2) == 2


def test_segments_are_those_of_the_clients_at_hand():
    shards = make_shards()
    assert shards.segments is shards.segments and shards.segments.number == 5
    assert shards.select([3]).segments.size.tolist() == [150]


def test_no_copy_of_a_matrix_that_is_fit_already():
    x = np.random.default_rng(0).normal(size=(6, 2))
    assert Shards.from_arrays(x, np.ones(6), [6]).rows.flat.base is x


def test_the_callers_sparse_matrix_is_left_alone():
    matrix = scipy.sparse.csr_matrix((np.ones(3), np.array([1, 0, 0]), np.array([0, 2, 3])), shape=(2, 9))
    before = matrix.indices.copy()
    shards = Shards.from_arrays(matrix, [1.0, -1.0], [2])
    np.testing.assert_array_equal(matrix.indices, before)
    assert isinstance(shards.rows, SparseRows) and shards.rows.indices.tolist() == [0, 1, 0]


def test_a_fairly_full_sparse_matrix_is_stored_dense():
    full = scipy.sparse.csr_matrix(np.eye(3, 2) + 1.0)
    rows = Shards.from_arrays(full, np.ones(3), [3]).rows
    np.testing.assert_array_equal(rows.values, full.toarray())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"features": np.array([[1.0], [np.nan]]), "targets": [1, 1], "sizes": [2], "columns": ["age"]},
            "column 'age' has 1 missing",
        ),
        ({"features": np.array([[1.0], [np.inf]]), "targets": [1, 1], "sizes": [2]}, "column 0 has 1 missing or infinite"),
        ({"features": scipy.sparse.csr_matrix([[0.0, np.nan]]), "targets": [1], "sizes": [1]}, "column 1 has 1 missing"),
        ({"features": np.ones((2, 1)), "targets": [1], "sizes": [2]}, "targets have shape"),
        ({"features": np.ones((2, 1)), "targets": [1, np.nan], "sizes": [2]}, "targets hold 1 missing"),
        ({"features": np.ones((2, 1)), "targets": [1, 1], "sizes": [1]}, "add up to 2 rows"),
        ({"features": np.ones((2, 1)), "targets": [1, 1], "sizes": [2, 0]}, "must be positive"),
        ({"features": np.ones(2), "targets": [1, 1], "sizes": [2]}, "table of rows and columns"),
        ({"features": np.array([["a"], ["b"]]), "targets": [1, 1], "sizes": [2]}, "features must be numbers"),
        ({"features": np.ones((2, 1)), "targets": [1, 1], "sizes": [2], "sample_weights": [1, -1]}, "finite numbers >= 0"),
        ({"features": np.ones((2, 1)), "targets": [1, 1], "sizes": [1, 1], "sample_weights": [1, 0]}, "client 1 has no row"),
        (
            {"features": np.ones((2, 1)), "targets": [1, 1], "sizes": [2], "columns": ["a", "b"]},
            "2 column names were given for 1",
        ),
    ],
)
def test_bad_data_is_refused_in_words(arguments, sentence):
    with pytest.raises(DataError, match=sentence):
        Shards.from_arrays(**arguments)
