"""From coefficients to what they are worth: one more exchange, whose refusal costs only the figures it was for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedns.core.cohort import Cohort
from fedns.core.types import FloatArray
from fedns.models.problem import Problem
from fedns.studies.inference.estimates import Inference
from fedns.studies.questions.asking import UNANSWERED
from fedns.studies.questions.fit_sums import FitSums, ask_sums
from fedns.studies.questions.information import SiteCurvature, ask_curvature, expected_information, triangle_part


def infer(
    cohort: Cohort,
    asked: FitSums,
    curvature: SiteCurvature,
    w: FloatArray,
    names: Sequence[str],
    coefficients: FloatArray,
    *,
    intercept: bool,
    transform: FloatArray | None = None,
    kept: list[int] | None = None,
) -> Inference:
    """What is known of the coefficients, after asking the sites for the sums at w.

    names, coefficients: as they are reported. transform: from those of w that were kept to them, the same unless given.
    kept: which of w were not left out, all unless given.
    """
    problem: Problem = cohort.session.problem
    kept = list(range(w.size)) if kept is None else kept
    expected, sums, missing = None, None, ""
    try:
        if asked.family.loss.expected != asked.family.loss:  # the observed information, which a fit uses, is another
            expected = ask_curvature(cohort, w, expected_information).part(kept).triangle
        sums = ask_sums(cohort, asked, w, intercept=intercept)
        sums = replace(sums, score_triangles=triangle_part(sums.score_triangles, kept, w.size))
    except UNANSWERED as refusal:
        missing = str(refusal)
    return Inference(
        names=tuple(names),
        coefficients=coefficients,
        family=asked.family,
        transform=np.eye(w.size) if transform is None else transform,
        curvature=curvature.part(kept),
        fitted=w[kept],
        penalty=problem.penalty_curvature(w)[kept],
        expected_triangle=expected,
        sums=sums,
        missing=missing,
        weights_are=asked.weights_are,
        rows=cohort.rows,
    )
