"""The fit of a model: likelihood, deviance, information criteria, and the test against a model without columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedns.models.family import Outcomes
from fedns.studies.inference.distributions import chi2_sf, f_sf
from fedns.studies.inference.estimates import Inference


@dataclass(frozen=True)
class Goodness:
    """The figures at the foot of a table, as statsmodels has them; degrees of freedom do not count the dispersion."""

    observations: float  # rows, counted by their weights where those are counts
    model_df: float  # coefficients without the intercept; with a penalty the effective number
    residual_df: float
    dispersion: float
    log_likelihood: float
    null_log_likelihood: float
    deviance: float
    null_deviance: float
    pearson: float  # NaN where rows have no residuals
    aic: float
    bic: float
    r_squared: float  # McFadden's; of the variance where the outcome is gaussian
    adjusted_r_squared: float  # NaN unless gaussian
    test: str  # of the whole model: "F" or "likelihood ratio"
    test_statistic: float  # NaN where the model has nothing but an intercept, or no residuals
    test_p_value: float


def goodness(inference: Inference, intercepts: int) -> Goodness:
    """From the sums of all sites; intercepts: how many of the coefficients a model without columns has, too."""
    sums, family = inference.need_sums(), inference.family
    weights, rows = inference.curvature.weights, inference.observations
    losses, constants = float(weights @ sums.losses), weights @ sums.constants
    null_losses = inference.weight * sums.null_loss
    dispersion = inference.dispersion
    likelihood, null = (
        family.log_likelihood(found, constants, rows, dispersion) if _has_likelihood(inference) else math.nan
        for found in (losses, null_losses)
    )
    deviance, null_deviance = family.deviance(losses, constants), family.deviance(null_losses, constants)
    gaussian = family.name == "gaussian"
    bic = math.log(rows) * inference.used - 2.0 * likelihood
    if family.outcomes is Outcomes.TIME:  # a partial likelihood has no perfect fit to compare with, and another size
        deviance = null_deviance = bic = math.nan
    df, left = inference.used - intercepts, inference.residual_df
    unexplained = (deviance, null_deviance) if gaussian else (likelihood, null)
    explained = 1.0 - unexplained[0] / unexplained[1] if df and unexplained[1] else 0.0 if not df else math.nan
    if not (df and dispersion) or inference.is_sample:  # no columns, or no residuals, or no likelihood
        statistic = p_value = math.nan
    elif gaussian:
        statistic = (null_deviance - deviance) / df / dispersion
        p_value = f_sf(df, left, statistic)
    else:
        statistic = 2.0 * (likelihood - null)
        p_value = chi2_sf(df, statistic)
    return Goodness(
        observations=rows,
        model_df=df,
        residual_df=left,
        dispersion=dispersion,
        log_likelihood=likelihood,
        null_log_likelihood=null,
        deviance=deviance,
        null_deviance=null_deviance,
        pearson=float(weights @ sums.pearson),
        aic=2.0 * (inference.used - likelihood),
        bic=bic,
        r_squared=explained,
        adjusted_r_squared=1.0 - (1.0 - explained) * (rows - intercepts) / left if gaussian and left else math.nan,
        test="F" if gaussian else "likelihood ratio",
        test_statistic=statistic,
        test_p_value=p_value,
    )


def _has_likelihood(inference: Inference) -> bool:
    """Not where rows stand for others; nor where it needs more of weights that are precisions than a sum over rows."""
    simple = inference.family.dispersion_is_known or inference.family.name == "gaussian"
    return not inference.is_sample and (simple or inference.weights_are == "counts")
