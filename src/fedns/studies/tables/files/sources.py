"""Reading a file, whatever its format: LIBSVM text, NumPy archive, or a table with named columns."""

from __future__ import annotations

from pathlib import Path

from fedns.core.errors import DataError
from fedns.studies.tables.files.file_rows import FileRows
from fedns.studies.tables.files.frames import SUFFIXES
from fedns.studies.tables.files.libsvm import LIBSVM_SUFFIXES, read_libsvm
from fedns.studies.tables.files.npz import read_npz
from fedns.studies.tables.files.opening import COMPRESSED, check_file, format_suffix
from fedns.studies.tables.files.tabular import read_table
from fedns.studies.tables.files.unpacked import read_folder, read_large, too_large

BINARY_SUFFIXES = frozenset({".npz", ".parquet", ".arrow", ".feather"})
KNOWN_SUFFIXES = LIBSVM_SUFFIXES - {""} | SUFFIXES | {".npz"} | COMPRESSED


def read(
    path: str | Path,
    *,
    target: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    folder: Path | None = None,
) -> FileRows:
    """Read a file by its suffix, whatever its size, or a folder that an .npz was unpacked into.

    target, group, weight: names of columns, or of members of an archive.
    folder: where a file that is larger than memory is taken apart; the cache unless given.
    """
    path = Path(path)
    if path.is_dir():
        return read_folder(path, target, group, weight)
    check_file(path)
    if too_large(path):
        return read_large(path, target, group, weight, folder)
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
