"""Types of arrays that every room speaks of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DType = np.dtype[Any]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Keys = NDArray[np.uint64]  # of random streams, one row of two for each client
