"""Families by name: distributions with their links."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, gammaln, logit, ndtr, ndtri, softmax, xlogy

from fedns.core.registry import Registry
from fedns.core.types import FloatArray
from fedns.models.cox import Cox
from fedns.models.family import Family, Flat, Outcomes
from fedns.models.link_losses import ComplementaryLogLog, Gamma, NegativeBinomial, Probit
from fedns.models.loss import Loss
from fedns.models.losses import Huber, Logistic, Poisson, Squared, SquaredHinge
from fedns.models.softmax import Softmax


@dataclass(frozen=True)
class GaussianNumbers(Family):
    """Numbers that scatter with the same variance around z.

    - link: identity.
    """

    name: ClassVar[str] = "gaussian"
    outcomes: ClassVar[Outcomes] = Outcomes.NUMBER
    links: ClassVar[Mapping[str, type[Loss]]] = {"identity": Squared}
    dispersion_is_known: ClassVar[bool] = False

    def mean(self, z: FloatArray) -> FloatArray:
        return z

    def margin(self, mean: float) -> float:
        return mean

    def null_margins(self, flat: Flat) -> FloatArray:
        """Exact with offsets too: the curvature is the same everywhere."""
        return flat.margins - flat.slopes / flat.curvatures

    def variance(self, mean: FloatArray) -> FloatArray:
        return np.ones_like(mean)

    def weight_constant(self, weights: FloatArray) -> FloatArray:
        return np.asarray(0.5 * np.log(weights))

    def log_likelihood(self, losses: float, constants: FloatArray, weight: float, dispersion: float = 1.0) -> float:
        """At the variance that makes it largest, 2 losses / weight, which is what statsmodels and R report."""
        if not self.has_likelihood:
            return math.nan
        variance = 2.0 * losses / weight
        if not variance > 0:
            return math.inf
        return float(constants[0]) - 0.5 * weight * (math.log(2.0 * math.pi * variance) + 1.0)


_MEANS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "logit": expit,
    "probit": ndtr,
    "cloglog": lambda z: -np.expm1(-np.exp(z)),
}
_MARGINS: dict[str, Callable[[float], float]] = {
    "logit": logit,
    "probit": ndtri,
    "cloglog": lambda mean: math.log(-math.log1p(-mean)),
}


@dataclass(frozen=True)
class Binomial(Family):
    """An event that happens or not.

    - link: logit, probit or cloglog.
    """

    name: ClassVar[str] = "binomial"
    outcomes: ClassVar[Outcomes] = Outcomes.EVENT
    links: ClassVar[Mapping[str, type[Loss]]] = {"logit": Logistic, "probit": Probit, "cloglog": ComplementaryLogLog}
    ratios: ClassVar[Mapping[str, str]] = {"logit": "odds ratio"}

    def mean(self, z: FloatArray) -> FloatArray:
        return np.asarray(_MEANS[self.link](z))

    def margin(self, mean: float) -> float:
        return float(_MARGINS[self.link](mean))

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean * (1.0 - mean)

    def outcome(self, y: FloatArray) -> FloatArray:
        return 0.5 * (y + 1.0)


class LogLink(Family):
    """A family whose margin is the logarithm of its mean."""

    def mean(self, z: FloatArray) -> FloatArray:
        return np.exp(z)

    def margin(self, mean: float) -> float:
        return math.log(mean)


@dataclass(frozen=True)
class PoissonCounts(LogLink):
    """Counts whose variance is their mean, exp(z).

    - link: log.
    """

    name: ClassVar[str] = "poisson"
    outcomes: ClassVar[Outcomes] = Outcomes.COUNT
    links: ClassVar[Mapping[str, type[Loss]]] = {"log": Poisson}
    ratios: ClassVar[Mapping[str, str]] = {"log": "rate ratio"}

    def null_margins(self, flat: Flat) -> FloatArray:
        """log(sum y / sum exp(offset)): a slope is exp(z) - y, a curvature exp(z)."""
        return flat.margins + np.log1p(-flat.slopes / flat.curvatures)

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean

    def constant(self, y: FloatArray) -> FloatArray:
        return np.asarray(-gammaln(y + 1.0))

    def smallest(self, y: FloatArray) -> FloatArray:
        return np.asarray(y - xlogy(y, y))


@dataclass(frozen=True)
class NegativeBinomialCounts(PoissonCounts):
    """Counts with mean m = exp(z) and variance m + a m^2.

    - link: log.
    - dispersion: a, above 0, which is given, not estimated, and has no usual value.
    """

    name: ClassVar[str] = "negative_binomial"
    links: ClassVar[Mapping[str, type[Loss]]] = {"log": NegativeBinomial}
    needs: ClassVar[tuple[str, ...]] = ("dispersion",)
    dispersion: float = 1.0

    def null_margins(self, flat: Flat) -> FloatArray:
        """Exact without offsets; with them that of the one offset for all rows which would give this slope and curvature.

        With p = a m / (1 + a m) a row of mean m has the slope p / a - y (1 - p) and the curvature (y + 1 / a) p (1 - p).
        """
        p = self.dispersion * flat.curvatures / (1.0 - self.dispersion * flat.slopes)
        return flat.margins + np.log1p(-self.dispersion * flat.slopes / p)

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean + self.dispersion * mean**2

    def constant(self, y: FloatArray) -> FloatArray:
        shape = 1.0 / self.dispersion
        return np.asarray(gammaln(y + shape) - gammaln(shape) - gammaln(y + 1.0) + y * math.log(self.dispersion))

    def smallest(self, y: FloatArray) -> FloatArray:
        return np.asarray((y + 1.0 / self.dispersion) * np.log1p(self.dispersion * y) - xlogy(y, y))


@dataclass(frozen=True)
class GammaNumbers(LogLink):
    """Numbers above 0 with mean exp(z), whose standard deviation is in proportion to it.

    - link: log.
    """

    name: ClassVar[str] = "gamma"
    outcomes: ClassVar[Outcomes] = Outcomes.POSITIVE
    links: ClassVar[Mapping[str, type[Loss]]] = {"log": Gamma}
    ratios: ClassVar[Mapping[str, str]] = {"log": "ratio of means"}
    dispersion_is_known: ClassVar[bool] = False

    def null_margins(self, flat: Flat) -> FloatArray:
        """The logarithm of the mean of y / exp(offset), which is the curvature."""
        return flat.margins + np.log(flat.curvatures)

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean**2

    def constant(self, y: FloatArray) -> FloatArray:
        return np.log(y)

    def smallest(self, y: FloatArray) -> FloatArray:
        return 1.0 + np.log(y)

    def log_likelihood(self, losses: float, constants: FloatArray, weight: float, dispersion: float = 1.0) -> float:
        if dispersion == 0:
            return math.inf
        logs = float(constants[0])
        scaled = (logs - losses - weight * math.log(dispersion)) / dispersion
        return scaled - logs - weight * math.lgamma(1.0 / dispersion)


@dataclass(frozen=True)
class HuberNumbers(GaussianNumbers):
    """Numbers some of which lie far off: residuals beyond a threshold pull no more than one there.

    - link: identity.
    - threshold: above 0, in units of the outcome.
    """

    name: ClassVar[str] = "huber"
    links: ClassVar[Mapping[str, type[Loss]]] = {"identity": Huber}
    has_likelihood: ClassVar[bool] = False
    starts_anywhere: ClassVar[bool] = False
    threshold: float = 1.345

    def null_margins(self, flat: Flat) -> FloatArray:
        """Nothing is told: residuals beyond the threshold have the same slope however far they are."""
        return flat.margins


@dataclass(frozen=True)
class SquaredHingeEvents(Binomial):
    """An event that is told from its absence by the sign of z, with a margin of 1 to spare.

    - link: linear.
    """

    name: ClassVar[str] = "squared_hinge"
    links: ClassVar[Mapping[str, type[Loss]]] = {"linear": SquaredHinge}
    has_likelihood: ClassVar[bool] = False

    def mean(self, z: FloatArray) -> FloatArray:
        """The loss is smallest where z = 2 p - 1."""
        return np.clip(0.5 * (z + 1.0), 0.0, 1.0)

    def margin(self, mean: float) -> float:
        return 2.0 * mean - 1.0


@dataclass(frozen=True)
class CoxTimes(LogLink):
    """Times until an event, compared among the rows of one site; hazards are proportional.

    The mean is the hazard in units of that at margin 0: what the outcome itself is expected to be is not known.

    - link: log.
    """

    name: ClassVar[str] = "cox"
    outcomes: ClassVar[Outcomes] = Outcomes.TIME
    links: ClassVar[Mapping[str, type[Loss]]] = {"log": Cox}
    ratios: ClassVar[Mapping[str, str]] = {"log": "hazard ratio"}
    has_residuals: ClassVar[bool] = False

    def variance(self, mean: FloatArray) -> FloatArray:
        return np.full_like(mean, np.nan)


@dataclass(frozen=True)
class MultinomialClasses(Family):
    """One of several classes, each compared with the first, the reference; a row has a margin for every other class.

    - link: logit.
    """

    name: ClassVar[str] = "multinomial"
    outcomes: ClassVar[Outcomes] = Outcomes.CLASS
    links: ClassVar[Mapping[str, type[Loss]]] = {"logit": Softmax}
    ratios: ClassVar[Mapping[str, str]] = {"logit": "odds ratio"}
    has_residuals: ClassVar[bool] = False

    def loss_of(self, classes: int) -> Loss:
        return Softmax(classes, reference=True)

    def mean(self, z: FloatArray) -> FloatArray:
        """The probability of every class, the reference first: (rows, outputs) to (rows, classes)."""
        return np.asarray(softmax(np.pad(z, ((0, 0), (1, 0))), axis=1))

    def margin(self, mean: float) -> float:
        """Of one class against the reference, where there are two."""
        return float(logit(mean))

    def null_margins(self, flat: Flat) -> FloatArray:
        """Logarithms of the classes' shares, in those of the reference, or around 0 where all have margins."""
        reference = int(flat.loss.outputs < flat.loss.root_rows)
        now = softmax(np.pad(flat.margins, (reference, 0)))[reference:]
        shares = now - flat.slopes
        return np.asarray(np.log(shares) - (np.log(1.0 - shares.sum()) if reference else np.log(shares).mean()))

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean * (1.0 - mean)


_OWN = [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, Family) and "name" in vars(kind)]
FAMILIES: Registry[type[Family]] = Registry("family", "fedns.families", Family, _OWN)


def family_of(loss: Loss) -> Family | None:
    """The family with a link that has this loss, which has one margin; None where there is none."""
    for family in FAMILIES.values():
        for link, kind in family.links.items():
            if kind is type(loss):
                return family(link=link, **asdict(loss))  # type: ignore[call-overload]
    return None
