"""Folds against numpy, and that they do not depend on how replies were batched."""

import numpy as np
import pytest

from fedns.core.errors import MessageError, NonFiniteError
from fedns.core.messages import Message, Payload, Ragged, reducers, wire
from fedns.core.messages.reducers import GramSum, mean, mean_gram, minimum, root_weighted_sum
from fedns.numerics.linalg import LowRank

COLUMNS = 12


class Reply(Message):
    """What the tests fold."""

    number: Payload = wire(discloses="loss")
    vector: Payload = wire("features", discloses="gradient")
    root: Payload = wire("rows", "features", ragged=True, discloses="sketch")


def replies(counts, seed=0):
    """Clients with so many rows each, their replies in one batch, and weights that sum to 1."""
    random = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    roots = Ragged(random.normal(size=(offsets[-1], COLUMNS)), offsets)
    batch = Reply(random.normal(size=len(counts)), random.normal(size=(len(counts), COLUMNS)), roots)
    weights = random.random(len(counts))
    return batch, weights / weights.sum()


def cut(batch, weights, sizes):
    """The same replies in batches of so many clients."""
    start = 0
    for size in sizes:
        stop = start + size
        offsets = batch.root.offsets
        part = Ragged(batch.root.values[offsets[start] : offsets[stop]], offsets[start : stop + 1] - offsets[start])
        yield Reply(batch.number[start:stop], batch.vector[start:stop], part), weights[start:stop]
        start = stop


def folded(reducer, batches):
    for batch, weights in batches:
        reducer.add(batch, weights)
    return reducer.result()


def expected_gram(batch, weights):
    return sum(w * batch.root.part(j).T @ batch.root.part(j) for j, w in enumerate(weights))


def test_mean_and_minimum():
    batch, weights = replies([2, 1, 3, 2])
    np.testing.assert_allclose(folded(mean("vector"), [(batch, weights)]), weights @ batch.vector, rtol=1e-14)
    assert folded(mean("number"), [(batch, weights)]) == pytest.approx(weights @ batch.number)
    assert folded(minimum("number"), cut(batch, weights, (1, 3))) == batch.number.min()
    whole, parts = (folded(mean("vector"), cut(batch, weights, sizes)) for sizes in ((4,), (1, 2, 1)))
    np.testing.assert_array_equal(whole, parts)


@pytest.mark.parametrize("gram_rows", [1, 7, 4096])
@pytest.mark.parametrize("counts", [[5, 4, 3], [12], [20, 1, 7, 30, 2]])
def test_as_many_rows_as_columns_give_a_matrix(counts, gram_rows, monkeypatch):
    monkeypatch.setattr(reducers, "_GRAM_ROWS", gram_rows)
    batch, weights = replies(counts)
    whole = folded(mean_gram("root"), [(batch, weights)])
    assert isinstance(whole, np.ndarray)
    np.testing.assert_allclose(whole, expected_gram(batch, weights), rtol=1e-12, atol=1e-13)
    one_by_one = folded(mean_gram("root"), cut(batch, weights, [1] * len(counts)))
    np.testing.assert_array_equal(whole, one_by_one)


@pytest.mark.parametrize("gram_rows", [1, 7, 4096])
@pytest.mark.parametrize("counts", [[1], [5, 4, 2], [1, 2, 3, 4, 1]])
def test_fewer_rows_than_columns_give_a_root(counts, gram_rows, monkeypatch):
    monkeypatch.setattr(reducers, "_GRAM_ROWS", gram_rows)
    monkeypatch.setattr(reducers, "weighted_gram", lambda *given: pytest.fail("the matrix was formed"))
    batch, weights = replies(counts)
    whole = folded(mean_gram("root"), [(batch, weights)])
    assert isinstance(whole, LowRank) and whole.rows.shape == (sum(counts), COLUMNS) and whole.shift == 0.0
    np.testing.assert_allclose(whole.dense(), expected_gram(batch, weights), rtol=1e-12, atol=1e-13)
    one_by_one = folded(mean_gram("root"), cut(batch, weights, [1] * len(counts)))
    np.testing.assert_array_equal(whole.rows, one_by_one.rows)


def test_rows_are_let_go_once_there_are_enough_for_a_product(monkeypatch):
    """The server holds fewer rows than columns, and the rows of the product to come."""
    monkeypatch.setattr(reducers, "_GRAM_ROWS", 4)
    batch, weights = replies([3] * 40)
    reducer = GramSum("Reply", "root")
    for part, weight in cut(batch, weights, [1] * 40):
        reducer.add(part.root, weight)
        held = sum(len(rows) for rows, _ in reducer._pending + reducer._blocks)
        assert held <= COLUMNS + 4
    np.testing.assert_allclose(reducer.result(), expected_gram(batch, weights), rtol=1e-12, atol=1e-13)


def test_root_weighted_sum_pads_shorter_roots():
    batch, weights = replies([2, 4, 1])
    expected = np.zeros((4, COLUMNS))
    for j, weight in enumerate(weights):
        expected[: batch.root.counts[j]] += np.sqrt(weight) * batch.root.part(j)
    np.testing.assert_allclose(folded(root_weighted_sum("root", 4), [(batch, weights)]), expected, rtol=1e-14)
    with pytest.raises(MessageError, match="field 'root' of Reply has 4 rows, at most 3 fit"):
        folded(root_weighted_sum("root", 3), [(batch, weights)])


@pytest.mark.parametrize("rows", [3, 40])  # a root, and a matrix
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_refused_by_their_gram(rows, value):
    batch, weights = replies([rows, rows])
    batch.root.values[rows + 1, 5] = value
    with np.errstate(invalid="ignore"), pytest.raises(NonFiniteError, match="field 'root' of Reply holds NaN or infinite"):
        folded(mean_gram("root"), cut(batch, weights, (1, 1)))


def test_rows_whose_gram_overflows_are_finite():
    batch, weights = replies([40, 40])
    batch.root.values[3, 5] = 1e200
    with np.errstate(over="ignore", invalid="ignore"):
        assert not np.isfinite(folded(mean_gram("root"), [(batch, weights)])).all()
