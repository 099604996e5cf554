"""Gradient and Hessian: they tell rank at the start, at the end whether there is a maximum, and standard errors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, wire
from fedns.core.types import FloatArray
from fedns.methods.curvature import refuse_impossible_hessian
from fedns.models.problem import Problem
from fedns.numerics.linalg import symmetric_of, triangle_of
from fedns.studies.questions.asking import Point, ask_all


class Information(Message):
    """A client's gradient and the upper triangle of its Hessian, row by row."""

    gradient: Payload = wire("features", dtype="float64", discloses="gradient")
    hessian_triangle: Payload = wire("entries", dtype="float64", discloses="hessian")

    def check(self) -> None:
        refuse_impossible_hessian(self.kind, self.hessian_triangle, len(self.gradient))


@on_client(Point, Information)
def information(problem: Problem, clients: Clients, request: Point) -> Information:
    """The gradient and the Hessian of the data, without a penalty."""
    gradient, triangle = problem.gradient_and_hessian(request.coefficients, clients.shards)
    return Information(gradient=gradient, hessian_triangle=triangle)


@on_client(Point, Information)
def expected_information(problem: Problem, clients: Clients, request: Point) -> Information:
    """The Hessian that is to be expected at these coefficients, whatever the outcomes are."""
    return information(replace(problem, loss=problem.loss.expected), clients, request)


@dataclass(frozen=True, eq=False)
class SiteCurvature:
    """The information that sites have told: the data's part, without a penalty."""

    weights: FloatArray  # (sites,) rows of each, as they are weighted
    gradients: FloatArray  # (sites, features), means over rows
    triangles: FloatArray  # (sites, entries), of Hessians, means over rows

    @property
    def gradient(self) -> FloatArray:
        """The mean over all rows: (features,)."""
        return np.asarray(self.weights @ self.gradients / self.weights.sum())

    @property
    def triangle(self) -> FloatArray:
        """The Hessian's mean over all rows: (entries,)."""
        return np.asarray(self.weights @ self.triangles / self.weights.sum())

    @property
    def hessian(self) -> FloatArray:
        """The mean over all rows: (features, features)."""
        return symmetric_of(self.triangle, self.gradients.shape[1])

    def part(self, places: list[int]) -> SiteCurvature:
        """Only of these coefficients."""
        triangles = triangle_part(self.triangles, places, self.gradients.shape[1])
        return SiteCurvature(self.weights, self.gradients[:, places], triangles)


def triangle_part(triangles: FloatArray, places: list[int], size: int) -> FloatArray:
    """These rows and columns of symmetric matrices of this size."""
    return triangle_of(symmetric_of(triangles, size)[..., places, :][..., places])


def ask_curvature(cohort: Cohort, w: FloatArray, handler: Handler = information) -> SiteCurvature:
    """Gradients and Hessians of all sites at w."""
    found = ask_all(cohort, handler, w)
    return SiteCurvature(cohort.total_weights, found.gradient, found.hessian_triangle)
