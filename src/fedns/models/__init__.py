"""Problems and their parts: losses, families, penalties, feature maps, and the optimum on pooled rows."""

from fedns.models.cox import Cox
from fedns.models.families import FAMILIES
from fedns.models.family import Family
from fedns.models.link_losses import ComplementaryLogLog, Gamma, NegativeBinomial, Probit
from fedns.models.loss import Loss
from fedns.models.losses import LOSSES, Huber, Logistic, Poisson, Squared, SquaredHinge
from fedns.models.maps.feature_map import FeatureMap, Identity, Polynomial
from fedns.models.maps.kernel_maps import Nystroem, OrthogonalRandom, RandomFourier
from fedns.models.penalties import PENALTIES, PseudoHuber, Ridge
from fedns.models.problem import Problem
from fedns.models.reference import Optimum, pooled_optimum
from fedns.models.softmax import Softmax

__all__ = [
    "FAMILIES", "LOSSES", "PENALTIES", "ComplementaryLogLog", "Cox", "Family", "FeatureMap", "Gamma", "Huber", "Identity",
    "Logistic", "Loss", "NegativeBinomial", "Nystroem", "Optimum", "OrthogonalRandom", "Poisson", "Polynomial", "Probit",
    "Problem", "PseudoHuber", "RandomFourier", "Ridge", "Softmax", "Squared", "SquaredHinge", "pooled_optimum",
]  # fmt: skip
