"""CSV and Parquet tables, against pyarrow, and what the readers say about bad cells."""

import gzip
import sys

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.studies.tables.files.sources import read

HEART = "age,site,chol,y\n63,Basel,233,1\n41,Zug,,0\n57,Basel,NaN,1\n"


@pytest.fixture
def write(tmp_path):
    def write_text(text, name="heart.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_text


@pytest.fixture
def write_parquet(tmp_path):
    def write_columns(columns):
        path = tmp_path / "heart.parquet"
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return path

    return write_columns


def test_csv_agrees_with_pyarrow(tmp_path):
    names = ["a", "b", "label", "c"]
    values = np.random.default_rng(0).normal(size=(100, 4))
    path = tmp_path / "numbers.csv"
    pyarrow.csv.write_csv(pyarrow.table(dict(zip(names, values.T, strict=True))), path)
    expected = pyarrow.csv.read_csv(path)
    table = read(path)
    assert table.columns == ("a", "b", "c")
    np.testing.assert_array_equal(table.targets, expected["label"].to_numpy())
    for column, name in enumerate(table.columns):
        np.testing.assert_array_equal(table.features[:, column], expected[name].to_numpy())


def test_group_missing_values_and_compression(write, tmp_path):
    table = read(write(HEART), group="site")
    assert table.columns == ("age", "chol")
    assert table.groups.tolist() == ["Basel", "Zug", "Basel"]
    np.testing.assert_array_equal(table.features, [[63, 233], [41, np.nan], [57, np.nan]])
    np.testing.assert_array_equal(table.targets, [1, 0, 1])
    packed = tmp_path / "heart.csv.gz"
    packed.write_bytes(gzip.compress(HEART.encode()))
    np.testing.assert_array_equal(read(packed, group="site").features, table.features)
    with pytest.raises(DataError, match="column 'chol' has 2 missing"):
        Shards.from_arrays(table.features, table.targets, [3], columns=table.columns)


def test_default_target_is_the_last_column(write):
    table = read(write("a,b,c\n1,2,3\n4,5,6\n"))
    assert table.columns == ("a", "b")
    np.testing.assert_array_equal(table.targets, [3, 6])


def test_named_target_and_weight(write):
    table = read(write("a,y,w,b\n1,2,0.5,4\n1,3,2,5\n"), target="b", weight="w")
    assert table.columns == ("a", "y")
    np.testing.assert_array_equal(table.targets, [4, 5])
    np.testing.assert_array_equal(table.sample_weights, [0.5, 2])


def test_the_group_is_never_the_default_target(write):
    assert read(write("a,b,site\n1,2,x\n"), group="site").columns == ("a",)


def test_text_targets_are_kept(write):
    assert read(write("a,label\n1, yes\n2,no\n")).targets.tolist() == ["yes", "no"]


def test_integer_groups_sort_as_numbers_and_others_as_text(write):
    assert read(write("a,site,y\n1,10,0\n1,9,1\n"), group="site").groups.tolist() == [10, 9]
    assert read(write("a,site,y\n1,07,0\n1,7,1\n"), group="site").groups.tolist() == ["07", "7"]


def test_byte_order_mark_quotes_and_blank_lines(write):
    table = read(write('\ufeff"a, b",y\r\n"1",2\r\n\r\n3,4\r\n'))
    assert table.columns == ("a, b",)
    np.testing.assert_array_equal(table.features, [[1], [3]])


@pytest.mark.parametrize(
    ("text", "names", "problem"),
    [
        ("", {}, "heart.csv is empty"),
        ("\n", {}, "heart.csv is empty: expected a first line of column names"),
        ("a,y\n", {}, "has column names but no rows"),
        ("1,2\n3,4\n", {}, "starts with numbers: add a first line of column names"),
        ("a,,y\n1,2,3\n", {}, "line 1: column 2 has no name"),
        ("a,a,y\n1,2,3\n", {}, "more than one column called 'a': rename"),
        ("y\n1\n", {}, "has one column only: expected columns separated by comma, semicolon, tab or bar"),
        ("site,y\nA,1\n", {"group": "site"}, "no feature columns beside 'y', 'site'"),
        ("a,b,y\n1,2,3\n1,2\n", {}, "line 3: 2 cells, but the header has 3"),
        (HEART, {}, r"line 2: column 'site' holds 'Basel', which is not a number: .*\(group='site'\)"),
        ("a,y\n1,2\n,3\n4x,5\n", {}, "line 4: column 'a' holds '4x'"),
        ("a,y\n1,0.5\n2,0.25\n3,o.5\n", {}, "line 4: column 'y' holds 'o.5', which is not a number: correct that"),
        ("a,y\n1,yes\n2,\n", {}, "line 3: the target 'y' is missing: drop that row"),
        ("a,w,y\n1,much,2\n", {"weight": "w"}, "line 2: column 'w' holds 'much'"),
        ("a,site,y\n1,A,2\n1,,2\n", {"group": "site"}, "line 3: the group column 'site' is empty"),
        (HEART, {"target": "dead"}, "no target column 'dead': it has 'age', 'site', 'chol', 'y'"),
        (HEART, {"group": "clinic"}, "no group column 'clinic'"),
        (HEART, {"group": "y", "target": "y"}, "must be three different columns"),
        ('a,y\n1,"2\n', {}, "line 2: unexpected end of data"),
    ],
)
def test_csv_problems_are_named(write, text, names, problem):
    with pytest.raises(DataError, match=problem):
        read(write(text), **names)


def test_what_a_study_reads_is_read(write, tmp_path):
    path = tmp_path / "sizes.csv"
    path.write_bytes("größe;klinik;y\n1,5;Zürich;0\n2,25;Genève;1\n".encode("latin-1"))
    table = read(path, group="klinik")
    assert table.columns == ("größe",) and table.groups.tolist() == ["Zürich", "Genève"]
    np.testing.assert_array_equal(table.features, [[1.5], [2.25]])
    table = read(write("a\tsmoker\ty\n007\ttrue\t1\n8\tfalse\t0\n", "heart.tsv"))
    np.testing.assert_array_equal(table.features, [[7, 1], [8, 0]])


def test_labels_of_truth_are_texts(write):
    assert read(write("a,y\n1,true\n2,false\n")).targets.tolist() == ["true", "false"]


def test_parquet(write_parquet):
    path = write_parquet(
        {
            "age": pyarrow.array([63, None, 57], pyarrow.int16()),
            "smoker": [True, False, None],
            "site": pyarrow.array(["Zug", "Basel", "Zug"]).dictionary_encode(),
            "y": [1.5, 2.5, 3.5],
            "weight": pyarrow.array([1, 2, 3], pyarrow.decimal128(5, 1)),
        }
    )
    table = read(path, group="site", weight="weight")
    assert table.columns == ("age", "smoker")
    np.testing.assert_array_equal(table.features, [[63, 1], [np.nan, 0], [57, np.nan]])
    np.testing.assert_array_equal(table.targets, [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(table.sample_weights, [1, 2, 3])
    assert table.groups.tolist() == ["Zug", "Basel", "Zug"]


def test_parquet_integer_groups_stay_integers(write_parquet):
    assert read(write_parquet({"a": [1.0, 2.0], "client": [10, 9], "y": [0, 1]}), group="client").groups.tolist() == [
        10,
        9,
    ]


def test_parquet_problems_are_named(write_parquet, tmp_path):
    path = write_parquet({"a": [1.0, 2.0], "sex": ["1", "f"], "y": [0, 1]})
    with pytest.raises(DataError, match=r"heart.parquet, row 2: column 'sex' holds 'f', which is not a number"):
        read(path)
    with pytest.raises(DataError, match=r"row 1: the group column 'site' is empty"):
        read(write_parquet({"a": [1.0], "site": pyarrow.array([None], pyarrow.int32()), "y": [0]}), group="site")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match=r"broken.parquet cannot be read as Parquet"):
        read(broken)


def test_parquet_without_pyarrow_names_the_extra(write_parquet, monkeypatch):
    path = write_parquet({"a": [1.0], "y": [0]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs pyarrow: install it with pip install 'fedns\[parquet\]'"):
        read(path)
