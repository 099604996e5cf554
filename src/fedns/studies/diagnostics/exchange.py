"""What sites are asked for to tell how well a model predicts: counts and sums over groups of rows, none of them small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from fedns.core.clients import Clients, Handler, on_client
from fedns.core.errors import MessageError
from fedns.core.messages import Message, Payload, as_batch, wire
from fedns.core.shards import Shards
from fedns.models.family import Family, Outcomes
from fedns.models.problem import CodedBlock, Problem
from fedns.studies.design.columns import Design
from fedns.studies.diagnostics.cells import CELLS, RESIDUAL_EDGES, SCORE_EDGES, cells_of, counted, merged, summed
from fedns.studies.diagnostics.concordance import Pairs
from fedns.studies.inference.exchange import Point

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class ScoreTable(Message):
    """A client's rows in groups with neighbouring predictions, and in groups with neighbouring residuals; none is small."""

    stops: Payload = wire("groups", dtype="int64", ragged=True, discloses="histogram")
    weights: Payload = wire("groups", dtype="float64", ragged=True, discloses="histogram")
    outcomes: Payload = wire("groups", dtype="float64", ragged=True, discloses="histogram")
    predictions: Payload = wire("groups", dtype="float64", ragged=True, discloses="histogram")
    residual_stops: Payload = wire("residual_groups", dtype="int64", ragged=True, discloses="histogram")
    residual_weights: Payload = wire("residual_groups", dtype="float64", ragged=True, discloses="histogram")
    residuals: Payload = wire("residual_groups", dtype="float64", ragged=True, discloses="histogram")

    def check(self) -> None:
        for stops, weights in ((self.stops, self.weights), (self.residual_stops, self.residual_weights)):
            ends = np.concatenate([[0], stops])
            if (np.diff(ends) <= 0).any() or (stops.size and ends[-1] != CELLS) or not (weights >= 0).all():
                raise MessageError(f"{self.kind} must have groups that follow one another, of rows with no weight below 0")


class ClassPoint(Point):
    """Coefficients to look at; never rounded; and which class of the outcome, the reference being 0."""

    place: Payload = wire(dtype="int64")


@dataclass(frozen=True)
class Scoring:
    """How rows of a family are put into cells: margins in units of a scale, around a centre; no group below the smallest."""

    family: Family
    centre: float = 0.0
    scale: float = 1.0
    smallest: int = 5
    counted: bool = True  # whether a row's weight is a number of rows, which say how sure figures are

    @property
    def has_classes(self) -> bool:
        return self.family.outcomes is Outcomes.CLASS

    @property
    def has_events(self) -> bool:
        """Whether a row has what is predicted, or has not; of several classes, one against the rest."""
        return self.family.outcomes is Outcomes.EVENT or self.has_classes

    def handlers(self) -> tuple[Handler, ...]:
        if self.has_classes:
            return (self.look_at_class,)
        return (self.look_at_scores,) if self.family.has_residuals else Pairs(self.smallest).handlers()

    @on_client(Point, ScoreTable)
    def look_at_scores(self, problem: Problem, clients: Clients, request: Point) -> ScoreTable:
        """Counts and sums of neighbouring rows, which calibration, ROC and residual quantiles are made of."""
        shards = clients.shards
        return as_batch([self._table(problem, shards.select([one]), request) for one in range(shards.num_clients)])

    @on_client(ClassPoint, ScoreTable)
    def look_at_class(self, problem: Problem, clients: Clients, request: ClassPoint) -> ScoreTable:
        """The same for one class of the outcome against all others."""
        if not 0 <= request.place <= problem.loss.outputs:
            raise MessageError(f"there is no class {request.place}: there are {problem.loss.outputs + 1}")
        shards = clients.shards
        return as_batch([self._table(problem, shards.select([one]), request) for one in range(shards.num_clients)])

    def _scored(self, block: CodedBlock, request: Point) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Where a row is in the order of predictions, its outcome as a number, and the mean that is predicted: (rows,)."""
        if not isinstance(request, ClassPoint):
            return block.margins, self.family.outcome(block.targets), self.family.mean(block.margins)
        likely = self.family.mean(block.margins)[:, request.place]
        return logit(likely), (block.targets == request.place).astype(np.float64), likely

    def _table(self, problem: Problem, shards: Shards, request: Point) -> ScoreTable:
        counts = np.zeros((2, CELLS, 2), dtype=np.int64)  # of scores and of residuals, by outcome
        sums, residual_sums = np.zeros((3, CELLS)), np.zeros((2, CELLS))
        for block in problem.coded_blocks(request.coefficients, shards):
            scores, outcomes, means = self._scored(block, request)
            cells = cells_of((scores - self.centre) / self.scale, SCORE_EDGES)
            happened = (outcomes > 0) & self.has_events
            counts[0] += np.stack([counted(cells[~happened]), counted(cells[happened])], axis=1)
            sums += [_added(cells, block.weights * value) for value in (np.ones_like(means), outcomes, means)]
            if not self.has_events:  # of an event the residual follows from prediction and outcome
                off = self.residuals(block.targets, block.margins)
                cells = cells_of(off, RESIDUAL_EDGES)
                counts[1, :, 0] += counted(cells)
                residual_sums += [_added(cells, block.weights * value) for value in (np.ones_like(off), off)]
        problem.before_counts_leave(counts)
        stops, residual_stops = (merged(table, self.smallest) for table in counts)
        weights, outcomes, predictions = summed(sums, stops)
        residual_weights, residuals = summed(residual_sums, residual_stops)
        return ScoreTable(stops, weights, outcomes, predictions, residual_stops, residual_weights, residuals)

    def residuals(self, targets: FloatArray, margins: FloatArray) -> FloatArray:
        """Pearson's, in units of the scale where the outcome is any number."""
        sign = np.sign(self.family.outcome(targets) - self.family.mean(margins))
        return np.asarray(sign * np.sqrt(self.family.pearson(targets, margins)) / self.residual_unit)

    @property
    def residual_unit(self) -> float:
        return self.scale if self.family.outcomes is Outcomes.NUMBER else 1.0


def _added(cells: IntArray, values: FloatArray) -> FloatArray:
    return np.asarray(np.bincount(cells, weights=values, minlength=CELLS), dtype=np.float64)


def scoring_of(design: Design, smallest: int) -> Scoring:
    """How rows of a study are put into cells: by its family, around what was agreed to be the outcome's mean."""
    family, counted = design.study.distribution, design.study.weights_are == "counts"
    centre, scale = design.agreement.centres.get(design.study.parsed.outcome, (1.0, 1.0))
    match family.outcomes:
        case Outcomes.NUMBER:
            return Scoring(family, centre, scale, smallest, counted)
        case Outcomes.COUNT | Outcomes.POSITIVE:
            return Scoring(family, family.margin(max(centre, 1e-300)), 1.0, smallest, counted)
        case _:
            return Scoring(family, smallest=smallest, counted=counted)
