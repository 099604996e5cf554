"""Choosing a reader, and NumPy archives."""

import gzip

import numpy as np
import pytest
import scipy.sparse

from fedns.core.errors import DataError
from fedns.studies.tables.files.frames import read_frame
from fedns.studies.tables.files.npz import peek_member, peek_shape
from fedns.studies.tables.files.sources import read

X = np.arange(12, dtype=np.uint8).reshape(4, 3)
Y = np.array([0, 1, 1, 0], dtype=np.int8)


@pytest.fixture
def save(tmp_path):
    def save_members(**members):
        path = tmp_path / "heart.npz"
        np.savez_compressed(path, **members)
        return path

    return save_members


def csr_members(matrix):
    return {
        "indptr": matrix.indptr.astype(np.int32),
        "indices": matrix.indices.astype(np.uint16),
        "data": matrix.data,
        "shape": np.array(matrix.shape),
    }


def test_dense_archive_with_labels(save):
    path = save(
        X=X,
        y=Y,
        site=np.array([2, 0, 2, 0]),
        site_names=np.array(["bern", "chur", "genf"]),
        columns=np.array(["a", "b", "c"]),
        source=np.array("made here"),
        w=np.array([1, 2, 3, 4]),
    )
    table = read(path, weight="w")
    np.testing.assert_array_equal(table.features, X)
    np.testing.assert_array_equal(table.targets, Y)
    assert table.columns == ("a", "b", "c")
    assert table.groups.tolist() == [2, 0, 2, 0]
    assert table.group_names == ("bern", "genf")  # chur has no rows
    assert table.source == "made here"
    np.testing.assert_array_equal(table.sample_weights, [1, 2, 3, 4])


def test_sparse_archive(save):
    matrix = scipy.sparse.random(20, 70, 0.2, format="csr", random_state=0)
    table = read(save(**csr_members(matrix), y=np.zeros(20), client=np.arange(20)))
    assert isinstance(table.features, scipy.sparse.csr_matrix)
    np.testing.assert_array_equal(table.features.toarray(), matrix.toarray())
    assert table.groups.tolist() == list(range(20))
    assert table.group_names is None


def test_other_members_by_name(save):
    table = read(save(X=X, y=Y, y7=np.array([3, 4, 5, 6]), ward=np.array([1, 1, 0, 0])), target="y7", group="ward")
    assert table.targets.tolist() == [3, 4, 5, 6]
    assert table.groups.tolist() == [1, 1, 0, 0]


def test_shape_is_read_from_the_header(save):
    assert peek_shape(save(X=X, y=Y)) == (4, 3)
    assert peek_shape(save(**csr_members(scipy.sparse.csr_matrix((5, 9))), y=Y)) == (5, 9)
    path = save(X=X, y=Y)
    assert peek_member(path, "y").tolist() == Y.tolist()
    assert peek_member(path, "absent") is None


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"X": X}, "heart.npz has no member 'y': it has X"),
        ({"y": Y}, "holds no table: expected X, or the CSR pieces indptr, indices, data, shape; it has y"),
        ({"X": X[0], "y": Y}, r"X must be a table of numbers, got shape \(3,\)"),
        ({"X": X.astype(str), "y": Y}, "X must be a table of numbers"),
        ({"X": X, "y": Y[:3]}, r"'y' has shape \(3,\), expected one entry for each of 4 rows"),
        ({"X": X, "y": np.array([object()] * 4)}, r"heart.npz cannot be read \(.*allow_pickle=False.*\): save plain"),
        ({"X": X, "y": Y, "site": Y + 1, "site_names": np.array(["a", "b"])}, "2 names, so groups must be 0 to 1"),
        (
            {"indptr": np.array([0, 1]), "indices": np.array([5]), "data": np.ones(1), "shape": np.array([1, 3])},
            "heart.npz cannot be read",
        ),
    ],
)
def test_archive_problems_are_named(save, members, problem):
    with pytest.raises(DataError, match=problem):
        read(save(**members))


def test_damaged_archives(save, tmp_path):
    path = save(X=X, y=Y)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"heart.npz is damaged or not an .npz archive"):
        read(path)
    with pytest.raises(DataError, match=r"heart.npz is damaged or not an .npz archive"):
        peek_shape(path)
    np.save(tmp_path / "plain.npy", X)
    (tmp_path / "plain.npy").rename(tmp_path / "plain.npz")
    with pytest.raises(DataError, match=r"plain.npz is not an .npz archive: write it with numpy.savez"):
        read(tmp_path / "plain.npz")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"nowhere.csv does not exist: check the path"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match=r"is a folder without X.npy: name a file, or a folder"):
        read(tmp_path)
    with pytest.raises(DataError, match="is a folder: name a file in it"):
        read_frame(tmp_path)
    for name in ("empty.npz", "empty.csv", "empty.parquet", "empty.svm"):
        (tmp_path / name).touch()
        with pytest.raises(DataError, match=f"{name} is empty"):
            read(tmp_path / name)
    (tmp_path / "notes.docx").write_text("x")
    with pytest.raises(DataError, match=r"notes.docx has an unknown suffix: use .*\.csv.*\.libsvm.*\.npz, \.parquet"):
        read(tmp_path / "notes.docx")
    (tmp_path / "table.npz.gz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(DataError, match="compresses by itself: unpack it first"):
        read(tmp_path / "table.npz.gz")
