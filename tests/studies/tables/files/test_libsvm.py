"""The LIBSVM reader against scikit-learn's, and what it says about broken lines."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from fedns.core.errors import DataError
from fedns.studies.tables.files.libsvm import read_libsvm
from fedns.studies.tables.files.sources import read


def write(path, text):
    path.write_bytes(text.encode())
    return path


@pytest.fixture
def dumped(tmp_path):
    """A file with empty rows, negative and tiny values, and features up to column 40."""
    random = np.random.default_rng(1)
    features = scipy.sparse.random(300, 40, 0.1, format="csr", random_state=2)
    features.data = random.normal(size=features.nnz) * 10.0 ** random.integers(-12, 12, features.nnz)
    path = tmp_path / "dumped.libsvm"
    dump_svmlight_file(features, random.normal(size=300), str(path), zero_based=False)
    return path


def test_agrees_with_scikit_learn(dumped):
    features, targets = load_svmlight_file(str(dumped), zero_based=False)
    table = read(dumped)
    assert isinstance(table.features, scipy.sparse.csr_matrix)
    assert table.features.dtype == np.float64
    np.testing.assert_array_equal(table.features.toarray(), features.toarray())
    np.testing.assert_array_equal(table.targets, targets)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100, 5000])
def test_chunks_do_not_matter(dumped, chunk_bytes):
    whole, pieces = read_libsvm(dumped), read_libsvm(dumped, chunk_bytes)
    np.testing.assert_array_equal(pieces.features.toarray(), whole.features.toarray())
    np.testing.assert_array_equal(pieces.targets, whole.targets)


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed(dumped, suffix, compress):
    packed = dumped.with_name("dumped.libsvm" + suffix)
    packed.write_bytes(compress(dumped.read_bytes()))
    np.testing.assert_array_equal(read(packed).features.toarray(), read(dumped).features.toarray())


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_damaged_compression(dumped, suffix):
    compress = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
    whole = compress(dumped.read_bytes())
    cut = dumped.with_name("cut" + suffix)
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=f"cut{suffix} is damaged or cut short .*fetch it again"):
        read(cut)
    cut.write_bytes(b"not compressed at all")
    with pytest.raises(DataError, match=f"cut{suffix} is damaged"):
        read(cut)


@pytest.mark.parametrize("name", ["small", "small.t", "small.svm", "small.txt", "SMALL.TXT"])
def test_suffixes_and_small_things(tmp_path, name):
    """Comments, blank lines, tabs, carriage returns, a plus sign, a row without features, no newline at the end."""
    text = "# a comment\n+1 1:0.5\t3:2e1 # tail 9:9\r\n\n-1\n  2.5 2:-1 3:nan"
    table = read(write(tmp_path / name, text))
    np.testing.assert_array_equal(table.targets, [1, -1, 2.5])
    np.testing.assert_array_equal(table.features.toarray(), [[0.5, 0, 20], [0, 0, 0], [0, -1, np.nan]])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1 3:0.5 7:", "'7:' is not an index:value pair .is the line cut short"),
        ("1 3:0.5 :7", "':7' is not an index:value pair"),
        ("1 3:0.5 7: 8", "'7:' is not an index:value pair"),
        ("1 3 4:5 6:", "'3' is not an index:value pair"),
        ("1 3:4:5", "'3:4:5' is not an index:value pair"),
        ("1 3:4:5 6", "'3:4:5' is not an index:value pair"),
        ("1 3:0.5x", "'3:0.5x' is not an index:value pair"),
        ("1 3:1-2", "'3:1-2' is not an index:value pair"),
        ("1 qid:7 3:1", "'qid:7' is not an index:value pair"),
        ("3:0.5 4:1", "starts with '3:0.5', expected a number as the label"),
        ("yes 4:1", "starts with 'yes'"),
        ("1,2 4:1", "starts with '1,2'"),
        ("1 0:0.5", "index '0' must be a whole number from 1"),
        ("1 -4:0.5", "index '-4' must be"),
        ("1 2.5:0.5", "index '2.5' must be"),
        ("1 nan:0.5", "index 'nan' must be"),
        ("1 inf:0.5", "index 'inf' must be"),
        ("1 3000000000:0.5", "index '3000000000' must be"),
        ("1 4:1 4:2", "index 4 follows 4, but indices must increase"),
        ("1 4:1 3:2", "index 3 follows 4"),
        ("1 4:1 \u00e9", r"'\\xc3\\xa9' is not an index:value pair"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [16, 1 << 20])
def test_a_broken_line_is_named(tmp_path, line, problem, chunk_bytes):
    lines = ["1 1:2 3:4"] * 10 + ["", line] + ["-1 2:1"] * 5
    path = write(tmp_path / "phishing.libsvm", "\n".join(lines))
    with pytest.raises(DataError, match=r"phishing\.libsvm, line 12: " + problem):
        read_libsvm(path, chunk_bytes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty.libsvm is empty"),
        ("\n \n# nothing\n", "empty.libsvm is empty: expected lines like"),
        ("1\n-1\n", "holds labels but no 'index:value' pairs"),
    ],
)
def test_nothing_to_read(tmp_path, text, problem):
    with pytest.raises(DataError, match=problem):
        read(write(tmp_path / "empty.libsvm", text))


def test_column_names_make_no_sense_here(dumped):
    with pytest.raises(DataError, match="no named columns: leave out target='age'"):
        read(dumped, target="age")
