"""Data sets by name, path or recipe, with targets ready for training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.checked import checked
from fedns.core.errors import DataError, unknown
from fedns.lab.data import synthetic, unpacked
from fedns.lab.data.catalogue import BUILT_IN_SHAPES, FOLDER_VARIABLE, RULES, Rule, archives, read_built_in
from fedns.lab.data.collection import fetch
from fedns.lab.data.collection.cache import is_cached, verify
from fedns.numerics.streaming import file_of
from fedns.studies.tables.files import sources
from fedns.studies.tables.files.table import Table
from fedns.studies.tables.labels import Task, encode_targets

_DTYPES = {"float64": np.float64, "float32": np.float32}


@dataclass(frozen=True, eq=False)
class Dataset(Table):
    """Rows and targets, not yet given to clients; iterates as `features, targets`.

    - features: (rows, columns), an array or a scipy.sparse matrix.
    - targets: (rows,), -1 and +1 where the task is binary.
    - columns: their names.
    - groups: (rows,), the natural site of each row.
    - group_names: one per distinct group, in sorted order of the labels.
    - sample_weights: (rows,).
    - source: where it came from.
    - description: in words.
    - name: of the set.
    - task: binary, regression or multiclass.
    """

    example: ClassVar[str] = "fedns.load(NAME)"
    name: str = field(kw_only=True)
    task: Task = field(kw_only=True)
    targets: NDArray[np.float64]  # -1 and +1 where the task is binary
    description: str = ""

    def __iter__(self) -> Iterator[Any]:
        yield self.features
        yield self.targets

    @property
    def num_samples(self) -> int:
        return int(self.features.shape[0])

    @property
    def num_columns(self) -> int:
        return int(self.features.shape[1])


@checked
def load(
    name: str | Path,
    *,
    positive: float | str | None = None,
    target: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    task: str | None = None,
    dtype: str = "float64",
    folder: str | Path | None = None,
) -> Dataset:
    """Rows and targets of a named set, of a file, or of `synthetic:rows=...,columns=...`.

    - name: of a set that `fedns datasets` lists, or a path: LIBSVM text, .npz, .csv, .tsv, .parquet, .arrow or .feather,
      or a folder that an .npz was unpacked into.
    - positive: the label that becomes +1, all others -1. Without it, the larger of two labels does.
    - target: the column of the targets in a table, or the member of an archive.
    - group: the column of the sites.
    - weight: the column of sample weights.
    - task: binary, regression or multiclass, where the values of the targets would suggest another.
    - dtype: float64 or float32.
    - folder: where a file that is larger than memory is taken apart, once; the cache unless given. Its rows are then read
      from there in every pass (.npz, .parquet and LIBSVM text).
    """
    if dtype not in _DTYPES:
        raise DataError(f"dtype must be float64 or float32, got '{dtype}'")
    if str(name).startswith(synthetic.PREFIX):
        _refuse_settings(positive=positive, target=target, group=group, weight=weight, task=task)
        return _load_synthetic(str(name), dtype)
    name = _loaded_as(name)
    table, rule = _read(name, target, group, weight, None if folder is None else Path(folder))
    targets = table.targets
    if rule.relabel is not None and positive is None and task in (None, rule.task):
        targets = rule.relabel(targets)
    suggested = rule.task if positive is None else None
    encoded, decided = encode_targets(targets, positive=positive, task=task or suggested)
    rows, columns = table.features.shape
    ready = replace(table, features=_cast(table.features, dtype), targets=encoded)
    note = f"; {rule.note}" if rule.note else ""
    described = f"{rows} rows, {columns} columns, {decided}{note}"
    return Dataset(**vars(ready), name=Path(name).stem, task=decided, description=described)


def _load_synthetic(name: str, dtype: str) -> Dataset:
    spec = synthetic.parse(name)
    table = synthetic.generate(spec, _DTYPES[dtype])
    task: Task = "binary" if spec.task == "binary" else "regression"
    return Dataset(**vars(table), name=name, task=task, description=spec.description)


def _read(
    name: str | Path, target: str | None, group: str | None, weight: str | None, folder: Path | None
) -> tuple[Table, Rule]:
    """The table behind a name or a path, and the rule of that name."""
    text = str(name)
    if isinstance(name, Path) or _looks_like_path(text):
        return _file(Path(name), target, group, weight, folder), Rule()
    rule = RULES.get(text, Rule()) if target is None else Rule()  # a rule is about the usual target
    if text in BUILT_IN_SHAPES:
        _refuse_settings(target=target, group=group, weight=weight)
        return read_built_in(text), rule
    found = archives()
    if text in found:
        if is_cached(found[text]):
            verify(found[text])
        return _file(found[text], target, group, weight, folder), rule
    if Path(text).is_file():  # a LIBSVM file without a suffix
        return _file(Path(text), target, group, weight, folder), Rule()
    raise DataError(_unknown(text, [*BUILT_IN_SHAPES, *found]))


def _file(path: Path, target: str | None, group: str | None, weight: str | None, folder: Path | None) -> Table:
    if path.is_dir():
        return unpacked.read_folder(path, target, group, weight)
    if unpacked.too_large(path):
        return unpacked.read_large(path, target, group, weight, folder)
    return sources.read(path, target=target, group=group, weight=weight)


def _loaded_as(name: str | Path) -> str | Path:
    """The name of the archive where a set of the LIBSVM collection is named as it is there: cod_rna_t for cod-rna.t."""
    remote = fetch.find(name) if isinstance(name, str) else None
    if remote is None or Path(name).is_file() or name in archives():
        return name
    return remote.archive_name


def _looks_like_path(name: str) -> bool:
    in_folder = os.sep in name or (os.altsep is not None and os.altsep in name)
    return in_folder or Path(name).suffix.lower() in sources.KNOWN_SUFFIXES


def _unknown(name: str, names: list[str]) -> str:
    if fetch.find(name) is not None:
        return f"the data set '{name}' is not on this machine: download it with `fedns data fetch {name}`"
    presets = [synthetic.PREFIX + preset for preset in synthetic.PRESETS]
    return (
        f"{unknown('data set', name, [*names, *presets])}, files by path, and the .npz files in the folder that the "
        f"environment variable {FOLDER_VARIABLE} names"
    )


def _refuse_settings(**settings: float | str | None) -> None:
    for key, value in settings.items():
        if value is not None:
            raise DataError(f"this data set brings its own columns and targets: leave out {key}='{value}'")


def _cast(features: Any, dtype: str) -> Any:
    if scipy.sparse.issparse(features):
        return features if file_of(features.data) else features.astype(_DTYPES[dtype], copy=False)
    # What is mapped from a file stays there, in the type it has.
    return features if file_of(features) else np.ascontiguousarray(features, dtype=_DTYPES[dtype])
