"""Differences of sites: what each says alone, whether they disagree by more than chance, and what is left without one.

A site's own estimate is one Newton step from the joint one, on its rows alone: exact where the outcome is gaussian, else as
good as a second-order expansion, and nothing more is asked of the sites. Estimates without a site come from `without`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedns.core.types import FloatArray
from fedns.numerics.linalg import symmetric_of
from fedns.studies.inference.distributions import chi2_sf
from fedns.studies.inference.estimates import Inference
from fedns.studies.questions.gradients import Without


@dataclass(frozen=True, eq=False)
class SiteEstimates:
    """Estimates of each site alone, and of all others without it; NaN where it, or they, cannot say."""

    sites: tuple[str, ...]
    coefficients: FloatArray  # (sites, names)
    standard_errors: FloatArray  # (sites, names)
    without: FloatArray  # (sites, names): estimates of all other sites


@dataclass(frozen=True)
class Heterogeneity:
    """Cochran's test of one coefficient over sites."""

    name: str
    sites: int  # that could estimate it
    q: float
    p_value: float
    i_squared: float  # the part of the variation between sites that is not chance, from 0 to 1


def site_estimates(inference: Inference, sites: Sequence[str], without: Without | None) -> SiteEstimates:
    """One step from the joint estimate for each site; for all but it, what they were found to say."""
    shape = len(sites), len(inference.names)
    own, errors, rest = (np.full(shape, np.nan) for _ in range(3))
    for site in range(len(sites)):
        own[site], errors[site] = _alone(inference, site)
    if without is not None:
        rest = inference.coefficients + (without.fitted - inference.fitted) @ inference.transform.T
    return SiteEstimates(tuple(sites), own, errors, rest)


def heterogeneity(inference: Inference, estimates: SiteEstimates) -> tuple[Heterogeneity, ...]:
    """Test every coefficient that at least two sites can estimate."""
    found = []
    for place, name in enumerate(inference.names):
        values, errors = estimates.coefficients[:, place], estimates.standard_errors[:, place]
        known = np.isfinite(values) & np.isfinite(errors)
        if known.sum() < 2:
            continue
        shares = errors[known] ** -2
        q = float(shares @ (values[known] - np.average(values[known], weights=shares)) ** 2)
        df = int(known.sum()) - 1
        i_squared = max(0.0, (q - df) / q) if q > 0 else 0.0
        found.append(Heterogeneity(name, df + 1, q, chi2_sf(df, q), i_squared))
    return tuple(found)


def _alone(inference: Inference, site: int) -> tuple[FloatArray, FloatArray]:
    found = inference.alone(site)
    if found is None:
        nothing = np.full(len(inference.names), np.nan)
        return nothing, nothing
    has, bread = found
    gradient, weight = inference.curvature.gradients[site], float(inference.curvature.weights[site])
    rows, step = float(inference.site_rows[site]), -bread @ gradient[has]
    dispersion = 1.0
    if not inference.family.dispersion_is_known:
        left = inference.need_sums().pearson[site] + float(gradient[has] @ step)  # of its own fit
        dispersion = inference.family.estimated_dispersion(weight * left, rows, has.size)
    transform = inference.transform[:, has]
    touched = np.delete(inference.transform, has, axis=1).any(axis=1) | np.isnan(inference.coefficients)
    values = np.where(touched, np.nan, inference.coefficients + transform @ step)
    own = dispersion / weight * bread
    if inference.is_sample:  # scores scatter around the site's own mean of them, which is not 0 at the joint estimate
        products = symmetric_of(inference.need_sums().score_triangles[site], inference.penalty.size)[np.ix_(has, has)]
        scores = products / weight - np.outer(gradient[has], gradient[has]) / rows
        own = rows / (rows - 1) * bread @ scores @ bread
    variances = np.einsum("na,ab,nb->n", transform, own, transform)
    return values, np.where(touched, np.nan, np.sqrt(np.maximum(variances, 0.0)))
