"""Tables with named columns as rows to train on: one target, an optional site and weight, and numeric features."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.studies.tables.files.file_rows import FileRows
from fedns.studies.tables.files.frames import NUMBER, UNNAMED, Column, Frame, read_frame

TARGET_NAMES = ("y", "label", "target")
_INTEGER = re.compile(r"-?[1-9][0-9]{0,17}|0")  # 007 stays text, as it may differ from 7


@dataclass(frozen=True)
class Roles:
    """The role of each column."""

    target: str
    group: str | None
    weight: str | None
    features: tuple[str, ...]


def read_table(path: Path, target: str | None = None, group: str | None = None, weight: str | None = None) -> FileRows:
    """A file with named columns, as a study reads it."""
    frame = read_frame(path)
    roles = assign_roles(list(frame.columns), frame.source, target, group, weight)
    features = np.column_stack([_numbers(frame, name) for name in roles.features])
    groups = None if roles.group is None else _group_labels(frame, roles.group)
    weights = None if roles.weight is None else _numbers(frame, roles.weight)
    return FileRows(features, _targets(frame, roles.target), roles.features, groups, None, weights, frame.source)


def assign_roles(header: Sequence[str], file_name: str, target: str | None, group: str | None, weight: str | None) -> Roles:
    """Find the target: the one asked for, else the column called y, label or target, else the last one."""
    for place, name in enumerate(header, start=1):
        if name == UNNAMED.format(place):
            raise DataError(f"{file_name}, line 1: column {place} has no name")
    for role, wanted in (("target", target), ("group", group), ("weight", weight)):
        if wanted is not None and wanted not in header:
            raise DataError(f"{file_name} has no {role} column '{wanted}': it has {_listed(header)}")
    free = [name for name in header if name not in (group, weight)]
    if target is None:
        target = next((name for name in free if name.lower() in TARGET_NAMES), free[-1] if free else None)
    features = tuple(name for name in free if name != target)
    taken = [name for name in (target, group, weight) if name is not None]
    if target is None or len(set(taken)) < len(taken):
        raise DataError(f"{file_name}: target, group and weight must be three different columns of {_listed(header)}")
    if not features:
        raise DataError(f"{file_name} has no feature columns beside {_listed(taken)}")
    return Roles(target, group, weight, features)


def _numbers(frame: Frame, name: str, advice: str = "") -> NDArray[np.float64]:
    column = frame.columns[name]
    if column.values.dtype.kind == "f":
        return np.asarray(column.values, dtype=np.float64)
    for row, cell in enumerate(column.values):  # 007 is 7 where a number is asked for
        if cell is not None and not NUMBER.fullmatch(cell):
            raise DataError(
                f"{frame.source}, {frame.place(row)}: column '{name}' holds '{_shown(cell)}', which is not a number: "
                + (advice or f"encode or drop the column, or name it as the group (group='{name}')")
            )
    return np.array([np.nan if cell is None else float(cell) for cell in column.values])


def _targets(frame: Frame, name: str) -> NDArray[np.float64] | NDArray[np.str_]:
    """Numbers; or text, where no cell is a number, for files that name their classes."""
    column = frame.columns[name]
    if column.kind in ("number", "empty") or any(NUMBER.fullmatch(cell) for cell in _texts(column)):
        return _numbers(frame, name, "correct that cell, or use text for every label")
    if (missing := column.missing).any():
        place = frame.place(int(np.argmax(missing)))
        raise DataError(f"{frame.source}, {place}: the target '{name}' is missing: drop that row")
    return column.labels().astype(np.str_)


def _texts(column: Column) -> list[str]:
    return [] if column.values.dtype.kind == "f" else [cell for cell in column.values if cell is not None]


def _group_labels(frame: Frame, name: str) -> NDArray[np.int64] | NDArray[np.str_]:
    """Integers where every label is one, so that site 10 comes after site 9; text otherwise."""
    column = frame.columns[name]
    if (missing := column.missing).any():
        raise DataError(f"{frame.source}, {frame.place(int(np.argmax(missing)))}: the group column '{name}' is empty")
    labels = column.labels()
    whole = all(_INTEGER.fullmatch(label) for label in labels)
    return labels.astype(np.int64) if whole else labels.astype(np.str_)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _shown(cell: str) -> str:
    return cell if len(cell) <= 40 else cell[:40] + "..."
