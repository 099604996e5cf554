"""Tables larger than memory: taken apart once into a folder of arrays, as an archive has them, and mapped from there."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.numerics import memory
from fedns.numerics.rows import NARROW_TYPES
from fedns.studies.tables.files.cache import CACHE_VARIABLE, cache_folder, storing
from fedns.studies.tables.files.compact import compact
from fedns.studies.tables.files.file_rows import FileRows
from fedns.studies.tables.files.frames import arrow_file
from fedns.studies.tables.files.libsvm import LIBSVM_SUFFIXES
from fedns.studies.tables.files.npz import peek_shape, rows_of_members, write_npy
from fedns.studies.tables.files.opening import format_suffix
from fedns.studies.tables.files.tabular import Roles, assign_roles

_ROWS_AT_ONCE = 1 << 14
_LARGE_MEMBERS = ("X", "data", "indices")  # of an archive; the others have at most an entry for each row


def too_large(path: Path) -> bool:
    """Whether the rows of a file take more memory than there is room for; text is judged by its length."""
    suffix = format_suffix(path)
    if not path.is_file() or path.stat().st_size * 64 < memory.room():  # nothing is packed that well
        return False
    if suffix == ".npz":
        rows, columns = peek_shape(path)
        return min(8 * rows * columns, 2 * path.stat().st_size) > memory.room()
    if suffix == ".parquet":
        facts = arrow_file(path, "ParquetFile").metadata
        return bool(8 * facts.num_rows * facts.num_columns > memory.room())
    return suffix in LIBSVM_SUFFIXES and path.stat().st_size > memory.room()


def read_large(
    path: Path, target: str | None, group: str | None, weight: str | None, folder: Path | None = None
) -> FileRows:
    """The table with its rows mapped; taken apart in `folder`, or in the cache, unless it was before."""
    room = folder or cache_folder()
    if room is None:
        raise DataError(f"{path.name} is larger than memory: name a folder with room for its rows in {CACHE_VARIABLE}")
    file = path.stat()
    facts = [str(path.resolve()), file.st_size, file.st_mtime_ns, target, group, weight]
    place = room / "unpacked" / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    if not place.is_dir():
        with storing(path.name, room):
            _unpack(path, place, target, group, weight)
    if format_suffix(path) == ".parquet":  # whose columns have got the names of an archive
        target, group, weight = None, group and "site", weight and "weight"
    return read_folder(place, target, group, weight)


def read_folder(place: Path, target: str | None = None, group: str | None = None, weight: str | None = None) -> FileRows:
    """An archive that was taken apart: X.npy and y.npy, or whatever else its members are."""
    if not any((place / f"{name}.npy").is_file() for name in ("X", "data")):
        raise DataError(f"{place} is a folder without X.npy: name a file, or a folder that an .npz was unpacked into")
    members = {file.stem: _opened(file) for file in sorted(place.glob("*.npy"))}
    return rows_of_members(members, place.name, target, group, weight)


def _opened(file: Path) -> NDArray[Any]:
    mapped = "r" if file.stem in _LARGE_MEMBERS else None
    loaded: NDArray[Any] = np.asarray(np.load(file, mmap_mode=mapped, allow_pickle=False))  # type: ignore[arg-type]
    return loaded


def _unpack(path: Path, place: Path, target: str | None, group: str | None, weight: str | None) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(suffix=".partial", dir=place.parent))
    try:
        match format_suffix(path):
            case ".npz":
                _extract(path, partial)
            case ".parquet":
                _convert(path, partial, target, group, weight)
            case _:
                archive = partial / "rows.npz"
                compact(path, archive, source=path.name)
                _extract(archive, partial)
                archive.unlink()
        partial.rename(place)
    except OSError:
        if not place.is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _extract(archive: Path, place: Path) -> None:
    with zipfile.ZipFile(archive) as members:
        members.extractall(place, [name for name in members.namelist() if name.endswith(".npy") and "/" not in name])
    indices = place / "indices.npy"
    if indices.is_file() and (small := np.load(indices, mmap_mode="r")).dtype != np.int32:
        wide = place / "wide.npy"
        with wide.open("wb") as stream:
            write_npy(stream, small.shape, np.dtype(np.int32), np.array_split(small, -(-small.size // (1 << 20)) or 1))
        wide.replace(indices)


def _convert(path: Path, place: Path, target: str | None, group: str | None, weight: str | None) -> None:
    """Twice over the file: which type holds every number exactly is known at the end only."""
    file = arrow_file(path, "ParquetFile")
    roles = assign_roles(list(file.schema_arrow.names), path.name, target, group, weight)
    kinds = [np.dtype(kind) for kind in (*NARROW_TYPES, np.float64)]
    for block in _blocks(file, roles, path.name):
        with np.errstate(invalid="ignore", over="ignore"):
            kinds = [kind for kind in kinds if np.array_equal(block.astype(kind), block, equal_nan=True)]
    shape = file.metadata.num_rows, len(roles.features)
    with (place / "X.npy").open("wb") as stream:
        write_npy(stream, shape, kinds[0], _blocks(file, roles, path.name))
    named = {"y": roles.target, "site": roles.group, "weight": roles.weight}
    for name, column in named.items():
        if column is not None:
            values = file.read([column]).column(0).to_numpy()
            np.save(place / f"{name}.npy", values.astype(np.str_) if values.dtype == object else values)
    np.save(place / "columns.npy", np.array(roles.features))


def _blocks(file: Any, roles: Roles, source: str) -> Iterator[NDArray[np.float64]]:
    """The features, some thousand rows at a time: (rows, columns)."""
    pyarrow = import_module("pyarrow")
    for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(roles.features)):
        block = np.empty((batch.num_rows, len(roles.features)))
        for place, name in enumerate(roles.features):
            try:
                block[:, place] = batch.column(name).cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
            except pyarrow.ArrowException:
                raise DataError(
                    f"{source}: column '{name}' holds something that is not a number: encode or drop the column"
                ) from None
        yield block
