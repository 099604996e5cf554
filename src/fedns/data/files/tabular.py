"""Tables with named columns, CSV and Parquet: one target, an optional site and weight, and numeric features."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.data.files.opening import open_bytes
from fedns.data.files.table import Table

TARGET_NAMES = ("y", "label", "target")
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
BLOCK_ROWS = 16384
_INTEGER = re.compile(r"-?[1-9][0-9]{0,17}|0")  # 007 stays text, as it may differ from 7
_MISSING_PARQUET = "install it with pip install 'fedns[parquet]'"

Column = Sequence[str] | NDArray[np.float64]  # a stretch of one column: text as it stands in the file, or numbers


@dataclass(frozen=True)
class Roles:
    """What each column is for."""

    target: str
    group: str | None
    weight: str | None
    features: tuple[str, ...]


class _Block(NamedTuple):
    """Some rows, column by column, and where each row stands in the file."""

    columns: list[Column]  # in the order of the header
    places: Sequence[int]  # (rows,)


class _Reader(NamedTuple):
    file_name: str
    unit: str  # what a place counts: line or row
    header: list[str]


def read_csv(path: Path, target: str | None = None, group: str | None = None, weight: str | None = None) -> Table:
    """Comma-separated values below a line of column names."""
    with open_bytes(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            lines = csv.reader(text, strict=True)
            header = _csv_header(next(lines, []), path.name)
            reader = _Reader(path.name, "line", header)
            roles = assign_roles(header, path.name, target, group, weight)
            return _assemble(reader, roles, _csv_blocks(lines, reader))
        except UnicodeDecodeError as error:
            raise DataError(f"{path.name} is not UTF-8 text ({error.reason}): save it as UTF-8") from error
        except csv.Error as error:
            raise DataError(f"{path.name}, line {lines.line_num}: {error}") from error


def read_parquet(path: Path, target: str | None = None, group: str | None = None, weight: str | None = None) -> Table:
    """A Parquet file, read with pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path.name} is a Parquet file, which needs pyarrow: {_MISSING_PARQUET}") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            header = [str(name) for name in file.schema_arrow.names]
            reader = _Reader(path.name, "row", header)
            roles = assign_roles(header, path.name, target, group, weight)
            return _assemble(reader, roles, _parquet_blocks(file))
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path.name} cannot be read as Parquet: {str(error).splitlines()[0]}") from error


def assign_roles(header: Sequence[str], file_name: str, target: str | None, group: str | None, weight: str | None) -> Roles:
    """Who is the target: the one asked for, else the column called y, label or target, else the last one."""
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise DataError(f"{file_name} has more than one column called '{repeated[0]}': rename one of them")
    for role, name in (("target", target), ("group", group), ("weight", weight)):
        if name is not None and name not in header:
            raise DataError(f"{file_name} has no {role} column '{name}': it has {_listed(header)}")
    free = [name for name in header if name not in (group, weight)]
    if target is None:
        target = next((name for name in free if name.lower() in TARGET_NAMES), free[-1] if free else None)
    features = tuple(name for name in free if name != target)
    taken = [name for name in (target, group, weight) if name is not None]
    if target is None or len(set(taken)) < len(taken):
        raise DataError(f"{file_name}: target, group and weight must be three different columns of {_listed(header)}")
    if not features:
        raise DataError(f"{file_name} has no feature columns beside {_listed(taken)}: are its columns comma-separated?")
    return Roles(target, group, weight, features)


def _csv_header(cells: list[str], file_name: str) -> list[str]:
    header = [cell.strip() for cell in cells]
    if not any(header):
        raise DataError(f"{file_name} is empty: expected a first line of column names")
    if all(_number(name) is not None for name in header):
        raise DataError(f"{file_name} starts with numbers: add a first line of column names")
    if "" in header:
        raise DataError(f"{file_name}, line 1: column {header.index('') + 1} has no name")
    return header


def _csv_blocks(lines: Any, reader: _Reader) -> Iterator[_Block]:
    width = len(reader.header)
    rows = ((lines.line_num, row) for row in lines if row)
    while block := list(islice(rows, BLOCK_ROWS)):
        places = [place for place, _ in block]
        for place, row in block:
            if len(row) != width:
                raise DataError(f"{reader.file_name}, line {place}: {len(row)} cells, but the header has {width}")
        yield _Block(list(zip(*(row for _, row in block), strict=True)), places)


def _parquet_blocks(file: Any) -> Iterator[_Block]:
    first = 1
    for batch in file.iter_batches(batch_size=BLOCK_ROWS):
        yield _Block([_parquet_column(column) for column in batch.columns], range(first, first + batch.num_rows))
        first += batch.num_rows


def _parquet_column(column: Any) -> Column:
    import pyarrow

    kind = column.type
    tests = (pyarrow.types.is_integer, pyarrow.types.is_floating, pyarrow.types.is_boolean, pyarrow.types.is_decimal)
    if any(test(kind) for test in tests):
        numbers = column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.asarray(numbers, dtype=np.float64)
    return ["" if value is None else str(value) for value in column.to_pylist()]


def _assemble(reader: _Reader, roles: Roles, blocks: Iterable[_Block]) -> Table:
    """Convert block by block, so that text is held for a block of rows at a time, but for targets and sites."""
    position = {name: index for index, name in enumerate(reader.header)}
    features: list[NDArray[np.float64]] = []
    targets: list[Column] = []
    groups: list[Column] = []
    weights: list[NDArray[np.float64]] = []
    places: list[Sequence[int]] = []
    for block in blocks:
        values = np.empty((len(block.places), len(roles.features)))
        for column, name in enumerate(roles.features):
            values[:, column] = _numbers(block.columns[position[name]], name, block.places, reader)
        features.append(values)
        targets.append(block.columns[position[roles.target]])
        places.append(block.places)
        if roles.group is not None:
            groups.append(block.columns[position[roles.group]])
        if roles.weight is not None:
            weights.append(_numbers(block.columns[position[roles.weight]], roles.weight, block.places, reader))
    if not features:
        raise DataError(f"{reader.file_name} has column names but no rows")
    return Table(
        np.concatenate(features),
        _targets(targets, roles.target, places, reader),
        roles.features,
        _group_labels(groups, roles.group, places, reader) if roles.group is not None else None,
        None,
        np.concatenate(weights) if weights else None,
        reader.file_name,
    )


def _numbers(cells: Column, name: str, places: Sequence[int], reader: _Reader, advice: str = "") -> NDArray[np.float64]:
    if isinstance(cells, np.ndarray):
        return cells
    try:
        return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
    except ValueError:
        pass  # an empty cell, or one to complain about
    numbers = np.empty(len(cells))
    for row, cell in enumerate(cells):
        number = _number(cell)
        if number is None:
            raise DataError(
                f"{reader.file_name}, {reader.unit} {places[row]}: column '{name}' holds '{_shown(cell)}', which is "
                "not a number: " + (advice or f"encode or drop the column, or name it as the group (group='{name}')")
            )
        numbers[row] = number
    return numbers


def _targets(
    pieces: Sequence[Column], name: str, places: Sequence[Sequence[int]], reader: _Reader
) -> NDArray[np.float64] | NDArray[np.str_]:
    """Numbers; or text, where no cell is a number, for files that name their classes."""
    cells = [cell.strip() for piece in pieces if not isinstance(piece, np.ndarray) for cell in piece]
    missing = [cell.lower() in MISSING for cell in cells]
    if all(missing) or any(not gone and _number(cell) is not None for cell, gone in zip(cells, missing, strict=True)):
        advice = "correct that cell, or use text for every label"
        converted = (_numbers(piece, name, at, reader, advice) for piece, at in zip(pieces, places, strict=True))
        return np.concatenate(list(converted))
    if any(missing):
        place = [place for piece in places for place in piece][missing.index(True)]
        raise DataError(f"{reader.file_name}, {reader.unit} {place}: the target '{name}' is missing: drop that row")
    return np.array(cells, dtype=np.str_)


def _group_labels(
    pieces: Sequence[Column], name: str, places: Sequence[Sequence[int]], reader: _Reader
) -> NDArray[np.int64] | NDArray[np.str_]:
    """Integers where every label is one, so that site 10 comes after site 9; text otherwise."""
    labels: list[str] = []
    for piece, where in zip(pieces, places, strict=True):
        for place, cell in zip(where, piece, strict=True):
            label = _whole(cell) if isinstance(cell, float) else cell.strip()
            if label.lower() in MISSING:
                raise DataError(f"{reader.file_name}, {reader.unit} {place}: the group column '{name}' is empty")
            labels.append(label)
    if all(_INTEGER.fullmatch(label) for label in labels):
        return np.array(labels, dtype=np.int64)
    return np.array(labels, dtype=np.str_)


def _whole(number: float) -> str:
    return str(int(number)) if np.isfinite(number) and number == int(number) else str(number)


def _number(cell: str) -> float | None:
    """The number in a cell, NaN where it marks a missing value, None where it is something else."""
    try:
        return float(cell)
    except ValueError:
        return float("nan") if cell.strip().lower() in MISSING else None


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _shown(cell: str) -> str:
    return cell if len(cell) <= 40 else cell[:40] + "..."
