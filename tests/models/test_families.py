"""Likelihood, deviance and dispersion of every family, against statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm

import fedns
from fedns.models.families import FAMILIES, Binomial, GaussianNumbers
from fedns.models.family import Outcomes

STATSMODELS = {
    GaussianNumbers(): sm.families.Gaussian(),
    Binomial(): sm.families.Binomial(),
    Binomial("probit"): sm.families.Binomial(sm.families.links.Probit()),
    Binomial("cloglog"): sm.families.Binomial(sm.families.links.CLogLog()),
    FAMILIES["poisson"](): sm.families.Poisson(),
    FAMILIES["negative_binomial"](dispersion=0.7): sm.families.NegativeBinomial(alpha=0.7),
    FAMILIES["gamma"](): sm.families.Gamma(sm.families.links.Log()),
}


def drawn(family, rows=300, seed=0):
    """Rows with a constant, targets as the family has them, and outcomes as statsmodels does."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.normal(size=(rows, 3)), np.ones(rows)])
    mean = family.mean(x @ np.array([0.4, -0.3, 0.2, 0.5]))
    outcome = {
        Outcomes.NUMBER: lambda: random.normal(mean, 0.7),
        Outcomes.EVENT: lambda: (random.uniform(size=rows) < mean).astype(float),
        Outcomes.COUNT: lambda: random.poisson(mean).astype(float),
        Outcomes.POSITIVE: lambda: random.gamma(2.0, mean / 2.0),
    }[family.outcomes]()
    return x, 2.0 * outcome - 1.0 if family.outcomes is Outcomes.EVENT else outcome, outcome


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("family", list(STATSMODELS), ids=str)
def test_what_the_sums_say_is_what_statsmodels_says(family, weighted):
    x, y, outcome = drawn(family)
    weights = np.random.default_rng(1).integers(1, 4, len(y)).astype(float) if weighted else np.ones(len(y))
    rival = sm.GLM(outcome, x, STATSMODELS[family], freq_weights=weights).fit(tol=1e-14, maxiter=200)
    z = x @ rival.params
    losses, constants = float(weights @ family.loss.value(y, z)), family.constants(y, weights)
    pearson = float(weights @ family.pearson(y, z))
    dispersion = family.estimated_dispersion(pearson, weights.sum(), x.shape[1])
    assert pearson == pytest.approx(rival.pearson_chi2, rel=1e-10)
    assert dispersion == pytest.approx(rival.scale, rel=1e-10)
    assert family.deviance(losses, constants) == pytest.approx(rival.deviance, rel=1e-10)
    # With weights statsmodels takes another variance than the one that makes the likelihood largest.
    expected = rival.llf_scaled(2 * losses / weights.sum()) if isinstance(family, GaussianNumbers) else rival.llf
    found = family.log_likelihood(losses, constants, weights.sum(), dispersion)
    assert found == pytest.approx(expected, rel=1e-10)
    null = family.margin(np.average(family.outcome(y), weights=weights))
    losses = float(weights @ family.loss.value(y, np.full(len(y), null)))
    assert family.deviance(losses, constants) == pytest.approx(rival.null_deviance, rel=1e-10)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_every_family_has_a_loss_for_each_link_and_refuses_others(name):
    family = FAMILIES[name]
    needed = {"dispersion": 0.7} if name == "negative_binomial" else {}
    for link in family.links:
        made = family.made_of(link, needed)
        mean = made.mean(np.array([[0.3]]))[0, -1] if name == "multinomial" else made.mean(np.array(0.3))
        assert made.margin(float(mean)) == pytest.approx(0.3)
        assert isinstance(made.loss, fedns.Loss)
    with pytest.raises(fedns.ConfigError, match=name):
        family.made_of("cauchit", needed)
    with pytest.raises(fedns.ConfigError, match=f"family {name} has no scale: leave it out"):
        family.made_of("", {"scale": 1.0})


def test_a_parameter_without_a_usual_value_is_never_guessed():
    with pytest.raises(fedns.ConfigError, match="family negative_binomial needs its dispersion: give dispersion = a number"):
        FAMILIES["negative_binomial"].made_of("", {})


def test_ratios_are_named():
    assert [FAMILIES[name]().ratio for name in ("gaussian", "binomial", "poisson")] == ["", "odds ratio", "rate ratio"]


def test_probabilities_of_classes_are_those_of_the_loss():
    family, z = FAMILIES["multinomial"](), np.array([[0.5, -1.0], [2.0, 0.0]])
    losses = np.stack([family.loss_of(3).value(np.full(2, one), z) for one in range(3)], axis=1)
    assert family.mean(z) == pytest.approx(np.exp(-losses))
