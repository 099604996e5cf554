"""NumPy archives: dense `X`, or the CSR pieces `indptr`, `indices`, `data`, `shape`; beside them `y` and labels."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.studies.tables.files.file_rows import FileRows

GROUP_MEMBERS = ("site", "client")  # what a natural site is called, unless the caller names another member
_SPARSE_MEMBERS = ("indptr", "indices", "data", "shape")


def read_npz(path: Path, target: str | None = None, group: str | None = None, weight: str | None = None) -> FileRows:
    """One archive; `target`, `group` and `weight` name members other than `y` and `site` or `client`."""
    with _members(path) as members:
        return rows_of_members(members, path.name, target, group, weight)


def rows_of_members(
    members: Mapping[str, NDArray[Any]],
    name: str,
    target: str | None = None,
    group: str | None = None,
    weight: str | None = None,
) -> FileRows:
    """The members of an archive of this name as a table."""
    features = _features(members, name)
    rows = features.shape[0]
    group = group or next((member for member in GROUP_MEMBERS if member in members), None)
    groups = _labels(members, group, rows, name) if group is not None else None
    weights = _labels(members, weight, rows, name).astype(np.float64) if weight is not None else None
    return FileRows(
        features,
        _labels(members, target or "y", rows, name),
        tuple(str(column) for column in members["columns"]) if "columns" in members else None,
        groups,
        _group_names(members, f"{group}_names", groups, name) if groups is not None else None,
        weights,
        str(members["source"]) if "source" in members else name,
    )


def peek_shape(path: Path) -> tuple[int, int]:
    """Rows and columns, from the headers alone."""
    with _reading(path), zipfile.ZipFile(path) as archive:
        if "X.npy" in archive.namelist():
            shape = _header_shape(archive, "X.npy")
            if len(shape) == 2:
                return shape[0], shape[1]
        elif "shape.npy" in archive.namelist():
            with archive.open("shape.npy") as member:
                rows, columns = np.lib.format.read_array(member, allow_pickle=False)
            return int(rows), int(columns)
    raise DataError(f"{path.name} holds no table: expected X with rows and columns, or the CSR pieces with a shape")


def peek_member(path: Path, name: str) -> NDArray[Any] | None:
    """One member of an archive without reading the others."""
    with _members(path) as members:
        return members.get(name)


def write_npy(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Iterable[NDArray[Any]]) -> None:
    """An array as numpy saves it, block by block."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    for block in blocks:
        stream.write(block.astype(dtype, copy=False).tobytes())


@contextmanager
def _members(path: Path) -> Iterator[Mapping[str, NDArray[Any]]]:
    with _reading(path), path.open("rb") as stream:  # opened here, as numpy leaves a damaged file open
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path.name} is not an .npz archive: write it with numpy.savez")
        with archive:
            yield archive


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path.name} is damaged or not an .npz archive ({error}): fetch it again") from error
    except ValueError as error:
        # numpy's way to refuse pickled objects, and whatever else an .npy header may get wrong.
        raise DataError(f"{path.name} cannot be read ({error}): save plain arrays of numbers or text") from error


def _header_shape(archive: zipfile.ZipFile, member_name: str) -> tuple[int, ...]:
    with archive.open(member_name) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return tuple(read(member)[0])


def _features(members: Mapping[str, NDArray[Any]], file_name: str) -> Any:
    if "X" in members:
        dense = members["X"]
        if dense.ndim != 2 or dense.dtype.kind not in "fiub":
            raise DataError(f"{file_name}: X must be a table of numbers, got shape {dense.shape} of {dense.dtype}")
        return dense
    absent = [name for name in _SPARSE_MEMBERS if name not in members]
    if absent:
        raise DataError(
            f"{file_name} holds no table: expected X, or the CSR pieces {', '.join(_SPARSE_MEMBERS)}; "
            f"it has {', '.join(members)}"
        )
    # Small unsigned indices save space in the file, but scipy wants signed ones.
    pieces = (members["data"], members["indices"].astype(np.int32, copy=False), members["indptr"].astype(np.int64))
    rows, columns = (int(length) for length in members["shape"])
    sparse = scipy.sparse.csr_matrix(pieces, shape=(rows, columns))
    sparse.check_format(full_check=True)
    return sparse


def _labels(members: Mapping[str, NDArray[Any]], name: str, rows: int, file_name: str) -> NDArray[Any]:
    if name not in members:
        raise DataError(f"{file_name} has no member '{name}': it has {', '.join(members)}")
    labels = members[name]
    if labels.shape != (rows,):
        raise DataError(f"{file_name}: '{name}' has shape {labels.shape}, expected one entry for each of {rows} rows")
    return labels


def _group_names(
    members: Mapping[str, NDArray[Any]], member_name: str, groups: NDArray[Any], file_name: str
) -> tuple[str, ...] | None:
    """The names of the groups present; a group label is its place in the list of names."""
    if member_name not in members:
        return None
    names = members[member_name]
    present = np.unique(groups)
    if groups.dtype.kind not in "iu" or present[0] < 0 or present[-1] >= names.size:
        raise DataError(f"{file_name}: {member_name} has {names.size} names, so groups must be 0 to {names.size - 1}")
    return tuple(str(names[label]) for label in present)
