"""The named data sets: scikit-learn's, and every archive in the folder that FEDNS_DATA names or in the cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.lab.data import synthetic
from fedns.lab.data.collection.cache import cached_archives, is_cached
from fedns.studies.tables.files.file_rows import FileRows
from fedns.studies.tables.files.npz import peek_member, peek_shape
from fedns.studies.tables.labels import Task, infer_task

FOLDER_VARIABLE = "FEDNS_DATA"


@dataclass(frozen=True)
class DatasetInfo:
    """One line of the list of data sets."""

    name: str
    rows: int
    columns: int
    task: str
    origin: str
    note: str


@dataclass(frozen=True)
class Rule:
    """The meaning of a name beyond the numbers in the file."""

    task: Task | None = None  # None: judged by the values
    note: str = ""
    relabel: Callable[[NDArray[Any]], NDArray[Any]] | None = None  # before labels become -1 and +1


RULES = {
    "breast_cancer": Rule("binary", "benign = +1"),
    "digits": Rule("binary", "even digits = +1; positive=D for one digit against the rest", lambda y: y % 2 == 0),
    "diabetes": Rule("regression", "disease progression after a year"),
    "covtype": Rule("binary", "class 2 = +1, the rest -1; target='y7' for the seven classes; unscaled"),
    "mnist": Rule("multiclass", "ten digits; positive=D for one digit against the rest; the first 60000 rows train"),
    "heart_4sites_raw": Rule("binary", "disease (y > 0) = +1; four hospitals; has missing values", lambda y: y > 0),
    "fed_heart_disease": Rule("binary", "disease = +1; four hospitals; complete rows, not normalised"),
    "school_139clients": Rule("regression", "exam scores; 139 schools; the last column is the constant 1"),
    "cal_housing": Rule("regression", "median house value"),
    "abalone_scale": Rule("regression", "rings; columns scaled"),
    "susy_11k": Rule("binary", "11000 of the 5000000 rows, partly sorted by class: use a split that shuffles"),
    "SUSY": Rule("binary"),  # given here, as judging millions of targets would slow the list of data sets
    "HIGGS": Rule("binary"),
    "phishing": Rule("binary", "rank 39 of 68"),
    "cod_rna": Rule("binary", "badly scaled columns"),
    "cod_rna_t": Rule("binary", "test rows of cod_rna"),
    "a9a": Rule("binary"),
    "a9a_t": Rule("binary", "test rows of a9a"),
    "w8a": Rule("binary", "3 % positive"),
    "w8a_t": Rule("binary", "test rows of w8a"),
}

BUILT_IN_SHAPES = {"breast_cancer": (569, 30), "digits": (1797, 64), "diabetes": (442, 10)}


def read_built_in(name: str) -> FileRows:
    """One of scikit-learn's own data sets, which need no download."""
    import sklearn.datasets

    bunch = getattr(sklearn.datasets, f"load_{name}")()
    columns = tuple(str(column) for column in bunch.feature_names)
    return FileRows(bunch.data, np.asarray(bunch.target), columns, source=f"scikit-learn {name}")


def archives() -> dict[str, Path]:
    """The archives by name: those in the folder of FEDNS_DATA, then those in the cache that it does not hold."""
    found = _archives_in_folder()
    found |= {name: path for name, path in cached_archives().items() if name not in found}
    return {name: path for name, path in found.items() if name not in BUILT_IN_SHAPES}


def _archives_in_folder() -> dict[str, Path]:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise DataError(f"{FOLDER_VARIABLE} names '{folder}', which is not a folder: point it to one with .npz files")
    return {path.stem: path for path in sorted(Path(folder).glob("*.npz"))}


def names_at_hand() -> list[str]:
    """Data sets that can be loaded by name."""
    return [*BUILT_IN_SHAPES, *archives()]


def available() -> list[DatasetInfo]:
    """Every named data set; of archives only headers and targets are read."""
    built_in = [
        DatasetInfo(name, *shape, str(RULES[name].task), "scikit-learn", RULES[name].note)
        for name, shape in BUILT_IN_SHAPES.items()
    ]
    shapes = [
        DatasetInfo(synthetic.PREFIX + name, spec.rows, spec.columns, spec.task, "synthetic", f"{spec.sites} sites")
        for name, spec in synthetic.PRESETS.items()
    ]
    return built_in + [_archive_info(name, path) for name, path in archives().items()] + shapes


def shape_of(name: str) -> tuple[int, int] | None:
    """Rows and columns of a named or synthetic set without reading it; None where that is not known."""
    if name.startswith(synthetic.PREFIX):
        spec = synthetic.parse(name)
        return spec.rows, spec.columns
    if name in BUILT_IN_SHAPES:
        return BUILT_IN_SHAPES[name]
    found = archives().get(name)
    return None if found is None else peek_shape(found)


def _archive_info(name: str, path: Path) -> DatasetInfo:
    try:
        rows, columns = peek_shape(path)
        rule = RULES.get(name, Rule())
        source = peek_member(path, "source")
        task = rule.task or infer_task(_targets(path))
    except DataError as error:
        # One bad file must not hide the others.
        return DatasetInfo(name, 0, 0, "unreadable", path.name, str(error))
    origin = "cache" if is_cached(path) else str(source) if source is not None else path.name
    return DatasetInfo(name, rows, columns, task, origin, rule.note)


def _targets(path: Path) -> NDArray[Any]:
    targets = peek_member(path, "y")
    if targets is None:
        raise DataError(f"{path.name} has no targets 'y': name another member with target=...")
    return targets
