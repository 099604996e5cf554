"""Scaling from per-site summaries against scikit-learn on the pooled rows."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.numerics.rows import DenseRows, SparseRows
from fedns.studies.tables import scaling
from fedns.studies.tables.scaling import ColumnSummary, column_summaries, merged_summary, scale, scaling_from

SIZES = [[400], [1, 399], [1, 7, 92, 300], [100] * 4, [1] * 400]


def table(sparse=False):
    random = np.random.default_rng(0)
    values = random.normal(size=(400, 6)) * [1, 1e-3, 1e4, 1, 1, 1] + [0, 5, -1e5, 1e3, 0, 0]
    values[:, 4] = random.integers(0, 2, 400)
    if sparse:
        values[random.random(values.shape) < 0.7] = 0.0
    return values


def shards_of(values, sizes, sparse=False):
    features = scipy.sparse.csr_matrix(values) if sparse else values
    return Shards.from_arrays(features, np.ones(len(values)), sizes)


def values_of(shards):
    rows = shards.rows
    if isinstance(rows, DenseRows):
        return rows.values
    return scipy.sparse.csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape).toarray()


@pytest.mark.parametrize("sizes", SIZES, ids=len)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_standardise_agrees_with_the_pooled_scaler(sizes, sparse):
    values = table(sparse)
    scaled, fitted = scale(shards_of(values, sizes, sparse), "standardise")
    expected = StandardScaler().fit(values)
    np.testing.assert_allclose(fitted.center, expected.mean_, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(fitted.scale, expected.scale_, rtol=1e-12)
    np.testing.assert_allclose(values_of(scaled), (values - values.mean(0)) / values.std(0), rtol=1e-9, atol=1e-9)
    assert isinstance(scaled.rows, DenseRows)


@pytest.mark.parametrize("sizes", SIZES, ids=len)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_maxabs_agrees_with_the_pooled_scaler(sizes, sparse):
    values = table(sparse)
    scaled, fitted = scale(shards_of(values, sizes, sparse), "maxabs")
    expected = MaxAbsScaler().fit(values)
    np.testing.assert_array_equal(fitted.scale, expected.scale_)
    np.testing.assert_array_equal(values_of(scaled), expected.transform(values))
    assert isinstance(scaled.rows, SparseRows if sparse else DenseRows)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_each_summary_is_of_that_clients_rows(sparse, monkeypatch):
    monkeypatch.setattr(scaling, "CHUNK_ROWS", 64)  # several chunks a client
    values = table(sparse)
    summaries = column_summaries(shards_of(values, [1, 99, 300], sparse))
    for summary, rows in zip(summaries, (values[:1], values[1:100], values[100:]), strict=True):
        assert summary.count == len(rows)
        np.testing.assert_allclose(summary.mean, rows.mean(0), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(summary.squared_deviations, rows.var(0) * len(rows), rtol=1e-9, atol=1e-20)
        np.testing.assert_array_equal(summary.max_abs, np.abs(rows).max(0))


def test_selected_clients_are_summarised_alone():
    values = table()
    shards = shards_of(values, [100, 100, 200])
    (summary,) = column_summaries(shards.select([1]))
    np.testing.assert_allclose(summary.mean, values[100:200].mean(0), rtol=1e-12, atol=1e-15)


def test_a_large_offset_does_not_drown_the_variance():
    """The textbook E[x^2] - E[x]^2 would lose everything here."""
    values = np.random.default_rng(3).normal(size=(1000, 1)) + 1e9
    (fitted,) = scale(shards_of(values, [1, 499, 500]), "standardise")[1].scale
    assert fitted == pytest.approx((values - 1e9).std(), rel=1e-6)


@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1, -1e6 / 3])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_constant_columns_are_left_alone(constant, sparse):
    values = np.column_stack([np.full(20_000, constant), np.arange(20_000.0)])
    scaled, fitted = scale(shards_of(values, [1, 9999, 10_000], sparse), "standardise")
    assert (fitted.center[0], fitted.scale[0]) == (0.0, 1.0)
    np.testing.assert_array_equal(values_of(scaled)[:, 0], values[:, 0])
    assert fitted.scale[1] == pytest.approx(values[:, 1].std(), rel=1e-12)


def test_a_column_constant_at_each_site_but_not_overall_is_scaled():
    fitted = scale(shards_of(np.array([[1.0], [1.0], [3.0], [3.0]]), [2, 2]), "standardise")[1]
    assert (fitted.center[0], fitted.scale[0]) == (2.0, 1.0)


def test_zero_columns_survive_maxabs():
    fitted = scale(shards_of(np.array([[0.0, -4.0], [0.0, 2.0]]), [1, 1]), "maxabs")[1]
    assert fitted.scale.tolist() == [1.0, 4.0]


def test_none_changes_nothing():
    shards = shards_of(table(), [400])
    same, fitted = scale(shards, "none")
    assert same is shards
    np.testing.assert_array_equal(values_of(fitted.apply(shards)), table())
    stated = scaling_from(merged_summary(column_summaries(shards)), "none")
    assert (stated.center.any(), stated.scale.tolist()) == (False, [1.0] * 6)


def test_owners_targets_and_precision_stay():
    shards = Shards.from_arrays(
        table().astype(np.float32), np.arange(400.0), [150, 250], names=["a", "b"], columns=list("uvwxyz")
    )
    original = shards.rows.values.copy()
    scaled, _ = scale(shards, "standardise")
    assert scaled.rows.values.dtype == np.float32
    assert (scaled.names, scaled.columns, scaled.sizes.tolist()) == (shards.names, shards.columns, [150, 250])
    np.testing.assert_array_equal(scaled.targets, shards.targets)
    np.testing.assert_array_equal(shards.rows.values, original)


def test_a_sites_own_rows_take_the_common_scaling():
    values = table()
    whole = shards_of(values, [100, 300])
    fitted = scaling_from(merged_summary(column_summaries(whole)), "standardise")
    np.testing.assert_array_equal(
        values_of(fitted.apply(shards_of(values[100:], [300]))), values_of(fitted.apply(whole))[100:]
    )


def test_what_does_not_fit():
    shards = shards_of(table(), [400])
    with pytest.raises(DataError, match="unknown scaling 'minmax': use none, maxabs, standardise"):
        scale(shards, "minmax")
    with pytest.raises(DataError, match="no column summaries to merge"):
        merged_summary([])
    narrow = ColumnSummary(1, np.zeros(2), np.zeros(2), np.zeros(2))
    with pytest.raises(DataError, match="site 1 has 2 columns, but site 0 has 6"):
        merged_summary([*column_summaries(shards), narrow])
    with pytest.raises(DataError, match="the scaling is for 2 columns, the rows have 6"):
        scaling_from(narrow, "maxabs").apply(shards)
