"""From coefficients to what they are worth: one more exchange, whose refusal costs only the figures it was for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedns.core.cohort import Cohort
from fedns.core.types import FloatArray
from fedns.studies.design.aliases import Alias, kept_places, without
from fedns.studies.design.columns import Design
from fedns.studies.inference.estimates import Inference
from fedns.studies.questions.asking import REFUSALS
from fedns.studies.questions.fit_sums import FitSums, ask_sums
from fedns.studies.questions.information import SiteCurvature, ask_curvature, expected_information, triangle_part


def infer(
    design: Design, found: Sequence[Alias], coefficients: FloatArray, w: FloatArray, curvature: SiteCurvature, cohort: Cohort
) -> Inference:
    """What is known of the coefficients, after asking the sites for the sums at w.

    found: the columns that were left out. coefficients: on the original scale.
    """
    family, weights_are = design.study.distribution, design.study.weights_are
    kept = kept_places(design, found)
    expected, sums, missing = None, None, ""
    try:
        if family.loss.expected != family.loss:  # the observed information, which a fit uses, is another
            expected = ask_curvature(cohort, w, expected_information).part(kept).triangle
        sums = ask_sums(cohort, FitSums(family, weights_are), w, intercept=design.intercept)
        sums = replace(sums, score_triangles=triangle_part(sums.score_triangles, kept, w.size))
    except REFUSALS as refusal:
        missing = str(refusal)
    diagonal = np.tile([*design.strengths, *[0.0] * int(design.intercept)], design.outputs)
    transform = np.stack([without(column, found, design.names) for column in design.to_original.T[kept]], axis=1)
    return Inference(
        names=design.names,
        coefficients=coefficients,
        family=family,
        transform=transform,
        curvature=curvature.part(kept),
        fitted=w[kept],
        penalty=diagonal[kept],
        expected_triangle=expected,
        sums=sums,
        missing=missing,
        weights_are=weights_are,
        rows=cohort.rows,
    )
