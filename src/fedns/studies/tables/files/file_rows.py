"""The rows of a file once read: features, targets and the labels that travel with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows as they stand in a file, before labels are mapped and values cast."""

    features: Any  # (rows, columns), ndarray or scipy csr_matrix, the dtype of the file
    targets: NDArray[Any]  # (rows,), numbers, or text where the file names its classes
    columns: tuple[str, ...] | None = None  # one per column
    groups: NDArray[Any] | None = None  # (rows,), the site of each row: integers or text
    group_names: tuple[str, ...] | None = None  # one per distinct group, in sorted order of the labels
    sample_weights: NDArray[np.float64] | None = None  # (rows,)
    source: str = ""
