"""Reading a file, whatever its format: LIBSVM text, NumPy archive, or a table with named columns."""

from __future__ import annotations

from pathlib import Path

from fedns.core.errors import DataError
from fedns.studies.tables.files.frames import SUFFIXES
from fedns.studies.tables.files.libsvm import read_libsvm
from fedns.studies.tables.files.npz import read_npz
from fedns.studies.tables.files.opening import COMPRESSED, check_file, format_suffix
from fedns.studies.tables.files.table import Table
from fedns.studies.tables.files.tabular import read_table

# The last ones are how the LIBSVM site names its test, training, validation and scaled files (a9a.t, ijcnn1.tr).
LIBSVM_SUFFIXES = frozenset({"", ".libsvm", ".svm", ".svmlight", ".txt", ".t", ".tr", ".val", ".scale", ".binary"})
BINARY_SUFFIXES = frozenset({".npz", ".parquet", ".arrow", ".feather"})
KNOWN_SUFFIXES = LIBSVM_SUFFIXES - {""} | SUFFIXES | {".npz"} | COMPRESSED


def read(path: str | Path, *, target: str | None = None, group: str | None = None, weight: str | None = None) -> Table:
    """Read a file by its suffix; `target`, `group` and `weight` name columns, or members of an archive."""
    path = Path(path)
    check_file(path)
    suffix = format_suffix(path)
    if suffix in LIBSVM_SUFFIXES:
        _refuse_names(path, target=target, group=group, weight=weight)
        return read_libsvm(path)
    if suffix not in KNOWN_SUFFIXES:
        raise DataError(f"{path.name} has an unknown suffix: use {', '.join(sorted(KNOWN_SUFFIXES - COMPRESSED))}")
    if suffix in BINARY_SUFFIXES and path.suffix.lower() in COMPRESSED:
        raise DataError(f"{path.name} holds a format that compresses by itself: unpack it first")
    return (read_npz if suffix == ".npz" else read_table)(path, target, group, weight)


def _refuse_names(path: Path, **names: str | None) -> None:
    for role, name in names.items():
        if name is not None:
            raise DataError(f"{path.name} is LIBSVM text, which has no named columns: leave out {role}='{name}'")
