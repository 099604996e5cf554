"""Tables as people keep them, read column by column."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from fedns.core.errors import DataError
from fedns.studies.tables.files.frames import read_frame, split_frame


def written(tmp_path, text, name="table.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "encoding", "note"),
    [
        ("a,b\n1.5,x\n2.5,y\n", "utf-8", ""),
        ("a;b\n1,5;x\n2,5;y\n", "utf-8", "numbers have a decimal comma"),
        ("a\tb\n1.5\tx\n2.5\ty\n", "utf-8", "separated by a tab"),
        ("a|b\n1.5|x\n2.5|y\n", "utf-8", "separated by a bar"),
        ('"a","b"\n"1.5","x"\n"2.5","y"\n', "utf-8-sig", ""),
        ("a,b\r\n1.5,x\r\n2.5,y\r\n", "utf-16", "UTF-16"),
        ("a,b,c\n1.5,x,é\n2.5,y,é\n", "latin-1", "Windows-1252"),
    ],
)
def test_the_same_table_however_it_is_written(tmp_path, text, encoding, note):
    frame = read_frame(written(tmp_path, text, encoding=encoding))
    assert frame.columns["a"].kind == "number" and frame.columns["a"].values.tolist() == [1.5, 2.5]
    assert frame.columns["b"].kind == "text" and frame.columns["b"].values.tolist() == ["x", "y"]
    assert note in "; ".join(frame.notes)


def test_compressed(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert read_frame(path).columns["b"].values.tolist() == [2.0]


@pytest.mark.parametrize(
    ("cells", "kind", "labels"),
    [
        (["1", "2.0", "NA"], "number", ["1", "2", None]),
        (["1e3", "-.5", ""], "number", ["1000", "-0.5", None]),
        (["True", "false", "?"], "bool", ["true", "false", None]),
        (["2020-01-02", "2021-12-31", "null"], "date", ["2020-01-02", "2021-12-31", None]),
        (["007", "008", "009"], "text", ["007", "008", "009"]),
        (["1_000", "2", "3"], "text", ["1_000", "2", "3"]),
        (["", "NA", "n/a"], "empty", [None, None, None]),
        (["1", "two", "3"], "text", ["1", "two", "3"]),
    ],
)
def test_kinds_and_labels(tmp_path, cells, kind, labels):
    frame = read_frame(written(tmp_path, "x,y\n" + "".join(f'"{cell}",1\n' for cell in cells)))
    column = frame.columns["x"]
    assert column.kind == kind and list(column.labels()) == labels
    assert column.counts() == {label: 1 for label in labels if label is not None}


def test_units_in_the_header(tmp_path):
    frame = read_frame(written(tmp_path, "chol [mg/dL],age (years)\n200,50\n"))
    assert list(frame.columns) == ["chol", "age"] and frame.columns["chol"].unit == "mg/dL"


def test_pandas_with_nullable_and_categorical_columns():
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "flag": pd.array([True, None, False], dtype="boolean"),
            "level": pd.Categorical(["a", "b", None]),
            "day": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
            "number": [0.5, np.nan, 2.0],
        }
    )
    found = read_frame(frame).columns
    assert {name: column.kind for name, column in found.items()} == {
        "whole": "number", "flag": "bool", "level": "text", "day": "date", "number": "number",
    }  # fmt: skip
    assert all(column.missing.sum() == 1 for column in found.values())


def test_polars():
    polars = pytest.importorskip("polars")
    found = read_frame(polars.DataFrame({"a": [1, None], "b": ["x", "y"], "c": [True, False]})).columns
    assert [column.kind for column in found.values()] == ["number", "text", "bool"]
    assert found["a"].missing.tolist() == [False, True]


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_columnar_files(tmp_path, suffix):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]})
    path = tmp_path / f"t.{suffix}"
    getattr(frame, f"to_{suffix}")(path)
    assert read_frame(path).columns["b"].values.tolist() == ["x", None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n", "column names but no rows"),
        ("1,2\n3,4\n", "starts with numbers"),
        ("a,a\n1,2\n", "more than one column called 'a'"),
        ("a,b\n1,2\n3\n", "line 3: 1 cells, but the header has 2"),
        ("a\n1\n", "one column only"),
        ("a;b;c\n1,5;1.500;x\n2,5;2.500;y\n", "with a point, other columns with a decimal comma"),
        ("a,b\n1,1e999\n", "too large"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read_frame(written(tmp_path, text))


def test_unknown_things(tmp_path):
    with pytest.raises(DataError, match="tables are read from"):
        read_frame(written(tmp_path, "x", "table.xlsx"))
    with pytest.raises(DataError, match="is not a table"):
        read_frame(object())


def test_a_column_of_sites(tmp_path):
    frame = read_frame(written(tmp_path, "site,x\nb,1\na,2\nb,3\n"))
    parts = split_frame(frame, "site")
    assert list(parts) == ["b", "a"] and parts["b"].columns["x"].values.tolist() == [1.0, 3.0]
    with pytest.raises(DataError, match="no column 'where' of sites"):
        split_frame(frame, "where")
