"""The same fit from any kind of table: files of every format, compressed or not, and frames with columns of every type."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.feather
import pytest

from fedns.core.errors import DataError
from fedns.studies.fit import fit_study
from fedns.studies.study import Study

STUDY = Study(
    "ill ~ age + visits + arm + C(smoker)", "binomial", event=("case",), non_event=("control",), missing="complete"
)


@pytest.fixture
def rows(three_sites) -> pd.DataFrame:
    """A number, a whole number with gaps, a category, yes or no, and an outcome."""
    frame = three_sites["north"]
    random = np.random.default_rng(3)
    return frame[["age", "arm", "ill"]].assign(
        visits=pd.array(np.where(random.random(len(frame)) < 0.1, None, random.integers(0, 9, len(frame))), dtype="Int64"),
        smoker=random.random(len(frame)) < 0.4,
    )


def as_csv(rows, folder):
    rows.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def as_gzip(rows, folder):
    path = folder / "t.csv.gz"
    path.write_bytes(gzip.compress(rows.to_csv(index=False, sep=";").encode("utf-8-sig")))
    return path


def as_parquet(rows, folder):
    rows.astype({"arm": "category", "ill": "category"}).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def as_feather(rows, folder):
    pyarrow.feather.write_feather(pa.Table.from_pandas(rows), folder / "t.feather", compression="lz4")
    return folder / "t.feather"


def as_arrow(rows, folder):
    table = pa.Table.from_pandas(rows, preserve_index=False)
    with pa.OSFile(str(folder / "t.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return folder / "t.arrow"


def as_pandas(rows, folder):
    return rows.astype({"arm": "category", "smoker": "boolean", "ill": "string", "age": "Float64"})


def as_pandas_over_arrow(rows, folder):
    return rows.convert_dtypes(dtype_backend="pyarrow")


def as_polars(rows, folder):
    plain = {name: [None if pd.isna(value) else value for value in rows[name].tolist()] for name in rows}
    kinds = {"arm": polars.Categorical, "ill": polars.Enum(["case", "control"]), "visits": polars.Int16}
    return polars.DataFrame(plain, schema_overrides=kinds)


def as_columns(rows, folder):
    return {name: [None if pd.isna(value) else value for value in rows[name].tolist()] for name in rows}


KINDS = (
    as_csv, as_gzip, as_parquet, as_feather, as_arrow, as_pandas, as_pandas_over_arrow, as_polars, as_columns
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.removeprefix("as_"))
def test_the_same_fit_from_any_kind_of_table(kind, rows, three_sites, tmp_path):
    others = three_sites["south"].assign(visits=3 + (three_sites["south"]["dose"] > 90) * 1, smoker=True)
    others.loc[:30, "smoker"] = False
    expected = fit_study(STUDY, {"here": rows, "there": others})
    found = fit_study(STUDY, {"here": kind(rows, tmp_path), "there": others})
    assert expected.names == ("Intercept", "age", "visits", "arm[low]", "arm[placebo]", "smoker[true]")
    assert found.names == expected.names and found.coefficients.tobytes() == expected.coefficients.tobytes()
    assert found.num_rows == expected.num_rows == rows["visits"].notna().sum() + len(others)


def test_what_is_no_table_is_said_so(three_sites):
    with pytest.raises(DataError, match="site 'here': a Series is not a table: give a path, a pandas or polars frame"):
        fit_study(STUDY, {"here": polars.Series([1, 2, 3]), "there": three_sites["south"]})
    nested = polars.DataFrame({"age": [[1], [2]], "ill": ["case", "control"]})
    with pytest.raises(DataError, match="site 'here': the table: column 'age' holds lists or records"):
        fit_study(Study("ill ~ age", "binomial", event=("case",), non_event=("control",)), {"here": nested})
