"""The real archives, where FEDNS_DATA names their folder."""

import os

import numpy as np
import pytest
import scipy.sparse

from fedns.core.errors import DataError
from fedns.lab.data.catalogue import available
from fedns.lab.data.datasets import load
from fedns.lab.data.partition import split_dataset

pytestmark = pytest.mark.skipif(not os.environ.get("FEDNS_DATA"), reason="FEDNS_DATA is not set")

SHAPES = {
    "phishing": (11055, 68, "binary"),
    "cod_rna": (59535, 8, "binary"),
    "covtype": (581012, 54, "binary"),
    "susy_11k": (11000, 18, "binary"),
    "a9a": (32561, 123, "binary"),
    "a9a_t": (16281, 123, "binary"),
    "w8a": (49749, 300, "binary"),
    "mnist": (70000, 784, "multiclass"),
    "heart_4sites_raw": (920, 13, "binary"),
    "fed_heart_disease": (740, 13, "binary"),
    "school_139clients": (15362, 28, "regression"),
    "cal_housing": (20640, 8, "regression"),
    "abalone_scale": (4177, 8, "regression"),
}


def test_the_list_has_their_shapes():
    infos = {info.name: (info.rows, info.columns, info.task) for info in available()}
    assert {name: infos.get(name) for name in SHAPES} == SHAPES


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("mnist", "covtype")])
def test_they_load(name):
    dataset = load(name)
    assert (*dataset.features.shape, dataset.task) == SHAPES[name]
    assert scipy.sparse.issparse(dataset.features) == (name in ("phishing", "a9a", "a9a_t", "w8a"))
    assert dataset.features.dtype == np.float64
    assert dataset.source
    if dataset.task == "binary":
        assert np.unique(dataset.targets).tolist() == [-1, 1]


def test_the_hospitals():
    assert split_dataset(load("fed_heart_disease"), None, "group").sizes.tolist() == [303, 261, 46, 130]
    raw = load("heart_4sites_raw")
    assert raw.group_names == ("cleveland", "hungarian", "switzerland", "va")
    assert (raw.targets == 1).sum() == 509  # 411 of the 920 patients have no disease
    with pytest.raises(DataError, match=r"column '[a-z]+' has [0-9]+ missing"):
        split_dataset(raw, 4, "group")


def test_the_schools():
    shards = split_dataset(load("school_139clients"), 139, "group")
    assert shards.num_clients == 139
    assert shards.num_samples == 15362


def test_phishing_has_thirty_equal_entries_a_row():
    features, targets = load("phishing")
    assert (np.diff(features.indptr) == 30).all()
    assert np.ptp(features.data) < 1e-4
    assert features.data[0] == pytest.approx(0.18257, abs=1e-5)
    assert targets.size == 11055
