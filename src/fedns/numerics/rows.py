"""Rows of a matrix, dense or compressed: what passes over rows read."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class DenseRows(NamedTuple):
    """Rows one after the other; kept flat because compiled code pays for every change of an array's shape."""

    flat: NDArray[Any]  # (rows * columns,), float64 or float32
    num_columns: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> "DenseRows":
        """Over the memory of a C-contiguous matrix."""
        return cls(values.reshape(-1), values.shape[1])

    @property
    def values(self) -> NDArray[Any]:
        return self.flat.reshape(-1, self.num_columns)

    @property
    def shape(self) -> tuple[int, int]:
        return self.flat.size // self.num_columns, self.num_columns

    @property
    def nbytes(self) -> int:
        return self.flat.nbytes


class SparseRows(NamedTuple):
    """Compressed sparse rows, column indices increasing along each row."""

    data: NDArray[Any]  # (nonzeros,), float64 or float32
    indices: NDArray[np.int32]  # (nonzeros,)
    indptr: NDArray[np.int64]  # (rows + 1,)
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.indptr.shape[0] - 1, self.num_columns

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes


Rows = DenseRows | SparseRows
