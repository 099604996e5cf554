"""Missing values: refused, dropped or filled in."""

import numpy as np
import pytest

import fedns
from fedns.core.errors import DataError
from fedns.lab.data.partition import split_dataset
from fedns.studies.tables.dataset import Dataset
from fedns.studies.tables.missing import treat_missing

NAN = np.nan


@pytest.fixture
def gappy():
    features = np.array([[1.0, 2.0], [NAN, 4.0], [5.0, NAN], [9.0, 6.0]])
    site = np.array([0, 1, 1, 2])
    targets, weights = np.array([1.0, -1.0, 1.0, -1.0]), np.arange(1.0, 5.0)
    return Dataset(features, targets, ("a", "b"), site, ("x", "y", "z"), weights, name="gappy", task="binary")


def test_the_mean_is_over_the_rows_that_have_a_value(gappy):
    filled = treat_missing(gappy, "mean")
    np.testing.assert_array_equal(filled.features, [[1, 2], [5, 4], [5, 4], [9, 6]])
    assert "2 missing values replaced" in filled.description
    assert np.isnan(gappy.features).sum() == 2  # the caller's are left alone


def test_rows_are_dropped_with_all_that_belongs_to_them(gappy):
    kept = treat_missing(gappy, "rows")
    np.testing.assert_array_equal(kept.features, [[1, 2], [9, 6]])
    np.testing.assert_array_equal(kept.targets, [1, -1])
    np.testing.assert_array_equal(kept.sample_weights, [1, 4])
    assert kept.group_names == ("x", "z")


def test_nothing_happens_where_nothing_is_missing_or_asked_for(gappy):
    assert treat_missing(gappy, "refuse") is gappy
    complete = fedns.load("breast_cancer")
    assert treat_missing(complete, "mean") is complete


def test_what_cannot_be_done_is_said(gappy):
    with pytest.raises(DataError, match="unknown treatment 'guess'"):
        treat_missing(gappy, "guess")
    gappy.features[:, 0] = NAN
    with pytest.raises(DataError, match="column 'a' of 'gappy' has no value at all"):
        treat_missing(gappy, "mean")
    with pytest.raises(DataError, match="every row of 'gappy' misses a value"):
        treat_missing(gappy, "rows")


def test_four_hospitals(real_data):
    raw = real_data("heart_4sites_raw")
    filled = treat_missing(raw, "mean")
    np.testing.assert_allclose(filled.features.mean(axis=0), np.nanmean(raw.features, axis=0))
    assert split_dataset(filled, None, "group", 0).num_clients == 4
