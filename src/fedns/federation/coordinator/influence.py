"""What each site does to the model: how it would change without that site, and whether chance explains the difference.

At the final coefficients w the coordinator has of every site its share p, its gradient g and, if the method sends any, its
curvature H. Without site j, one Newton step from w leads to the model of the others:

    w_j - w = -(H_j' + P)^-1 (g_j' + P w),    g_j' and H_j' the means over the others, P the penalty's diagonal

Standard errors are those of the others' model, sqrt(diag((n H_j' + n P)^-1)), so that a site cannot shrink them by what it
sends. If the rows of all sites were drawn alike, w - w_j would have sqrt(p) of them; this is the unit of "chance" below.
The other measure is the distance of g from the geometric median of all gradients, which one site cannot move far, in the
metric of the Hessian and again in units of what chance gives. The third needs no curvature: between the start and the end
of a run the gradient of a convex loss grows along the way, and that of similar sites by similar amounts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri

from fedns.core.clients import Handler, messages_of
from fedns.core.messages import Discloses, Message
from fedns.core.types import FloatArray
from fedns.models.evaluation import LocalEvaluation, evaluate_locally
from fedns.models.losses import Squared
from fedns.models.problem import Problem
from fedns.numerics.linalg import symmetric_of

LEFT_OUT_FILE = "left_out.csv"  # the coefficients without each site, beside a run's results
FALSE_ALARM = 0.01  # the chance to name a site of a federation whose rows were all drawn alike
LEAD = 1.5  # a site is named only if its gradient is so much farther off than that of every other
STEEP = 5.0  # times the median site's growth of the gradient, or a fifth of it
MOST_NUMBERS = 20_000_000  # of the matrices of all sites together; where they would have more, curvature is not kept
SKETCHES_KEPT = 8  # of each site: one says little about a matrix, eight draws a good deal more; of whole Hessians the last
_CURVATURE = {Discloses.SKETCH, Discloses.HESSIAN}


@dataclass(frozen=True)
class SiteInfluence:
    """What one site does to the model."""

    name: str
    share: float  # of the weights, or of the curvature where that is more
    change: float | None = None  # of the coefficient that leaving the site out moves most, in standard errors
    chance: float | None = None  # the same change over what chance would give
    distance: float | None = None  # of its gradient from the sites' median in the metric of the Hessian; by chance about 1
    growth: float | None = None  # of its gradient along the way of the run, over that of the median site
    without: FloatArray | None = None  # the coefficients of the others
    named: str = ""  # why it decides the model; nothing if it does not
    apart: bool = False  # it moves the model beyond chance, but so do others, nearly as far: nothing tells which is right

    def __str__(self) -> str:
        return f"site '{self.name}' {self.named}"


@dataclass(frozen=True)
class FinalAnswers:
    """What the sites sent at the end of a run; curvatures may be lacking."""

    names: Sequence[str]
    rows: FloatArray  # (sites,): total weights
    losses: FloatArray  # (sites,)
    gradients: FloatArray  # (sites, features), without the penalty
    curvatures: FloatArray | None  # (sites, features, features)
    growths: FloatArray | None = None  # (sites,): (gradient at the end - at the start) . (w at the end - at the start)


def influences(
    answers: FinalAnswers, w: FloatArray, penalty: FloatArray, *, squared: bool, agreed: bool
) -> list[SiteInfluence]:
    """Of every site. squared: whether the loss is the squared one. agreed: whether rows were, so that shares are no news."""
    shares = answers.rows / answers.rows.sum()
    if answers.curvatures is not None:
        traces = np.trace(answers.curvatures, axis1=1, axis2=2)
        shares = np.maximum(shares, shares * traces / max(float(shares @ traces), np.finfo(float).tiny))
    found = [SiteInfluence(name, float(share)) for name, share in zip(answers.names, shares, strict=True)]
    if answers.curvatures is not None and len(found) > 1:
        distances = _distances(answers, penalty, squared)
        found = [
            replace(_left_out(answers, j, w, penalty, squared, site), distance=float(distances[j]))
            for j, site in enumerate(found)
        ]
    if answers.growths is not None and len(found) > 2 and (middle := float(np.median(answers.growths))) > 0:
        found = [replace(site, growth=float(answers.growths[j]) / middle) for j, site in enumerate(found)]
    return [_judged(found, j, w.size, agreed) for j in range(len(found))]


def _left_out(
    answers: FinalAnswers, j: int, w: FloatArray, penalty: FloatArray, squared: bool, site: SiteInfluence
) -> SiteInfluence:
    assert answers.curvatures is not None
    others = np.delete(np.arange(len(answers.names)), j)
    count = answers.rows[others].sum()
    shares = answers.rows[others] / count
    inverse = _inverse(np.tensordot(shares, answers.curvatures[others], 1) + np.diag(penalty))
    step = -inverse @ (shares @ answers.gradients[others] + penalty * w)
    errors = np.sqrt(np.maximum(np.diag(inverse), np.finfo(float).tiny) * _dispersion(answers, others, squared) / count)
    change = float(np.max(np.abs(step) / errors))
    return replace(site, change=change, chance=change / float(np.sqrt(1.0 - count / answers.rows.sum())), without=w + step)


def _distances(answers: FinalAnswers, penalty: FloatArray, squared: bool) -> FloatArray:
    """sqrt(n_j d' H^-1 d / features) of every site, d from the median in the same metric."""
    assert answers.curvatures is not None
    inverse = _inverse(np.median(answers.curvatures, axis=0) + np.diag(penalty))
    values, vectors = np.linalg.eigh(inverse)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    whitened = answers.gradients @ root  # (sites, features): lengths are those of the metric
    apart = np.linalg.norm(whitened - geometric_median(whitened), axis=1)
    everyone = np.arange(len(answers.names))
    distances: FloatArray = apart * np.sqrt(answers.rows / (_dispersion(answers, everyone, squared) * penalty.size))
    return distances


def _dispersion(answers: FinalAnswers, sites: NDArray[np.int64], squared: bool) -> float:
    """The variance of a residual where the loss does not fix it; the median over sites, which one cannot move."""
    return 2.0 * float(np.median(answers.losses[sites])) if squared else 1.0


def _inverse(hessian: FloatArray) -> FloatArray:
    """Directions in which the others have no curvature, and so no say, are left as they are."""
    values, vectors = np.linalg.eigh(hessian)
    kept = values > 1e-10 * values[-1]
    inverse: FloatArray = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return inverse


def _judged(found: Sequence[SiteInfluence], j: int, features: int, agreed: bool) -> SiteInfluence:
    site, reasons, apart = found[j], [], False
    if site.share > 0.5 and len(found) > 2 and not agreed:
        reasons.append(f"holds {100 * site.share:.3g} % of the weight")
    if site.growth is not None and not 1.0 / STEEP < site.growth < STEEP:
        what = (
            "falls where that of a convex loss grows"
            if site.growth < 0
            else f"grows {site.growth:.3g} times as fast as usual"
        )
        reasons.append(f"sends a gradient that {what}")
    if site.change is not None and site.chance is not None and site.distance is not None:
        chances = FALSE_ALARM / len(found)
        unlikely = (
            site.chance > -float(ndtri(chances / (2 * features))) or site.distance**2 > chdtri(features, chances) / features
        )
        others = max(other.distance or 0.0 for k, other in enumerate(found) if k != j)
        leads = len(found) == 2 or site.distance > LEAD * others
        if site.change > 1.0 and unlikely and leads:
            reasons.append(f"moves a coefficient by {site.change:.3g} standard errors")
        apart = site.change > 1.0 and unlikely and not leads
    return replace(site, named=" and ".join(reasons), apart=apart and not reasons)


def geometric_median(points: FloatArray, iterations: int = 100) -> FloatArray:
    """The point with the least sum of distances, by Weiszfeld's iteration: (points, axes) to (axes,)."""
    middle: FloatArray = np.median(points, axis=0)
    smallest = 1e-12 * float(np.abs(points).max(initial=0.0)) + np.finfo(float).tiny
    for _ in range(iterations):
        weights = 1.0 / np.maximum(np.linalg.norm(points - middle, axis=1), smallest)
        middle = weights @ points / weights.sum()
    return middle


def curvature_in(reply: Message, features: int) -> FloatArray | None:
    """The Hessian that a reply shows, whole or as the square of a sketch: (features, features)."""
    for name, spec in reply.specs().items():
        if spec.kind == "small_ints":  # rounded changes, in a unit of their own
            continue
        values = np.asarray(getattr(reply, name), dtype=np.float64)
        if spec.discloses is Discloses.SKETCH and spec.dimensions[-1:] == ("features",) and values.ndim == 2:
            return values.T @ values
        if spec.discloses is Discloses.HESSIAN and spec.dimensions == ("entries",):
            return symmetric_of(values, features)
    return None


def mean_curvature(replies: Iterable[Message], features: int) -> FloatArray | None:
    """Over several replies of one site: each sketch is another draw."""
    matrices = [matrix for reply in replies if (matrix := curvature_in(reply, features)) is not None]
    return np.mean(matrices, axis=0) if matrices else None


@dataclass
class Evidence:
    """The first and the last evaluation, and the last few replies that show curvature, of every client."""

    first: tuple[FloatArray, dict[int, LocalEvaluation]] | None = None
    last: tuple[FloatArray, dict[int, LocalEvaluation]] | None = None
    curvature: dict[int, deque[Message]] = field(default_factory=dict)

    def heard(self, handler: Handler, replies: Mapping[int, Message], features: int) -> None:
        """Replies to a round's request; kept if they show curvature that there is room for."""
        shown = {spec.discloses for spec in messages_of(handler)[1].specs().values()} & _CURVATURE
        if not shown or len(replies) * features**2 > MOST_NUMBERS:
            return
        kept = SKETCHES_KEPT if Discloses.SKETCH in shown else 1
        for client, reply in replies.items():
            if curvature_in(reply, features) is not None:
                self.curvature.setdefault(client, deque(maxlen=kept)).append(reply)

    def evaluated(self, w: FloatArray, handler: Handler, replies: Mapping[int, Message]) -> None:
        """Replies to an evaluation at w."""
        if handler is evaluate_locally:
            answers = {client: reply for client, reply in replies.items() if isinstance(reply, LocalEvaluation)}
            self.last = w.copy(), answers
            self.first = self.first or self.last

    def influences(
        self, problem: Problem, w: FloatArray, names: Sequence[str], total_weights: FloatArray, *, agreed: bool
    ) -> list[SiteInfluence]:
        """Of those whose answers at w are known; of nobody, if w was never evaluated."""
        if self.first is None or self.last is None or not np.array_equal(self.last[0], w):
            return []
        (start, before), (_, after) = self.first, self.last
        clients = sorted(after)
        gradients = np.array([after[client].gradient for client in clients])
        growths = None
        if not np.array_equal(start, w) and all(client in before for client in clients):
            growths = (gradients - np.array([before[client].gradient for client in clients])) @ (w - start)
        answers = FinalAnswers(
            [names[client] for client in clients],
            total_weights[clients],
            np.array([float(after[client].loss) for client in clients]),
            gradients,
            self._curvatures(clients, w.size),
            growths,
        )
        squared = isinstance(problem.loss, Squared)
        return influences(answers, w, problem.penalty_curvature(w), squared=squared, agreed=agreed)

    def _curvatures(self, clients: Sequence[int], features: int) -> FloatArray | None:
        matrices = [mean_curvature(self.curvature.get(client, ()), features) for client in clients]
        present = [matrix for matrix in matrices if matrix is not None]
        return np.array(present) if len(present) == len(clients) else None
