"""LIBSVM text, `label index:value index:value ...` with indices from 1, read in chunks of whole lines."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.studies.tables.files.file_rows import FileRows
from fedns.studies.tables.files.opening import open_bytes

CHUNK_BYTES = 4 << 20  # the parser needs some 30 times this; larger chunks are not faster
# The last ones are how the LIBSVM site names its test, training, validation and scaled files (a9a.t, ijcnn1.tr).
LIBSVM_SUFFIXES = frozenset({"", ".libsvm", ".svm", ".svmlight", ".txt", ".t", ".tr", ".val", ".scale", ".binary"})
_LARGEST_INDEX = 2**31 - 1  # kernels hold column indices in 32 bits
_COMMENT = re.compile(rb"#[^\n]*")
_FOREIGN = re.compile(rb"_|qid")  # 1_000 for a number, and the queries of rankings


class Chunk(NamedTuple):
    labels: NDArray[np.float64]  # (rows,)
    counts: NDArray[np.int64]  # (rows,), nonzeros of each row
    indices: NDArray[np.int32]  # (nonzeros,), from 0
    values: NDArray[np.float64]  # (nonzeros,)


def read_libsvm(path: Path, chunk_bytes: int = CHUNK_BYTES) -> FileRows:
    """The rows as float64 CSR, as wide as the largest index."""
    with open_bytes(path) as stream:
        chunks = [chunk for chunk in parse_chunks(stream, path.name, chunk_bytes) if chunk.labels.size]
    refuse_empty(path.name, len(chunks), sum(chunk.indices.size for chunk in chunks))
    labels, counts, indices, values = (np.concatenate(pieces) for pieces in zip(*chunks, strict=True))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    shape = (labels.size, int(indices.max()) + 1)
    return FileRows(scipy.sparse.csr_matrix((values, indices, indptr), shape=shape), labels, source=path.name)


def refuse_empty(name: str, rows: int, nonzeros: int) -> None:
    """Raise where a file has no rows, or nothing in them."""
    if not nonzeros:
        lack = "holds labels but no 'index:value' pairs" if rows else "is empty"
        raise DataError(f"{name} {lack}: expected lines like '1 3:0.5 7:1'")


def parse_chunks(stream: IO[bytes], name: str, chunk_bytes: int) -> Iterator[Chunk]:
    line = 1
    for text in _whole_lines(stream, chunk_bytes):
        yield _parse(_COMMENT.sub(b"", text) if b"#" in text else text, name, line)
        line += text.count(b"\n")


def _whole_lines(stream: IO[bytes], chunk_bytes: int) -> Iterator[bytes]:
    """Runs of complete lines of about this many bytes; only the last may lack its newline."""
    pieces: list[bytes] = []
    while block := stream.read(chunk_bytes):
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            pieces.append(block)
            continue
        yield b"".join([*pieces, block[:cut]])
        pieces = [block[cut:]]
    if rest := b"".join(pieces):
        yield rest


def _parse(text: bytes, name: str, first_line: int) -> Chunk:
    from sklearn.datasets import load_svmlight_file  # here, as it takes a second to import

    try:
        if _FOREIGN.search(text):
            raise ValueError("scikit-learn reads what the format does not have")
        rows, labels = load_svmlight_file(io.BytesIO(text), n_features=_LARGEST_INDEX, zero_based=False)
    except (ValueError, ArithmeticError):
        raise _explain(text, name, first_line) from None
    return Chunk(labels, np.diff(rows.indptr), rows.indices.astype(np.int32), rows.data)


def _explain(text: bytes, name: str, first_line: int) -> DataError:
    """The error for the first wrong line of a chunk known to hold one."""
    for number, line in enumerate(text.split(b"\n"), start=first_line):
        problem = _problem(_COMMENT.sub(b"", line).split())
        if problem:
            return DataError(f"{name}, line {number}: {problem}")
    return DataError(f"{name}, line {first_line} or later: expected lines like '1 3:0.5 7:1'")


def _problem(tokens: list[bytes]) -> str | None:
    if not tokens:
        return None
    if _as_number(tokens[0]) is None:
        return f"starts with '{_shown(tokens[0])}', expected a number as the label"
    previous = 0.0
    for token in tokens[1:]:
        index_text, colon, value_text = token.partition(b":")
        index = _as_number(index_text)
        if not colon or index is None or _as_number(value_text) is None:
            return f"'{_shown(token)}' is not an index:value pair (is the line cut short?)"
        if not 1 <= index <= _LARGEST_INDEX or index != int(index):
            return f"index '{_shown(index_text)}' must be a whole number from 1 to {_LARGEST_INDEX}"
        if index <= previous:
            return f"index {int(index)} follows {int(previous)}, but indices must increase along a line"
        previous = index
    return None


def _as_number(text: bytes) -> float | None:
    try:
        return None if b"_" in text else float(text)  # float() reads 1_000, the format does not have it
    except ValueError:
        return None


def _shown(token: bytes) -> str:
    text = token.decode("ascii", "backslashreplace")
    return text if len(text) <= 40 else text[:40] + "..."
