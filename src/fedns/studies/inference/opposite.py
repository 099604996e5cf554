"""Sites that say the opposite of all others, as one does whose outcome is coded the other way.

Its coefficients are those of the others with the other sign. Both sums of squares are chi² where what they compare is the
same, with S the covariance of the site's own estimate and V that of the others', intercepts left out:

    apart = (own - rest)' (S + V)^-1 (own - rest)      mirrored = (own + rest)' (S + V)^-1 (own + rest)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedns.core.errors import DataError
from fedns.core.types import FloatArray, IntArray
from fedns.models.family import Outcomes
from fedns.numerics.linalg import solve_positive
from fedns.studies.diagnostics.by_site import Diagnosed
from fedns.studies.diagnostics.predictions import Diagnostics
from fedns.studies.inference.distributions import chi2_sf
from fedns.studies.inference.estimates import Inference, inverse
from fedns.studies.questions.gradients import Without

_BEYOND_CHANCE = 1e-6  # how likely so much disagreement may be by chance alone
_NEARER = 0.1  # of the disagreement may be left once the sign is changed
_ERRORS_BELOW = 3.0  # standard errors that the order of predictions must be below chance, where outcomes can be ordered


class Order(NamedTuple):
    """The order that the model of the others gives a site's rows: the area under the ROC."""

    area: float
    standard_error: float

    @property
    def is_reversed(self) -> bool:
        return self.area + _ERRORS_BELOW * self.standard_error < 0.5


UNTOLD: tuple[Order | None, ...] = ()


def orders_of(outcomes: Outcomes, prediction: Diagnosed | str, sites: Sequence[str]) -> Sequence[Order | None] | None:
    """Find how the model of the others orders each site's rows; None of numbers, UNTOLD where no outcome has another way."""
    if outcomes is Outcomes.NUMBER:
        return None
    if outcomes is Outcomes.EVENT and isinstance(prediction, Diagnostics):
        rocs = {site: (one.roc, one.area_error) for site, one in prediction.held_out.items()}
        known = {site: Order(roc.area, error) for site, (roc, error) in rocs.items() if roc is not None}
    else:  # events and their absence of times have no other sign: where one is called the other nothing is reversed
        return UNTOLD
    return [known.get(site) for site in sites]


class Opposite(NamedTuple):
    """A site, how likely it would differ so much by chance, and how the others order its rows; None of numbers."""

    site: str
    p_value: float
    order: Order | None


def opposites(
    inference: Inference,
    without: Without,
    sites: Sequence[str],
    slopes: Sequence[int],
    orders: Sequence[Order | None] | None,
) -> list[Opposite]:
    """The sites for which all of the evidence is there.

    slopes: which fitted coefficients are no intercepts. orders: of each site, None where it is not known, which is no
    evidence; None altogether where the outcome is a number, which only coefficients tell of.
    """
    found = []
    for place, site in enumerate(sites):
        order = None if orders is None else orders[place]
        if orders is not None and (order is None or not order.is_reversed):
            continue
        told = _compared(inference, without.fitted[place], place, np.asarray(slopes, dtype=np.int64))
        if told is not None and told[0] < _BEYOND_CHANCE and told[1]:
            found.append(Opposite(site, told[0], order))
    return found


def questions(found: Sequence[Opposite], sites: Sequence[str]) -> tuple[str, ...]:
    """Write what to ask whoever knows the sites."""
    names = [f"'{one.site}'" for one in found]
    if len(sites) == 2:  # nobody can tell which
        about, whose = f"sites '{sites[0]}' and '{sites[1]}' say the opposite of each other", "is the outcome of one"
    elif len(names) == 1:
        about, whose = f"site {names[0]} says the opposite of the others", "is its outcome"
    else:
        about, whose = f"sites {', '.join(names)} say the opposite of the others", "is their outcome, or that of the others,"
    figures = [f"p {one.p_value:.1g}" + (f", held out {one.order.area:.2f}" if one.order else "") for one in found]
    return (f"{about}: {whose} coded the other way? ({'; '.join(figures)})",) if names else ()


def _compared(inference: Inference, rest: FloatArray, site: int, slopes: IntArray) -> tuple[float, bool] | None:
    """Tell how likely the site differs so much by chance, whether its mirror image is nearer; None where untold."""
    alone, weight = inference.alone(site), float(inference.curvature.weights[site])
    if alone is None or np.isnan(rest).any():
        return None
    has, bread = alone
    both = np.flatnonzero(np.isin(has, slopes))
    if not both.size:
        return None
    others = inference.information - weight * inference.hessians[site] + inference.weight * np.diag(inference.penalty)
    try:
        theirs = inverse(others)[np.ix_(has, has)]
    except DataError:
        return None
    own = inference.fitted[has] - bread @ inference.curvature.gradients[site][has]
    covariance = inference.dispersion * (bread / weight + theirs)[np.ix_(both, both)]
    apart, mirrored = (own - rest[has])[both], (own + rest[has])[both]
    squares = [float(one @ solve_positive(covariance, one)) for one in (apart, mirrored)]
    return chi2_sf(both.size, squares[0]), squares[1] < _NEARER * squares[0]
