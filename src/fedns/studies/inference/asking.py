"""From coefficients to what they are worth: one more exchange, whose refusal costs only the figures it was for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedns.core.cohort import Cohort
from fedns.core.errors import FednsError
from fedns.federation.protocol.absence import SitesLost
from fedns.numerics.linalg import symmetric_of, triangle_of
from fedns.studies.design.columns import Design
from fedns.studies.fitting.rank import Alias, without
from fedns.studies.inference.estimates import Inference
from fedns.studies.inference.exchange import Curvature, Sums, ask_curvature, ask_sums, questions_of

FloatArray = NDArray[np.float64]
REFUSALS = (FednsError, SitesLost)


def infer(
    design: Design, found: Sequence[Alias], coefficients: FloatArray, w: FloatArray, curvature: Curvature, cohort: Cohort
) -> Inference:
    """What is known of the coefficients, after asking the sites for the sums at w.

    found: the columns that were left out. coefficients: on the original scale.
    """
    questions = questions_of(design.study)
    kept = kept_places(design, found)
    expected, sums, missing = None, None, ""
    try:
        if not questions.is_canonical:
            expected = _part(ask_curvature(cohort, w, questions.expected_information), kept).packed
        sums = ask_sums(cohort, questions, w, intercept=design.intercept)
    except REFUSALS as refusal:
        missing = str(refusal)
    diagonal = np.tile([*design.strengths, *[0.0] * int(design.intercept)], design.outputs)
    transform = np.stack([without(column, found, design.names) for column in design.to_original.T[kept]], axis=1)
    return Inference(
        names=design.names,
        coefficients=coefficients,
        family=questions.family,
        transform=transform,
        curvature=_part(curvature, kept),
        fitted=w[kept],
        penalty=diagonal[kept],
        packed_expected=expected,
        sums=None if sums is None else _scores_of(sums, kept, w.size),
        missing=missing,
        weights_are=design.study.weights_are,
        rows=cohort.rows,
    )


def kept_places(design: Design, found: Sequence[Alias]) -> list[int]:
    """Fitted coefficients, the intercept last, that were not left out."""
    gone = {alias.name for alias in found}
    return [fitted for fitted, place in enumerate(design.places) if design.names[place] not in gone]


def _part(curvature: Curvature, kept: list[int]) -> Curvature:
    hessians = _packed_part(curvature.packed_hessians, kept, curvature.gradients.shape[1])
    return Curvature(curvature.weights, curvature.gradients[:, kept], hessians)


def _scores_of(sums: Sums, kept: list[int], size: int) -> Sums:
    return replace(sums, packed_scores=_packed_part(sums.packed_scores, kept, size))


def _packed_part(packed: FloatArray, kept: list[int], size: int) -> FloatArray:
    """These rows and columns of packed symmetric matrices."""
    return triangle_of(symmetric_of(packed, size)[..., kept, :][..., kept])
