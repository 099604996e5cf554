"""Targets as the problems want them: -1 and +1 for two classes, numbers otherwise."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedns.core.checked import checked
from fedns.core.errors import DataError

Task = Literal["binary", "regression", "multiclass"]
MOST_CLASSES = 20  # whole numbers with more values than this are taken for a quantity, not for classes


@checked
def as_binary(targets: ArrayLike, positive: float | str | None = None) -> NDArray[np.float64]:
    """Labels as -1 and +1: +1 where equal to `positive`, by default to the larger of two values.

    A site that holds one class only must give `positive`, since the larger of its labels says nothing.

    - targets: two distinct labels, or several with `positive`.
    - positive: the label that becomes +1; the larger of two unless given.
    """
    labels = np.asarray(targets)
    distinct = _distinct(labels)
    if positive is None:
        if distinct.size != 2:
            raise DataError(
                f"two labels are needed, but the targets hold {_described(distinct)}: "
                "choose the positive one with positive=... (--positive on the command line)"
            )
        chosen: Any = distinct[1]
    else:
        chosen = _matching(positive, distinct)
        # One class only is what a small site may well hold; several, and none of them the one asked for, is a slip.
        if distinct.size > 1 and not (distinct == chosen).any():
            raise DataError(f"positive={positive} is not among the labels: the targets hold {_described(distinct)}")
    return np.where(labels == chosen, 1.0, -1.0)


def infer_task(targets: ArrayLike) -> Task:
    """Two values are classes, and so are text and up to 20 whole numbers; everything else is a quantity."""
    labels = np.asarray(targets)
    if _is_text(labels):
        return "binary" if np.unique(labels).size <= 2 else "multiclass"
    finite = labels[np.isfinite(labels)]
    distinct = np.unique(finite)
    if distinct.size <= 2:
        return "binary"
    whole = bool((distinct == np.floor(distinct)).all())
    return "multiclass" if whole and distinct.size <= MOST_CLASSES else "regression"


def encode_targets(
    targets: ArrayLike, *, positive: float | str | None = None, task: str | None = None
) -> tuple[NDArray[np.float64], Task]:
    """The targets as float64 and the task they set; an explicit `task` or `positive` overrules the guess."""
    labels = np.asarray(targets)
    if task is not None and task not in get_args(Task):
        raise DataError(f"unknown task '{task}': use {', '.join(get_args(Task))}")
    if positive is not None:
        if task not in (None, "binary"):
            raise DataError(f"positive={positive} makes two classes: leave it out for task={task}")
        return as_binary(labels, positive), "binary"
    chosen = cast(Task, task) if task is not None else infer_task(labels)
    if chosen == "binary" or _is_text(labels):  # text beyond two labels has no numbers to stand for it
        return as_binary(labels), "binary"
    return labels.astype(np.float64), chosen


def _is_text(labels: NDArray[Any]) -> bool:
    return labels.dtype.kind not in "fiub"


def _distinct(labels: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        missing = int((~np.isfinite(labels)).sum())
        raise DataError(f"the targets hold {missing} missing or infinite values: drop those rows")
    return np.unique(labels)


def _matching(positive: float | str, distinct: NDArray[Any]) -> Any:
    """`positive` in the type of the labels; a command line gives numbers as text."""
    if _is_text(distinct):
        return str(positive)
    try:
        return float(positive)
    except ValueError:
        raise DataError(f"positive={positive} is not a number, but the targets hold {_described(distinct)}") from None


def _described(distinct: NDArray[Any]) -> str:
    shown = ", ".join(f"'{label}'" if _is_text(distinct) else f"{label:g}" for label in distinct[:5])
    more = ", ..." if distinct.size > 5 else ""
    return f"{distinct.size} label{'' if distinct.size == 1 else 's'} ({shown}{more})"
