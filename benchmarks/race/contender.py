"""What takes part in the race, and what it is asked to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import fedns
from fedns.core.shards import Shards
from fedns.numerics.rows import SparseRows

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Task:
    """Minimise F(w) = mean log(1 + exp(-y x.w)) + (strength / 2) |w|^2 over these rows, without an intercept."""

    name: str
    shards: Shards  # the same rows for all, in the same order
    sketch_size: int
    problem: fedns.Problem
    optimum: fedns.Optimum

    @property
    def strength(self) -> float:
        return self.problem.penalty.strength

    @property
    def cost(self) -> float:
        """The strength as the LIBLINEAR family has it: C sum loss + |w|^2 / 2."""
        return 1.0 / (self.shards.num_samples * self.strength)

    @cached_property
    def layouts(self) -> dict[str, Any]:
        """The rows dense and compressed, as they come first: whatever a contender is faster with counts."""
        rows = self.shards.rows
        if isinstance(rows, SparseRows):
            compressed = scipy.sparse.csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape, dtype=np.float64)
            return {"compressed": compressed, "dense": compressed.toarray()}
        return {"dense": rows.values, "compressed": scipy.sparse.csr_matrix(rows.values)}

    def gap(self, coefficients: FloatArray) -> float:
        """F(w) - F*; infinite for what is no answer."""
        w = np.asarray(coefficients, dtype=np.float64).ravel()
        if w.size != self.shards.num_columns or not np.isfinite(w).all():
            return float("inf")
        return max(0.0, self.problem.evaluate(w, self.shards).objective - self.optimum.value)


@dataclass(frozen=True)
class Fit:
    """What one attempt gave; exchanges and bytes where something travelled, seconds where it has its own clock."""

    coefficients: FloatArray
    exchanges: int | None = None
    bytes: int | None = None
    seconds: float | None = None


Attempt = Callable[[Any], Fit]


@dataclass(frozen=True)
class Contender:
    """`prepare(task, features)` gives what is timed, a function of an effort: a tolerance, or a number of rounds."""

    name: str
    package: str  # as the package index calls it
    module: str  # which import tells whether it is there
    prepare: Callable[[Task, Any], Attempt]
    efforts: tuple[Any, ...] = tuple(10.0**-e for e in range(1, 15))  # rising; the first that reaches the gap is timed
    layouts: tuple[str, ...] = ("dense", "compressed")
    limit_seconds: float = 8.0  # for one attempt
    warm_up: Any = 0.1  # the effort of a first attempt that compiles what has to be; None where nothing has
    note: str = ""
    only_on: tuple[str, ...] = ()  # the data sets that it is run on; all where none is named
