"""Data sets by name, path or recipe, with targets ready for training."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from fedns.core.checked import checked
from fedns.core.errors import DataError, unknown
from fedns.lab.data import synthetic
from fedns.lab.data.catalogue import BUILT_IN_SHAPES, FOLDER_VARIABLE, RULES, Rule, archives, read_built_in
from fedns.lab.data.collection import fetch
from fedns.lab.data.collection.cache import is_cached, verify
from fedns.studies.tables.dataset import DTYPES, Dataset, check_dtype
from fedns.studies.tables.files import sources
from fedns.studies.tables.files.file_rows import FileRows
from fedns.studies.tables.labels import Task


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
    check_dtype(dtype)
    if str(name).startswith(synthetic.PREFIX):
        _refuse_settings(positive=positive, target=target, group=group, weight=weight, task=task)
        return _load_synthetic(str(name), dtype)
    name = _loaded_as(name)
    table, rule = _read(name, target, group, weight, None if folder is None else Path(folder))
    if rule.relabel is not None and positive is None and task in (None, rule.task):
        table = replace(table, targets=rule.relabel(table.targets))
    task = task or (rule.task if positive is None else None)
    return Dataset.of(table, Path(name).stem, positive=positive, task=task, dtype=dtype, note=rule.note)


def _load_synthetic(name: str, dtype: str) -> Dataset:
    spec = synthetic.parse(name)
    table = synthetic.generate(spec, DTYPES[dtype])
    task: Task = "binary" if spec.task == "binary" else "regression"
    return Dataset(**vars(table), name=name, task=task, description=spec.description)


def _read(
    name: str | Path, target: str | None, group: str | None, weight: str | None, folder: Path | None
) -> tuple[FileRows, Rule]:
    """The table behind a name or a path, and the rule of that name."""
    text = str(name)
    if isinstance(name, Path) or _looks_like_path(text):
        return sources.read(Path(name), target=target, group=group, weight=weight, folder=folder), Rule()
    rule = RULES.get(text, Rule()) if target is None else Rule()  # a rule is about the usual target
    if text in BUILT_IN_SHAPES:
        _refuse_settings(target=target, group=group, weight=weight)
        return read_built_in(text), rule
    found = archives()
    if text in found:
        if is_cached(found[text]):
            verify(found[text])
        return sources.read(found[text], target=target, group=group, weight=weight, folder=folder), rule
    if Path(text).is_file():  # a LIBSVM file without a suffix
        return sources.read(Path(text), target=target, group=group, weight=weight, folder=folder), Rule()
    raise DataError(_unknown(text, [*BUILT_IN_SHAPES, *found]))


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
