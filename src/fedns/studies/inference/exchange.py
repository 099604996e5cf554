"""What sites are asked for once the coefficients are known. Metered, in the ledgers, and subject to the owner's rules."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, as_batch, joined, wire
from fedns.methods.curvature import refuse_impossible_hessian
from fedns.models.family import Family, Outcomes
from fedns.models.problem import Problem
from fedns.numerics.linalg import symmetric_of, triangle_of
from fedns.numerics.parallel import map_clients
from fedns.studies.study import Study

FloatArray = NDArray[np.float64]
_MOST_NULL_STEPS = 25
_NULL_TOLERANCE = 1e-20  # what a further step would take from the loss, relative to it


class Point(Message):
    """Coefficients to look at; never rounded."""

    coefficients: Payload = wire("features", dtype="float64")


class Information(Message):
    """A client's gradient and the upper triangle of its Hessian, row by row."""

    gradient: Payload = wire("features", dtype="float64", discloses="gradient")
    packed_hessian: Payload = wire("entries", dtype="float64", discloses="hessian")

    def check(self) -> None:
        refuse_impossible_hessian(self.kind, self.packed_hessian, len(self.gradient))


class Fit(Message):
    """How well the coefficients fit a client's rows, as means over them, and products of their residuals."""

    loss: Payload = wire(dtype="float64", discloses="loss")
    pearson: Payload = wire(dtype="float64", discloses="loss")
    outcome: Payload = wire(dtype="float64", discloses="moments")
    constants: Payload = wire("constants", dtype="float64", discloses="moments")
    packed_scores: Payload = wire("entries", dtype="float64", discloses="scores")


class Scores(Message):
    """How well the coefficients fit a client's rows on average, and products of what each row adds to the gradient."""

    loss: Payload = wire(dtype="float64", discloses="loss")
    packed_scores: Payload = wire("entries", dtype="float64", discloses="scores")


class ClassShares(Message):
    """How a client's rows divide among the classes of the outcome, the reference first."""

    shares: Payload = wire("classes", dtype="float64", discloses="moments")


class NullFit(Message):
    """A client's mean loss with a margin that is the same for all rows, and its two derivatives in that margin."""

    loss: Payload = wire(dtype="float64", discloses="loss")
    slope: Payload = wire(dtype="float64", discloses="gradient")
    curvature: Payload = wire(dtype="float64", discloses="loss")


@on_client(Point, Information)
def information(problem: Problem, clients: Clients, request: Point) -> Information:
    """What tells rank at the start; at the end whether there is a maximum, and the standard errors."""
    gradient, packed = problem.gradient_and_hessian(request.coefficients, clients.shards)
    return Information(gradient=gradient, packed_hessian=packed)


@dataclass(frozen=True)
class Questions:
    """The questions about a fit of this family, to rows with weights of this kind."""

    family: Family
    weights_are: str = "counts"

    def handlers(self) -> tuple[Handler, ...]:
        fit = self.look_at_fit if self.family.has_residuals else self.look_at_row_scores
        classes = (self.look_at_classes,) if self.has_classes else ()
        return information, self.expected_information, fit, *classes, self.look_at_null

    @property
    def has_classes(self) -> bool:
        return self.family.outcomes is Outcomes.CLASS

    @property
    def is_canonical(self) -> bool:
        """Whether the observed information, which a fit uses, is the expected one, which standard errors are made of."""
        loss = self.family.loss
        return loss.expected == loss

    def _squared(self, weights: FloatArray) -> FloatArray:
        """Weigh the product of a row's score with itself counts.

        A count of 2 is two rows, which scatter by themselves; else a row is one, and its score has the weight as a factor.
        """
        return weights if self.weights_are == "counts" else weights**2

    @on_client(Point, Information)
    def expected_information(self, problem: Problem, clients: Clients, request: Point) -> Information:
        """The Hessian that is to be expected at these coefficients, whatever the outcomes are."""
        expected = replace(problem, loss=problem.loss.expected)
        return information(expected, clients, request)

    @on_client(Point, Fit)
    def look_at_fit(self, problem: Problem, clients: Clients, request: Point) -> Fit:
        """Sums that likelihood, deviance, dispersion and robust standard errors are made of."""
        w, shards = request.coefficients, clients.shards

        def means(client: int) -> tuple[FloatArray, FloatArray]:
            sums, scores = np.zeros(5), np.zeros((w.size,) * 2)
            for block in problem.coded_blocks(w, shards.select([client])):
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

    @on_client(Point, Scores)
    def look_at_row_scores(self, problem: Problem, clients: Clients, request: Point) -> Scores:
        """The same where a row has several residuals, or none of its own: likelihood and robust standard errors."""
        answers = []
        for client in range(clients.shards.num_clients):
            shards = clients.shards.select([client])
            products = np.zeros((request.coefficients.size,) * 2)
            for scores, weights in problem.row_scores(request.coefficients, shards):
                products += (scores * self._squared(weights)[:, None]).T @ scores
            loss = problem.value(request.coefficients, shards)[0]
            answers.append(Scores(loss, triangle_of(products / shards.total_weights[0])))
        return as_batch(answers)

    @on_client(Point, ClassShares)
    def look_at_classes(self, problem: Problem, clients: Clients, request: Point) -> ClassShares:
        """What a model without any column is made of, where the outcome has classes."""
        problem.before_rows_are_read()
        shards, found = clients.shards, []
        for start, stop in zip(shards.starts, shards.stops, strict=True):
            weights = None if shards.sample_weights is None else shards.sample_weights[start:stop]
            numbers = shards.targets[start:stop].astype(np.int64)
            counts = np.bincount(numbers, weights, minlength=problem.loss.root_rows)
            found.append(ClassShares(counts / counts.sum()))
        return as_batch(found)

    @on_client(Point, NullFit)
    def look_at_null(self, problem: Problem, clients: Clients, request: Point) -> NullFit:
        """How well a model without any column fits."""
        w, shards = request.coefficients, clients.shards
        loss, gradient = problem.value_and_gradient(w, shards)
        direction = np.zeros((1, 1, w.size))
        direction[..., -1] = 1.0
        curvature = problem.hessian_times(w, direction, shards)[:, 0, -1]
        return NullFit(loss=loss, slope=gradient[:, -1], curvature=curvature)


@dataclass(frozen=True, eq=False)
class Curvature:
    """What `information` tells: the data's part, without a penalty, of every site."""

    weights: FloatArray  # (sites,) rows of each, as they are weighted
    gradients: FloatArray  # (sites, features), means over rows
    packed_hessians: FloatArray  # (sites, entries), means over rows

    @property
    def gradient(self) -> FloatArray:
        """The mean over all rows: (features,)."""
        return np.asarray(self.weights @ self.gradients / self.weights.sum())

    @property
    def packed(self) -> FloatArray:
        """The Hessian's mean over all rows: (entries,)."""
        return np.asarray(self.weights @ self.packed_hessians / self.weights.sum())

    @property
    def hessian(self) -> FloatArray:
        """The mean over all rows: (features, features)."""
        return symmetric_of(self.packed, self.gradients.shape[1])


@dataclass(frozen=True, eq=False)
class Sums:
    """What `look_at_fit` tells, of every site, as means over its rows."""

    losses: FloatArray  # (sites,)
    pearson: FloatArray  # (sites,), NaN where rows have no residuals
    constants: FloatArray  # (sites, 2)
    packed_scores: FloatArray  # (sites, entries)
    null_loss: float  # of all sites


def questions_of(study: Study) -> Questions:
    """What is asked about a fit of this study."""
    return Questions(study.distribution, study.weights_are)


def ask_curvature(cohort: Cohort, w: FloatArray, handler: Handler = information) -> Curvature:
    """Gradients and Hessians of all sites at w."""
    found = _joined(cohort, handler, w)
    return Curvature(cohort.total_weights, found.gradient, found.packed_hessian)


def ask_sums(cohort: Cohort, questions: Questions, w: FloatArray, *, intercept: bool) -> Sums:
    """The sums at w, and the loss of the model without columns."""
    if questions.family.has_residuals:
        fit = _joined(cohort, questions.look_at_fit, w)
        # Beside offsets the mean outcome has no margin; there a fit starts where the null model is, or near.
        offset = cohort.session.problem.offset
        margin = float(cohort.start[-1]) if offset else questions.family.margin(float(cohort.weights @ fit.outcome))
        start = margin if intercept else 0.0
        null_loss = _null_loss(cohort, questions, start, w.size, intercept=intercept)
        return Sums(fit.loss, fit.pearson, fit.constants, fit.packed_scores, null_loss)
    fit = _joined(cohort, questions.look_at_row_scores, w)
    if questions.has_classes and intercept:  # then it has the shares of the classes for probabilities
        null_loss = float(entr(ask_classes(cohort, questions, w)).sum())
    else:
        null_loss = _null_loss(cohort, questions, 0.0, w.size, intercept=False)
    sites = cohort.total_weights.size
    return Sums(fit.loss, np.full(sites, np.nan), np.zeros((sites, 2)), fit.packed_scores, null_loss)


def ask_classes(cohort: Cohort, questions: Questions, w: FloatArray) -> FloatArray:
    """The shares of the classes among all rows, the reference first."""
    return np.asarray(cohort.weights @ _joined(cohort, questions.look_at_classes, w).shares)


def ask_null(cohort: Cohort, questions: Questions, w: FloatArray) -> tuple[float, float, float]:
    """The mean loss over all rows, its slope and its curvature in the intercept."""
    found = _joined(cohort, questions.look_at_null, w)
    loss, slope, curvature = (float(cohort.weights @ part) for part in (found.loss, found.slope, found.curvature))
    return loss, slope, curvature


def _null_loss(cohort: Cohort, questions: Questions, margin: float, size: int, *, intercept: bool) -> float:
    """The smallest mean loss that an intercept alone has, by Newton steps; where the margin is right one look is enough."""
    w, before, least, loss = np.zeros(size), margin, np.inf, np.inf
    for _ in range(_MOST_NULL_STEPS):
        w[-1] = margin
        loss, slope, curvature = ask_null(cohort, questions, w)
        if not intercept or abs(slope) <= math.sqrt(_NULL_TOLERANCE * curvature * abs(loss)):
            break
        if loss > least:  # the step was too long
            margin = 0.5 * (before + margin)
            continue
        before, least = margin, loss
        margin -= slope / curvature
        if abs(margin - before) <= 1e-14 * max(1.0, abs(margin)):
            break
    return loss


def _joined(cohort: Cohort, handler: Handler, w: FloatArray) -> Any:
    return joined([batch for _, batch in cohort.ask(handler, Point(coefficients=w))])
