"""Tables larger than memory: the same numbers and the same fit as when they are read whole."""

import zipfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse

import fedns
from fedns.core.errors import DataError
from fedns.numerics import memory
from fedns.numerics.streaming import file_of, streamed

ROWS = 400


def features(kind, sparse=False):
    random = np.random.default_rng(0)
    values = random.integers(0, 200, (ROWS, 5)).astype(float) if kind == np.uint8 else random.standard_normal((ROWS, 5))
    if sparse:
        values = np.hstack([values, np.zeros((ROWS, 15))])
        values[random.random(values.shape) < 0.4] = 0.0
    return values.astype(kind)


def targets():
    return np.where(np.random.default_rng(1).random(ROWS) < 0.5, -1.0, 1.0)


def write_parquet(path, values):
    columns = {f"x{c}": values[:, c] for c in range(values.shape[1])}
    columns |= {"y": targets(), "hospital": np.repeat(["b", "a"], ROWS // 2), "w": np.arange(ROWS) + 1.0}
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, path, row_group_size=70)


def write_libsvm(path, values):
    lines = (
        f"{y:g} " + " ".join(f"{c + 1}:{float(v)!r}" for c, v in enumerate(row) if v)
        for y, row in zip(targets(), values, strict=True)
    )
    path.write_text("\n".join(lines) + "\n")


def write_npz(path, values):
    np.savez(path, X=values, y=targets())


def write_sparse_npz(path, values):
    csr = scipy.sparse.csr_matrix(values)
    np.savez(path, data=csr.data, indices=csr.indices.astype(np.uint8), indptr=csr.indptr, shape=csr.shape, y=targets())


CASES = {
    "parquet": (write_parquet, "t.parquet", False, {"target": "y", "group": "hospital", "weight": "w"}),
    "libsvm": (write_libsvm, "t.libsvm", True, {}),
    "npz": (write_npz, "t.npz", False, {}),
    "compressed npz": (write_sparse_npz, "t.npz", True, {}),
}


def dense(matrix):
    return matrix.toarray() if scipy.sparse.issparse(matrix) else np.asarray(matrix)


@pytest.mark.parametrize("kind", [np.float64, np.uint8])
@pytest.mark.parametrize("case", CASES)
def test_a_large_file_has_the_numbers_and_the_fit_of_a_small_one(tmp_path, case, kind):
    write, name, sparse, roles = CASES[case]
    path = tmp_path / name
    write(path, features(kind, sparse))
    small = fedns.load(path, **roles)
    with memory.limited(500):
        large = fedns.load(path, **roles, folder=tmp_path)
        np.testing.assert_array_equal(dense(small.features), dense(large.features))
        np.testing.assert_array_equal(small.targets, large.targets)
        assert small.columns == large.columns
        if roles:
            np.testing.assert_array_equal(small.sample_weights, large.sample_weights)
            np.testing.assert_array_equal(small.groups, large.groups)
        runs = [fedns.split(*data, clients=3, how="contiguous") for data in (small, large)]
        assert [streamed(shards.rows) for shards in runs] == [False, True]
        one, two = (fedns.simulate(fedns.GradientDescent(), fedns.Problem(), shards, rounds=2) for shards in runs)
    np.testing.assert_array_equal(one.coefficients, two.coefficients)


def test_a_parquet_file_is_kept_in_the_smallest_type(tmp_path):
    write_parquet(tmp_path / "t.parquet", features(np.uint8))
    with memory.limited(500):
        data = fedns.load(tmp_path / "t.parquet", target="y", group="hospital", weight="w", folder=tmp_path)
    assert data.features.dtype == np.uint8


def test_a_file_is_taken_apart_once_and_again_when_it_changes(tmp_path):
    path = tmp_path / "t.npz"
    places = set()
    for seed in (0, 0, 1):
        if seed or not places:
            np.savez(path, X=np.random.default_rng(seed).random((ROWS + seed, 3)), y=np.ones(ROWS + seed))
        with memory.limited(500):
            places.add(file_of(fedns.load(path, task="regression", folder=tmp_path).features)[0])
    assert len(places) == 2 and not list(tmp_path.glob("unpacked/*.partial"))


def test_an_archive_that_was_unpacked_by_hand(tmp_path):
    write_npz(tmp_path / "t.npz", features(np.float64))
    with zipfile.ZipFile(tmp_path / "t.npz") as archive:
        archive.extractall(tmp_path / "t")
    np.testing.assert_array_equal(fedns.load(tmp_path / "t").features, features(np.float64))
    with pytest.raises(DataError, match=r"a folder without X.npy"):
        fedns.load(tmp_path)


def test_what_would_move_or_copy_every_row_is_refused(tmp_path):
    write_npz(tmp_path / "t.npz", features(np.float64))
    with memory.limited(500):
        data = fedns.load(tmp_path / "t.npz", folder=tmp_path)
        with pytest.raises(DataError, match=r"split 'iid' moves its rows: use 'contiguous'"):
            fedns.split(*data, clients=3)
        with pytest.raises(DataError, match=r"cannot be scaled here"):
            fedns.scale(fedns.split(*data, clients=3, how="contiguous"), "maxabs")


def test_text_in_a_column_of_a_large_parquet_file_is_named(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"a": ["x", "y"] * 500, "y": [0, 1] * 500}), tmp_path / "t.parquet")
    with memory.limited(100), pytest.raises(DataError, match=r"column 'a' holds something that is not a number"):
        fedns.load(tmp_path / "t.parquet", folder=tmp_path)
