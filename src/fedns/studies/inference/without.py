"""The models of all sites but one, fitted without it until nothing changes, from gradients alone and all at the same time.

Each begins one Newton step from the joint fit, with the Hessian that the other sites have told there, and goes on by BFGS
steps. One exchange asks every site for its gradients at all models that still move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedns.core.cohort import Cohort
from fedns.core.errors import DataError
from fedns.core.types import FloatArray
from fedns.studies.inference.estimates import Inference, inverse
from fedns.studies.questions.asking import REFUSALS
from fedns.studies.questions.gradients import MOST_SITES, Without, ask_gradients

_MOST_EXCHANGES = 15
_NEAR_ENOUGH = 1e-5  # standard errors from the maximum


@dataclass(eq=False)
class _QuadraticModel:
    """One of them on its way, on the scale of the fit."""

    shares: FloatArray  # (sites,) of the rows, 0 for the site that is left out
    inverse: FloatArray  # (fitted, fitted) of the Hessian in the mean over rows, as far as it is known
    w: FloatArray  # (fitted,)
    unit: float  # a standard error, in units of the Newton decrement
    gradient: FloatArray | None = None
    step: FloatArray | None = None

    def moved(self, gradient: FloatArray) -> bool:
        """Take a step by the gradient at w; False where w is near enough."""
        with np.errstate(over="ignore", invalid="ignore"):  # a model that runs away is noticed by what becomes of w
            if self.gradient is not None and self.step is not None:
                self._learn(self.step, gradient - self.gradient)
            step = -self.inverse @ gradient
            if math.sqrt(max(0.0, float(-gradient @ step))) <= _NEAR_ENOUGH * self.unit:
                return False
            self.gradient, self.step, self.w = gradient, step, self.w + step
        return True

    def _learn(self, step: FloatArray, change: FloatArray) -> None:
        """The BFGS update, which makes the inverse true along the last step."""
        along = float(step @ change)
        if along > 0:
            left = np.eye(step.size) - np.outer(step, change) / along
            self.inverse = left @ self.inverse @ left.T + np.outer(step, step) / along


def ask_without(
    cohort: Cohort, w: FloatArray, kept: Sequence[int], inference: Inference, names: Sequence[str]
) -> Without | None:
    """The models of all sites but one; one step from the joint fit, with a note, where sites cannot be asked for more.

    kept: which of w the inference is about. None where there is one site.
    """
    if len(names) < 2:
        return None
    models = {site: model for site in range(len(names)) if (model := _begun(inference, site)) is not None}
    one_step = _put(models, inference, len(names))
    if cohort.session.problem.loss.curvature_is_constant:  # then the first step has reached the maximum
        return Without(one_step)
    if len(names) > MOST_SITES:
        return Without(one_step, False, (f"models without a site are refitted for up to {MOST_SITES} sites",))
    try:
        moving = _moved(cohort, w, list(kept), inference, models)
    except REFUSALS as refusal:
        return Without(one_step, False, (f"models without a site are one Newton step from the joint one: {refusal}",))
    found = _put({site: model for site, model in models.items() if site not in moving}, inference, len(names))
    return Without(found, True, tuple(f"the model without site '{names[site]}' does not converge" for site in moving))


def _begun(inference: Inference, site: int) -> _QuadraticModel | None:
    """One Newton step from the joint fit; None where the other sites do not determine the coefficients."""
    weights, penalty = inference.curvature.weights, np.diag(inference.penalty)
    rest = inference.weight - weights[site]
    others = (inference.information - weights[site] * inference.hessians[site]) / rest + penalty
    gradient = (
        weights[site] * inference.curvature.gradients[site] + weights[site] * inference.penalty * inference.fitted
    ) / rest
    try:
        inverted = inverse(others)
    except DataError:
        return None
    shares = np.where(np.arange(weights.size) == site, 0.0, weights / rest)
    told = rest * inference.observations / inference.weight if inference.is_sample else rest
    unit = math.sqrt((inference.dispersion if inference.sums is not None else 1.0) / told)
    return _QuadraticModel(shares, inverted, inference.fitted + inverted @ gradient, unit)


def _moved(
    cohort: Cohort, w: FloatArray, kept: list[int], inference: Inference, models: dict[int, _QuadraticModel]
) -> dict[int, _QuadraticModel]:
    """Move the models until they converge; those that do not."""
    moving, lost = dict(models), {}
    for _ in range(_MOST_EXCHANGES):
        if not moving:
            break
        points = np.tile(w, (len(moving), 1))
        points[:, kept] = [model.w for model in moving.values()]
        told = ask_gradients(cohort, points)[..., kept]
        for place, (site, model) in enumerate(list(moving.items())):
            gradient = model.shares @ told[:, place] + inference.penalty * model.w
            if not model.moved(gradient):
                del moving[site]
            elif not np.isfinite(model.w).all():
                lost[site] = moving.pop(site)
    return lost | moving


def _put(models: dict[int, _QuadraticModel], inference: Inference, sites: int) -> FloatArray:
    found = np.full((sites, inference.fitted.size), np.nan)
    for site, model in models.items():
        found[site] = model.w
    return found
