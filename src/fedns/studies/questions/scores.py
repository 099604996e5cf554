"""Rows in groups with neighbouring predictions: what calibration, ROC and quantiles of residuals are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import logit

from fedns.core.clients import Clients, Handler, on_client
from fedns.core.errors import MessageError
from fedns.core.messages import Message, Payload, batch_size, split_batch, wire
from fedns.core.shards import Shards
from fedns.core.types import FloatArray, IntArray
from fedns.models.family import Outcomes
from fedns.models.problem import DesignBlock, Problem
from fedns.studies.diagnostics.curves import groups_of
from fedns.studies.diagnostics.predictions import Diagnostics, Prediction
from fedns.studies.questions.asking import Point, each_client
from fedns.studies.questions.cells import CELLS, RESIDUAL_EDGES, SCORE_EDGES, cells_of, counted, merged, summed
from fedns.studies.questions.diagnostic import Diagnostic, Predicted


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
class Scoring(Diagnostic[Prediction]):
    """Rows in cells by their predictions, and by their residuals; no group of them is below the smallest."""

    name: ClassVar[str] = "scores"
    result = Diagnostics
    place: int | None = None  # of the class, which is told from all others

    @classmethod
    def about(cls, model: Predicted) -> Mapping[str, Self]:
        if model.family.outcomes is Outcomes.CLASS:
            return {one: cls(model, place) for place, one in enumerate(model.classes)}
        return {"": cls(model)} if model.family.has_residuals else {}

    @property
    def handler(self) -> Handler:
        return self.look_at_scores if self.place is None else self.look_at_class

    def request(self, w: FloatArray) -> Point:
        return Point(w) if self.place is None else ClassPoint(w, np.int64(self.place))

    @property
    def has_events(self) -> bool:
        """Whether a row has what is predicted, or has not; of several classes, one against the rest."""
        return self.model.family.outcomes in (Outcomes.EVENT, Outcomes.CLASS)

    @on_client(Point, ScoreTable)
    def look_at_scores(self, problem: Problem, clients: Clients, request: Point) -> ScoreTable:
        """Counts and sums of neighbouring rows, which calibration, ROC and residual quantiles are made of."""
        return each_client(clients, lambda shards: self._table(problem, shards, request))

    @on_client(ClassPoint, ScoreTable)
    def look_at_class(self, problem: Problem, clients: Clients, request: ClassPoint) -> ScoreTable:
        """The same for one class of the outcome against all others."""
        if not 0 <= request.place <= problem.loss.outputs:
            raise MessageError(f"there is no class {request.place}: there are {problem.loss.outputs + 1}")
        return self.look_at_scores(problem, clients, request)

    def _scored(self, block: DesignBlock, request: Point) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Places in the order of predictions, outcomes as numbers, and the means that are predicted: (rows,) each."""
        family = self.model.family
        if not isinstance(request, ClassPoint):
            return block.margins, family.outcome(block.targets), family.mean(block.margins)
        likely = family.mean(block.margins)[:, request.place]
        return logit(likely), (block.targets == request.place).astype(np.float64), likely

    def _table(self, problem: Problem, shards: Shards, request: Point) -> ScoreTable:
        counts = np.zeros((2, CELLS, 2), dtype=np.int64)  # of scores and of residuals, by outcome
        sums, residual_sums = np.zeros((3, CELLS)), np.zeros((2, CELLS))
        for block in problem.design_blocks(request.coefficients, shards):
            scores, outcomes, means = self._scored(block, request)
            cells = cells_of((scores - self.model.centre) / self.model.scale, SCORE_EDGES)
            happened = (outcomes > 0) & self.has_events
            counts[0] += np.stack([counted(cells[~happened]), counted(cells[happened])], axis=1)
            sums += [_added(cells, block.weights * value) for value in (np.ones_like(means), outcomes, means)]
            if not self.has_events:  # of an event the residual follows from prediction and outcome
                off = self._residuals(block.targets, block.margins)
                cells = cells_of(off, RESIDUAL_EDGES)
                counts[1, :, 0] += counted(cells)
                residual_sums += [_added(cells, block.weights * value) for value in (np.ones_like(off), off)]
        problem.before_counts_leave(counts)
        stops, residual_stops = (merged(table, self.model.smallest) for table in counts)
        weights, outcomes, predictions = summed(sums, stops)
        residual_weights, residuals = summed(residual_sums, residual_stops)
        return ScoreTable(stops, weights, outcomes, predictions, residual_stops, residual_weights, residuals)

    def _residuals(self, targets: FloatArray, margins: FloatArray) -> FloatArray:
        """Pearson's, in units of the scale where the outcome is any number."""
        family = self.model.family
        sign = np.sign(family.outcome(targets) - family.mean(margins))
        return np.asarray(sign * np.sqrt(family.pearson(targets, margins)) / self._residual_unit)

    @property
    def _residual_unit(self) -> float:
        return self.model.scale if self.model.family.outcomes is Outcomes.NUMBER else 1.0

    def figures(self, batch: Any) -> list[Prediction | None]:
        return [self._prediction(split_batch(batch, client)) for client in range(batch_size(batch))]

    def _prediction(self, table: ScoreTable) -> Prediction | None:
        groups, counted = groups_of(table.stops, table.weights, table.outcomes, table.predictions), self.model.counted
        if not groups.weight:
            return None
        if not self.has_events:
            there = table.residual_weights > 0
            means = table.residuals[there] / table.residual_weights[there]
            return Prediction(groups, means * self._residual_unit, table.residual_weights[there], False, counted)
        mean = np.clip(groups.means, 1e-12, 1.0 - 1e-12)
        odds = np.sqrt(mean / (1.0 - mean))
        residuals = np.concatenate([-odds, 1.0 / odds])  # of non-events and events with this prediction
        weights = np.concatenate([groups.weights - groups.outcomes, groups.outcomes])
        return Prediction(groups, residuals[weights > 0], weights[weights > 0], True, counted)


def _added(cells: IntArray, values: FloatArray) -> FloatArray:
    return np.asarray(np.bincount(cells, weights=values, minlength=CELLS), dtype=np.float64)
