"""Harrell's C: of two rows of one site, one of which is known to have had its event first, is it the one with more risk?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Clients, Handler, on_client
from fedns.core.messages import Message, Payload, wire
from fedns.core.types import FloatArray, IntArray
from fedns.models.family import Outcomes
from fedns.models.problem import DesignBlock, Problem
from fedns.studies.diagnostics.by_site import BySite
from fedns.studies.questions.asking import Point, each_client
from fedns.studies.questions.cells import SCORE_EDGES, cells_of, counted
from fedns.studies.questions.diagnostic import Diagnostic, Predicted

_FEW = 512  # rows whose pairs are compared one by one


class PairSums(Message):
    """A client's pairs of rows of which one had its event first, those whose risks agree, and sums of their squares."""

    sums: Payload = wire("sums", dtype="float64", discloses="loss")


@dataclass(frozen=True)
class Concordance:
    """C over pairs within sites; what sites tell can be added."""

    agree: float
    pairs: float
    squares: tuple[float, float, float]  # sums over rows of their agreeing pairs squared, times pairs, and pairs squared

    @property
    def index(self) -> float:
        """The share of pairs that agree; a half is chance."""
        return self.agree / self.pairs if self.pairs else math.nan

    @property
    def standard_error(self) -> float:
        """By the infinitesimal jackknife: how the index changes with the weight of each row."""
        if not self.pairs:
            return math.nan
        own, both, all_ = self.squares
        return math.sqrt(max(0.0, own - 2.0 * self.index * both + self.index**2 * all_)) / self.pairs

    def as_dict(self) -> dict[str, float]:
        """Plain values."""
        return {"pairs": self.pairs, "concordance": self.index, "std_error": self.standard_error}


class TimeDiagnostics(BySite[Concordance]):
    """The order that a model of times gives the rows; pairs are within sites, as the model is."""

    @cached_property
    def total(self) -> Concordance:
        parts = list(self.sites.values())
        squares = np.sum([part.squares for part in parts], axis=0)
        return Concordance(sum(p.agree for p in parts), sum(p.pairs for p in parts), tuple(squares.tolist()))

    def table(self) -> list[list[str]]:
        cells = [[name, f"{one.pairs:.10g}", f"{one.index:.4f}", f"{one.standard_error:.4f}"] for name, one in self.lines()]
        return [["predictions", "pairs", "concordance", "std err"], *cells]


@dataclass(frozen=True)
class Pairs(Diagnostic[Concordance]):
    """Pairs of rows with times; nothing is told where fewer rows than the smallest have, or lack, an event."""

    name: ClassVar[str] = "concordance"
    result = TimeDiagnostics

    @classmethod
    def about(cls, model: Predicted) -> Mapping[str, Self]:
        return {"": cls(model)} if model.family.outcomes is Outcomes.TIME else {}

    @property
    def handler(self) -> Handler:
        return self.look_at_pairs

    @on_client(Point, PairSums)
    def look_at_pairs(self, problem: Problem, clients: Clients, request: Point) -> PairSums:
        """Count the pairs of rows that the model orders as their events came."""
        w = request.coefficients
        return each_client(clients, lambda shards: PairSums(self._sums(problem, *problem.design_blocks(w, shards))))

    def _sums(self, problem: Problem, block: DesignBlock) -> FloatArray:
        event = block.targets > 0
        cells = cells_of(block.margins - block.margins.mean(), SCORE_EDGES)
        problem.before_counts_leave(np.stack([counted(cells[~event]), counted(cells[event])], axis=1)[None])
        if event.sum() < max(1, self.model.smallest) or 0 < (~event).sum() < self.model.smallest:
            return np.zeros(5)
        found = concordance(block.targets, block.margins, block.weights)
        return np.array([found.agree, found.pairs, *found.squares])

    def figures(self, batch: Any) -> list[Concordance | None]:
        rows = [row.tolist() for row in batch.sums]
        return [Concordance(row[0], row[1], (row[2], row[3], row[4])) if row[1] else None for row in rows]


def concordance(targets: FloatArray, scores: FloatArray, weights: FloatArray | None = None) -> Concordance:
    """Compare the rows of one site. targets: the time of the event, or minus the time until which there was none.

    A pair counts where one row had its event while the other was still without, also one censored at that very time; equal
    scores agree by half. With weights s a pair counts s_i s_j.
    """
    s = np.ones_like(scores) if weights is None else weights
    time, censored = np.abs(targets), targets < 0
    order = np.lexsort((censored, time))
    changes = (np.diff(time[order]) != 0) | (censored[order][1:] != censored[order][:-1])
    rank = np.concatenate([[0], np.cumsum(changes)])  # a row comes later than an event where its rank is higher
    agree, pairs = _by_row(rank, ~censored[order], scores[order], s[order])
    agree, pairs = s[order] * agree, s[order] * pairs
    squares = float(agree @ agree), float(agree @ pairs), float(pairs @ pairs)
    return Concordance(0.5 * float(agree.sum()), 0.5 * float(pairs.sum()), squares)


def _by_row(rank: IntArray, event: NDArray[np.bool_], score: FloatArray, s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For each row the weight of the others in its agreeing pairs, and in all its pairs; ranks do not fall."""
    if rank.size <= _FEW:
        compared = (event[:, None] & (rank[:, None] < rank)).astype(np.float64)
        right = compared * (0.5 * (np.sign(score[:, None] - score) + 1.0))
        return right @ s + s @ right, compared @ s + s @ compared
    middle = int(np.searchsorted(rank, rank[rank.size // 2]))
    if middle == 0:
        middle = int(np.searchsorted(rank, rank[0], side="right"))
    if middle == rank.size:  # all at one time: nothing to compare
        return np.zeros(rank.size), np.zeros(rank.size)
    first, second = slice(0, middle), slice(middle, rank.size)
    parts = [_by_row(rank[part], event[part], score[part], s[part]) for part in (first, second)]
    agree, pairs = (np.concatenate([parts[0][place], parts[1][place]]) for place in (0, 1))
    earlier = np.flatnonzero(event[first])
    agree[earlier] += _weight_below(score[second], s[second], score[earlier])
    pairs[earlier] += s[second].sum()
    agree[second] += _weight_below(-score[earlier], s[earlier], -score[second])
    pairs[second] += s[earlier].sum()
    return agree, pairs


def _weight_below(values: FloatArray, weights: FloatArray, limits: FloatArray) -> FloatArray:
    """The weight of the values below each limit, and half of that of those equal to it."""
    order = np.argsort(values)
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    ends: Sequence[FloatArray] = [sums[np.searchsorted(values[order], limits, side=side)] for side in ("left", "right")]
    return np.asarray(0.5 * (ends[0] + ends[1]))
