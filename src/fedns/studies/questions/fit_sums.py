"""Sums at the end of a fit, which likelihood, deviance, dispersion and robust standard errors are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import entr

from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, as_batch, wire
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.models.family import Family, Outcomes
from fedns.models.problem import Problem
from fedns.numerics.linalg import triangle_of
from fedns.numerics.parallel import map_clients
from fedns.studies.questions.asking import Point, ask_all, each_client
from fedns.studies.questions.null_model import ask_classes, ask_null_loss


class Fit(Message):
    """How well the coefficients fit a client's rows, as means over them, and products of their residuals."""

    loss: Payload = wire(dtype="float64", discloses="loss")
    pearson: Payload = wire(dtype="float64", discloses="loss")
    outcome: Payload = wire(dtype="float64", discloses="moments")
    constants: Payload = wire("constants", dtype="float64", discloses="moments")
    score_triangle: Payload = wire("entries", dtype="float64", discloses="scores")


class RowScores(Message):
    """How well the coefficients fit a client's rows on average, and products of what each row adds to the gradient."""

    loss: Payload = wire(dtype="float64", discloses="loss")
    score_triangle: Payload = wire("entries", dtype="float64", discloses="scores")


@dataclass(frozen=True, eq=False)
class SiteSums:
    """The sums that sites have told, as means over the rows of each."""

    losses: FloatArray  # (sites,)
    pearson: FloatArray  # (sites,), NaN where rows have no residuals
    constants: FloatArray  # (sites, 2)
    score_triangles: FloatArray  # (sites, entries)
    null_loss: float  # of all sites


@dataclass(frozen=True)
class FitSums:
    """The sums of a fit of this family, over rows with weights of this kind."""

    family: Family
    weights_are: str = "counts"

    @property
    def handler(self) -> Handler:
        return self.look_at_fit if self.family.has_residuals else self.look_at_row_scores

    def _squared(self, weights: FloatArray) -> FloatArray:
        """Weigh the product of a row's score with itself counts.

        A count of 2 is two rows, which scatter by themselves; else a row is one, and its score has the weight as a factor.
        """
        return weights if self.weights_are == "counts" else weights**2

    @on_client(Point, Fit)
    def look_at_fit(self, problem: Problem, clients: Clients, request: Point) -> Fit:
        """Means over rows of loss, residuals, outcome and constants; products of scores."""
        w, shards = request.coefficients, clients.shards

        def means(client: int) -> tuple[FloatArray, FloatArray]:
            sums, scores = np.zeros(5), np.zeros((w.size,) * 2)
            for block in problem.design_blocks(w, shards.select([client])):
                slopes = problem.loss.slope(block.targets, block.margins)
                scaled = block.features * (np.sqrt(self._squared(block.weights)) * slopes)[:, None]
                scores += scaled.T @ scaled
                sums[0] += block.weights @ self.family.pearson(block.targets, block.margins)
                sums[1] += block.weights @ self.family.outcome(block.targets)
                sums[2:4] += self.family.constants(block.targets, block.weights)
                sums[2] += self.family.weight_constant(block.weights).sum() if self.weights_are == "precision" else 0.0
                sums[4] += block.weights.sum()
            return sums / sums[4], triangle_of(scores / sums[4])

        found = map_clients(means, shards.num_clients)
        losses = problem.value(w, shards)
        return as_batch(
            [Fit(loss, mean[0], mean[1], mean[2:4], scores) for loss, (mean, scores) in zip(losses, found, strict=True)]
        )

    @on_client(Point, RowScores)
    def look_at_row_scores(self, problem: Problem, clients: Clients, request: Point) -> RowScores:
        """The same where a row has several residuals, or none of its own: likelihood and robust standard errors."""
        w = request.coefficients

        def answer(shards: Shards) -> RowScores:
            products = np.zeros((w.size,) * 2)
            for scores, weights in problem.row_scores(w, shards):
                products += (scores * self._squared(weights)[:, None]).T @ scores
            return RowScores(problem.value(w, shards)[0], triangle_of(products / shards.total_weights[0]))

        return each_client(clients, answer)


def ask_sums(cohort: Cohort, asked: FitSums, w: FloatArray, *, intercept: bool) -> SiteSums:
    """The sums at w, and the loss of the model without columns."""
    fit = ask_all(cohort, asked.handler, w)
    if asked.family.has_residuals:
        # Beside offsets the mean outcome has no margin; there a fit starts where the null model is, or near.
        offset = cohort.session.problem.offset
        margin = float(cohort.start[-1]) if offset else asked.family.margin(float(cohort.weights @ fit.outcome))
        null_loss = ask_null_loss(cohort, margin if intercept else 0.0, w.size, intercept=intercept)
        return SiteSums(fit.loss, fit.pearson, fit.constants, fit.score_triangle, null_loss)
    if asked.family.outcomes is Outcomes.CLASS and intercept:  # then it has the shares of the classes for probabilities
        null_loss = float(entr(ask_classes(cohort, w)).sum())
    else:
        null_loss = ask_null_loss(cohort, 0.0, w.size, intercept=False)
    sites = cohort.total_weights.size
    return SiteSums(fit.loss, np.full(sites, np.nan), np.zeros((sites, 2)), fit.score_triangle, null_loss)
