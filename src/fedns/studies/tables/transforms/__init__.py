"""Every transform that a formula may apply to a column, by the name that formulas write."""

from fedns.core.registry import Registry
from fedns.studies.tables.transforms.functions import FUNCTIONS, Category, Itself
from fedns.studies.tables.transforms.polynomial import OrthogonalPolynomial
from fedns.studies.tables.transforms.spline import BSpline
from fedns.studies.tables.transforms.transform import PROBABILITIES, Learned, SiteFacts, Transform, joint_quantiles

_OWN: tuple[type[Transform], ...] = (Category, BSpline, OrthogonalPolynomial, *FUNCTIONS)
TRANSFORMS: Registry[type[Transform]] = Registry("transform", "fedns.transforms", Transform, _OWN)

__all__ = ["PROBABILITIES", "TRANSFORMS", "Itself", "Learned", "SiteFacts", "Transform", "joint_quantiles"]
