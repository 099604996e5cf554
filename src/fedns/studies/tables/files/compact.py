"""LIBSVM text to an uncompressed archive in one pass, with memory that does not grow with the file.

Values and indices are spooled to disk first: whether the table is dense and which dtype holds it is known at the end only.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.studies.tables.files.libsvm import Chunk, parse_chunks, refuse_empty
from fedns.studies.tables.files.npz import write_npy
from fedns.studies.tables.files.opening import open_bytes

CHUNK_BYTES = 1 << 20  # of text; the parser needs some 30 times this
DENSE_FROM = 0.5  # the share of nonzeros from which float32 rows are no larger than CSR with 32-bit indices
_BLOCK_ENTRIES = 1 << 18  # of the dense table, filled and written at a time


@dataclass
class _Spool:
    """A table on its way: a file for each chunk of the text, its arrays in the smallest types that hold them."""

    folder: Path
    files: int = 0
    rows: int = 0
    nonzeros: int = 0
    columns: int = 0

    def append(self, chunk: Chunk) -> None:
        with (self.folder / f"{self.files}.npz").open("wb") as stream:
            np.savez(
                stream,
                labels=_narrow_labels(chunk.labels),
                counts=_narrow_unsigned(chunk.counts),
                indices=_narrow_unsigned(chunk.indices),
                values=_narrow_values(chunk.values),
            )
        self.files += 1
        self.rows += chunk.labels.size
        self.nonzeros += chunk.indices.size
        self.columns = max(self.columns, int(chunk.indices.max(initial=-1)) + 1)

    def pieces(self, *names: str) -> Iterator[tuple[NDArray[Any], ...]]:
        """These arrays of each chunk, in order."""
        for number in range(self.files):
            with np.load(self.folder / f"{number}.npz") as chunk:
                yield tuple(chunk[name] for name in names)

    def dtype(self, name: str) -> np.dtype[Any]:
        """The smallest that holds every piece."""
        return np.result_type(*{piece.dtype for (piece,) in self.pieces(name)})


def compact(
    text: Path,
    archive: Path,
    *,
    source: str,
    columns: int = 0,
    dense: bool | None = None,
    report: Callable[[int], None] = lambda rows: None,
    chunk_bytes: int = CHUNK_BYTES,
) -> tuple[int, int]:
    """Write `archive` with X or the CSR pieces, y and source; returns rows and columns.

    columns: at least this many, where the last ones may not occur in the text.
    dense: the layout; by default dense where half of the entries are nonzero.
    report: called with the number of rows read so far.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=archive.parent)))
        spool = _Spool(folder)
        for chunk in stack.enter_context(closing(_chunks(text, chunk_bytes))):
            spool.append(chunk)
            report(spool.rows)
        refuse_empty(text.name, spool.rows, spool.nonzeros)
        spool.columns = max(spool.columns, columns)
        if dense is None:
            dense = spool.nonzeros >= DENSE_FROM * spool.rows * spool.columns
        _write(archive, spool, dense, source)
    return spool.rows, spool.columns


def _chunks(path: Path, chunk_bytes: int) -> Generator[Chunk, None, None]:
    # A generator of its own: an error in writing must not pass through `open_bytes`, which would blame the reading.
    with open_bytes(path) as stream:
        for chunk in parse_chunks(stream, path.name, chunk_bytes):
            if chunk.labels.size:
                yield chunk


def _write(path: Path, spool: _Spool, dense: bool, source: str) -> None:
    with path.open("wb") as stream, zipfile.ZipFile(stream, "w") as archive:
        if dense:
            shape, dtype = (spool.rows, spool.columns), spool.dtype("values")
            _write_member(archive, "X", shape, dtype, _dense_blocks(spool, dtype))
        else:
            for member, name in (("data", "values"), ("indices", "indices")):
                pieces = (piece for (piece,) in spool.pieces(name))
                _write_member(archive, member, (spool.nonzeros,), spool.dtype(name), pieces)
            _write_member(archive, "indptr", (spool.rows + 1,), np.dtype(np.int64), _pointers(spool))
            _write_array(archive, "shape", np.array([spool.rows, spool.columns]))
        labels = (piece for (piece,) in spool.pieces("labels"))
        _write_member(archive, "y", (spool.rows,), spool.dtype("labels"), labels)
        _write_array(archive, "source", np.array(source))


def _write_array(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    _write_member(archive, name, array.shape, array.dtype, [array])


def _write_member(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Iterable[NDArray[Any]]
) -> None:
    # A ZipInfo without a date: the same text gives the same archive, bit by bit.
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        write_npy(member, shape, dtype, blocks)


def _pointers(spool: _Spool) -> Iterator[NDArray[np.int64]]:
    yield np.zeros(1, np.int64)
    end = 0
    for (piece,) in spool.pieces("counts"):
        pointers = end + np.cumsum(piece, dtype=np.int64)
        end = int(pointers[-1])
        yield pointers


def _dense_blocks(spool: _Spool, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    rows_at_a_time = max(1, _BLOCK_ENTRIES // spool.columns)
    for counts, indices, values in spool.pieces("counts", "indices", "values"):
        pointers = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        for first in range(0, counts.size, rows_at_a_time):
            some = counts[first : first + rows_at_a_time]
            entries = slice(pointers[first], pointers[first + some.size])
            block = np.zeros((some.size, spool.columns), dtype)
            block[np.repeat(np.arange(some.size), some), indices[entries]] = values[entries]
            yield block


def _narrow_values(values: NDArray[np.float64]) -> NDArray[Any]:
    """As float32 where that loses nothing."""
    with np.errstate(over="ignore", under="ignore"):
        narrow = values.astype(np.float32)
    return narrow if np.array_equal(narrow, values, equal_nan=True) else values


def _narrow_labels(labels: NDArray[np.float64]) -> NDArray[Any]:
    """As int8 where that loses nothing: nearly always, as most labels are classes."""
    small = bool(((labels >= -128) & (labels <= 127) & (labels == np.floor(labels))).all())
    return labels.astype(np.int8) if small else labels


def _narrow_unsigned(numbers: NDArray[Any]) -> NDArray[Any]:
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
