"""Loading by name, path and recipe."""

import numpy as np
import pytest
import sklearn.datasets

from fedns.core.errors import DataError
from fedns.lab.data.catalogue import BUILT_IN_SHAPES, available
from fedns.lab.data.datasets import load
from fedns.studies.tables.files import npz


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of archives that FEDNS_DATA names."""
    monkeypatch.setenv("FEDNS_DATA", str(tmp_path))
    features = np.arange(12, dtype=np.int16).reshape(6, 2)
    np.savez(tmp_path / "letters.npz", X=features, y=np.array([0, 1, 2, 0, 1, 2]), source=np.array("made here"))
    np.savez(
        tmp_path / "heart_4sites_raw.npz",
        X=features,
        y=np.array([0, 4, 1, 0, 2, 3]),
        site=np.array([0, 0, 1, 1, 2, 2]),
        site_names=np.array(["a", "b", "c"]),
    )
    np.savez(tmp_path / "covtype.npz", X=features, y=np.array([-1, 1, 1, 1, 1, 1]), y7=np.array([1, 2, 2, 2, 2, 2]) * 3)
    return tmp_path


def test_scikit_learn_sets():
    features, targets = load("breast_cancer")
    expected = sklearn.datasets.load_breast_cancer()
    np.testing.assert_array_equal(features, expected.data)
    np.testing.assert_array_equal(targets, 2.0 * expected.target - 1)
    assert load("breast_cancer").columns[:2] == ("mean radius", "mean texture")
    digits = sklearn.datasets.load_digits().target
    np.testing.assert_array_equal(load("digits").targets, np.where(np.isin(digits, [0, 2, 4, 6, 8]), 1, -1))
    np.testing.assert_array_equal(load("digits", positive="3").targets, np.where(digits == 3, 1, -1))
    np.testing.assert_array_equal(load("digits", task="multiclass").targets, digits)
    diabetes = load("diabetes")
    assert diabetes.task == "regression"
    np.testing.assert_array_equal(diabetes.targets, sklearn.datasets.load_diabetes().target)


@pytest.mark.parametrize("name", BUILT_IN_SHAPES)
def test_the_list_states_what_loads(name):
    info = next(info for info in available() if info.name == name)
    dataset = load(name)
    assert (info.rows, info.columns, info.task) == (*dataset.features.shape, dataset.task)
    assert (dataset.num_samples, dataset.num_columns) == dataset.features.shape


def test_archives_by_name(folder):
    letters = load("letters")
    assert (letters.name, letters.task, letters.source) == ("letters", "multiclass", "made here")
    assert letters.features.dtype == np.float64
    np.testing.assert_array_equal(letters.targets, [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(load("letters", positive=2).targets, [-1, -1, 1, -1, -1, 1])
    assert load("letters", dtype="float32").features.dtype == np.float32
    with pytest.raises(DataError, match="dtype must be float64 or float32, got 'int8'"):
        load("letters", dtype="int8")


def test_rules_of_known_names(folder):
    heart = load("heart_4sites_raw")
    assert heart.task == "binary"
    np.testing.assert_array_equal(heart.targets, [-1, 1, 1, -1, 1, 1])
    assert heart.groups.tolist() == [0, 0, 1, 1, 2, 2]
    assert heart.group_names == ("a", "b", "c")
    np.testing.assert_array_equal(load("heart_4sites_raw", positive=4).targets, [-1, 1, -1, -1, -1, -1])
    np.testing.assert_array_equal(load("covtype").targets, [-1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(load("covtype", target="y7", task="regression").targets, [3, 6, 6, 6, 6, 6])


def test_the_list_reads_no_rows(folder, monkeypatch):
    """Only headers, targets and origins: an archive whose rows cannot be read is listed all the same."""
    monkeypatch.setattr(npz, "_features", lambda *_: pytest.fail("rows were read"))
    infos = {info.name: info for info in available()}
    assert (infos["letters"].rows, infos["letters"].columns) == (6, 2)
    assert (infos["letters"].task, infos["letters"].origin) == ("multiclass", "made here")
    assert infos["heart_4sites_raw"].task == "binary"
    assert infos["synthetic:susy"].rows == 5_000_000
    assert infos["synthetic:susy"].origin == "synthetic"


def test_one_bad_archive_does_not_hide_the_others(folder):
    (folder / "broken.npz").write_bytes(b"not an archive")
    np.savez(folder / "aimless.npz", X=np.ones((2, 2)))
    infos = {info.name: info for info in available()}
    assert "letters" in infos
    assert infos["broken"].task == "unreadable"
    assert "broken.npz is damaged" in infos["broken"].note
    assert "has no targets 'y'" in infos["aimless"].note


def test_files_by_path(tmp_path, monkeypatch):
    (tmp_path / "heart.csv").write_text("age,site,w,y\n63,B,1,yes\n41,A,2,no\n")
    heart = load(tmp_path / "heart.csv", group="site", weight="w")
    assert heart.columns == ("age",)
    assert heart.groups.tolist() == ["B", "A"]
    np.testing.assert_array_equal(heart.targets, [1, -1])
    np.testing.assert_array_equal(heart.sample_weights, [1, 2])
    np.testing.assert_array_equal(load(tmp_path / "heart.csv", group="site", weight="w", positive="no").targets, [-1, 1])
    (tmp_path / "plain").write_text("1 1:2\n2 2:3\n")
    monkeypatch.chdir(tmp_path)
    plain = load("plain")
    np.testing.assert_array_equal(plain.features.toarray(), [[2, 0], [0, 3]])
    np.testing.assert_array_equal(plain.targets, [-1, 1])
    assert load("plain", dtype="float32").features.dtype == np.float32


def test_names_that_lead_nowhere(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDNS_DATA", raising=False)
    with pytest.raises(DataError, match=r"unknown data set 'brest_cancer': did you mean breast_cancer\?.*FEDNS_DATA"):
        load("brest_cancer")
    with pytest.raises(DataError, match=r"unknown data set 'zzz': known are breast_cancer, .*FEDNS_DATA names"):
        load("zzz")
    with pytest.raises(DataError, match=r"zzz\.csv does not exist"):
        load("zzz.csv")
    with pytest.raises(DataError, match=r"some/zzz does not exist"):
        load("some/zzz")
    monkeypatch.setenv("FEDNS_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"FEDNS_DATA names '.*gone', which is not a folder"):
        load("covtype")
    assert load("diabetes").num_samples == 442  # needs no folder


def test_settings_that_do_not_apply():
    with pytest.raises(DataError, match="brings its own columns and targets: leave out target='age'"):
        load("breast_cancer", target="age")
    with pytest.raises(DataError, match="leave out positive='1'"):
        load("synthetic:rows=10", positive=1)


def test_synthetic_by_name():
    dataset = load("synthetic:rows=40,columns=3,sites=4", dtype="float32")
    assert dataset.features.shape == (40, 3)
    assert dataset.features.dtype == np.float32
    assert dataset.task == "binary"
    assert np.bincount(dataset.groups).tolist() == [10] * 4
    assert dataset.description.startswith("synthetic ")
    assert load("synthetic:rows=40,task=regression").task == "regression"
