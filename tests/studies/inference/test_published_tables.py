"""Tables that are printed in textbooks and in the documentation of statsmodels, from rows that are split over sites.

The digits are those of the printed tables: coefficient, standard error, statistic. Data come with statsmodels, as do the
printed results of Stata and R that its own tests go by.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from fedns.studies.fit import fit_study
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule


def at_sites(frame, sites):
    """Every so many rows to the next site, so that each has rows of all kinds."""
    return {f"site{place}": frame.iloc[place::sites].reset_index(drop=True) for place in range(sites)}


def printed(fit, kind="model"):
    """Coefficients, standard errors and statistics as a table prints them."""
    return {row.name: (f"{row.coefficient:.4f}", f"{row.std_error:.3f}", f"{row.statistic:.3f}") for row in fit.rows(kind)}


def test_spector_and_mazzeo():
    """Greene, Econometric Analysis, the program on economics: logit of an improved grade."""
    rows = sm.datasets.spector.load_pandas().data
    study = Study("GRADE ~ GPA + TUCE + PSI", "binomial", event=("1",), non_event=("0",))
    fit = fit_study(study, at_sites(rows, 2), smallest_count=1)
    assert printed(fit) == {
        "Intercept": ("-13.0213", "4.931", "-2.641"),
        "GPA": ("2.8261", "1.263", "2.238"),
        "TUCE": ("0.0952", "0.142", "0.672"),
        "PSI": ("2.3787", "1.065", "2.234"),
    }
    found = fit.goodness
    assert f"{found.log_likelihood:.3f} {found.null_log_likelihood:.3f} {found.r_squared:.4f}" == "-12.890 -20.592 0.3740"
    assert f"{found.test_p_value:.6f}" == "0.001502"


def test_longley():
    """Longley's employment data: the test of least-squares programs, with columns that nearly depend on each other."""
    rows = sm.datasets.longley.load_pandas().data
    fit = fit_study(
        Study("TOTEMP ~ GNPDEFL + GNP + UNEMP + ARMED + POP + YEAR", "gaussian"), at_sites(rows, 2), smallest_count=1
    )
    assert printed(fit) == {
        "Intercept": ("-3482258.6346", "890420.384", "-3.911"),
        "GNPDEFL": ("15.0619", "84.915", "0.177"),
        "GNP": ("-0.0358", "0.033", "-1.070"),
        "UNEMP": ("-2.0202", "0.488", "-4.136"),
        "ARMED": ("-1.0332", "0.214", "-4.822"),
        "POP": ("-0.0511", "0.226", "-0.226"),
        "YEAR": ("1829.1515", "455.478", "4.016"),
    }
    found = fit.goodness
    assert f"{found.r_squared:.3f} {found.adjusted_r_squared:.3f} {found.test_statistic:.1f}" == "0.995 0.992 330.3"
    assert f"{found.log_likelihood:.2f} {found.aic:.1f} {found.bic:.1f}" == "-109.62 233.2 238.6"
    # The values that the National Institute of Standards and Technology certifies, to the digits of a table of eight.
    certified = [-3482258.63459582, 15.0618722713733, -0.0358191792925910, -2.02022980381683, -1.03322686717359,
                 -0.0511041056535807, 1829.15146461355]  # fmt: skip
    assert fit.coefficients == pytest.approx(np.array(certified), rel=1e-8)


def test_stack_loss():
    """Brownlee's stack loss plant data, in the help of R's lm."""
    rows = sm.datasets.stackloss.load_pandas().data
    fit = fit_study(Study("STACKLOSS ~ AIRFLOW + WATERTEMP + ACIDCONC", "gaussian"), at_sites(rows, 3), smallest_count=1)
    assert printed(fit) == {
        "Intercept": ("-39.9197", "11.896", "-3.356"),
        "AIRFLOW": ("0.7156", "0.135", "5.307"),
        "WATERTEMP": ("1.2953", "0.368", "3.520"),
        "ACIDCONC": ("-0.1521", "0.156", "-0.973"),
    }
    assert f"{fit.goodness.r_squared:.3f} {fit.goodness.test_statistic:.2f}" == "0.914 59.90"


@pytest.mark.slow
def test_rand_health_insurance():
    """Counts of visits to a physician in the RAND health insurance experiment."""
    rows = sm.datasets.randhie.load_pandas().data
    columns = [name for name in rows.columns if name != "mdvis"]
    zeros = {name: ColumnRule(range=(0.0, 10.0)) for name in ("lpi", "fmde")}  # a 0 there is no code for a missing value
    fit = fit_study(Study(f"mdvis ~ {' + '.join(columns)}", "poisson", columns=zeros), at_sites(rows, 5))
    assert printed(fit) == {
        "Intercept": ("0.7004", "0.011", "62.741"),
        "lncoins": ("-0.0525", "0.003", "-18.216"),
        "idp": ("-0.2471", "0.011", "-23.272"),
        "lpi": ("0.0353", "0.002", "19.302"),
        "fmde": ("-0.0346", "0.002", "-21.439"),
        "physlm": ("0.2717", "0.012", "22.200"),
        "disea": ("0.0339", "0.001", "60.098"),
        "hlthg": ("-0.0126", "0.009", "-1.366"),
        "hlthf": ("0.0541", "0.015", "3.531"),
        "hlthp": ("0.2061", "0.026", "7.843"),
    }
    assert f"{fit.goodness.log_likelihood:.0f} {fit.goodness.r_squared:.5f}" == "-62420 0.06343"


@pytest.mark.slow
def test_fair():
    """Fair's survey of extramarital affairs, 6366 women."""
    rows = sm.datasets.fair.load_pandas().data
    rows = rows.assign(affair=np.where(rows["affairs"] > 0, "yes", "no"))
    terms = "occupation + educ + occupation_husb + rate_marriage + age + yrs_married + religious + children"
    fit = fit_study(Study(f"affair ~ {terms}", "binomial", event=("yes",), non_event=("no",)), at_sites(rows, 4))
    assert printed(fit) == {
        "Intercept": ("3.7257", "0.299", "12.470"),
        "occupation": ("0.1602", "0.034", "4.717"),
        "educ": ("-0.0392", "0.015", "-2.533"),
        "occupation_husb": ("0.0124", "0.023", "0.541"),
        "rate_marriage": ("-0.7161", "0.031", "-22.784"),
        "age": ("-0.0605", "0.010", "-5.885"),
        "yrs_married": ("0.1100", "0.011", "10.054"),
        "religious": ("-0.3752", "0.035", "-10.792"),
        "children": ("-0.0042", "0.032", "-0.134"),
    }
    assert f"{fit.goodness.log_likelihood:.1f} {fit.goodness.r_squared:.4f}" == "-3471.5 0.1327"


def test_credit_cards_with_robust_errors():
    """Greene, Econometric Analysis, expenditure on credit cards: White's standard errors."""
    rows = sm.datasets.ccard.load_pandas().data
    fit = fit_study(Study("AVGEXP ~ AGE + INCOME + INCOMESQ + OWNRENT", "gaussian"), at_sites(rows, 3), smallest_count=1)
    assert printed(fit, "HC0") == {
        "Intercept": ("-237.1465", "212.991", "-1.113"),
        "AGE": ("-3.0818", "3.302", "-0.933"),
        "INCOME": ("234.3470", "88.866", "2.637"),
        "INCOMESQ": ("-14.9968", "6.945", "-2.160"),
        "OWNRENT": ("27.9409", "92.188", "0.303"),
    }


def test_party_identification_by_stata():
    """The American National Election Study of 1996, seven classes of party identification: Stata's mlogit."""
    data = sm.datasets.anes96.load_pandas()
    rows = data.exog.assign(PID=data.endog)
    fit = fit_study(Study("PID ~ logpopul + selfLR + age + educ + income", "multinomial"), at_sites(rows, 3))
    expected = {  # coefficient, standard error and z of the intercept and the five columns
        "1": [
            ("-0.3734", "0.630", "-0.593"),
            ("-0.0115", "0.034", "-0.336"),
            ("0.2977", "0.094", "3.180"),
            ("-0.0249", "0.007", "-3.823"),
            ("0.0825", "0.074", "1.121"),
            ("0.0052", "0.018", "0.295"),
        ],
        "2": [
            ("-2.2509", "0.763", "-2.949"),
            ("-0.0888", "0.039", "-2.266"),
            ("0.3917", "0.108", "3.619"),
            ("-0.0229", "0.008", "-2.893"),
            ("0.1810", "0.085", "2.123"),
            ("0.0479", "0.022", "2.149"),
        ],
        "3": [
            ("-3.6656", "1.157", "-3.169"),
            ("-0.1060", "0.057", "-1.858"),
            ("0.5735", "0.159", "3.617"),
            ("-0.0149", "0.011", "-1.311"),
            ("-0.0072", "0.126", "-0.057"),
            ("0.0576", "0.034", "1.713"),
        ],
        "4": [
            ("-7.6138", "0.958", "-7.951"),
            ("-0.0916", "0.044", "-2.091"),
            ("1.2788", "0.129", "9.921"),
            ("-0.0087", "0.008", "-1.031"),
            ("0.1998", "0.094", "2.123"),
            ("0.0845", "0.026", "3.226"),
        ],
        "5": [
            ("-7.0605", "0.844", "-8.362"),
            ("-0.0933", "0.039", "-2.371"),
            ("1.3470", "0.117", "11.494"),
            ("-0.0179", "0.008", "-2.352"),
            ("0.2169", "0.085", "2.552"),
            ("0.0810", "0.023", "3.524"),
        ],
        "6": [
            ("-12.1058", "1.060", "-11.421"),
            ("-0.1409", "0.042", "-3.343"),
            ("2.0701", "0.143", "14.435"),
            ("-0.0094", "0.008", "-1.160"),
            ("0.3219", "0.091", "3.534"),
            ("0.1089", "0.025", "4.304"),
        ],
    }
    found = printed(fit)
    columns = ("Intercept", "logpopul", "selfLR", "age", "educ", "income")
    assert found == {
        f"{one}: {name}": row for one, rows in expected.items() for name, row in zip(columns, rows, strict=True)
    }
    got = fit.goodness
    assert f"{got.log_likelihood:.3f} {got.null_log_likelihood:.3f} {got.r_squared:.4f}" == "-1461.923 -1750.347 0.1648"
    assert f"{got.test_statistic:.2f} {got.model_df:.0f} {got.aic:.3f} {got.bic:.3f}" == "576.85 30 2995.845 3170.450"


COXPH = {  # R's coxph with Efron's rule and five strata: coefficients and standard errors, as it prints them
    "survival_data_50_2.csv": (["-0.6631286", "0.4663285"], ["0.2748224", "0.2736030"]),
    "survival_data_100_5.csv": (
        ["-0.5530876", "-0.3331652", "-0.1283810", "0.3503472", "0.6397813"],
        ["0.1969338", "0.1614976", "0.1464088", "0.1712990", "0.1800787"],
    ),
}


@pytest.mark.parametrize("name", COXPH)
def test_survival_by_r(name):
    """Strata are sites: a site of R's is one of ours."""
    folder = Path(sm.__file__).parent / "duration" / "tests" / "results"
    if not (folder / name).exists():
        pytest.skip("statsmodels is installed without its tests")
    rows = pd.read_csv(folder / name, sep=" ", header=None)
    columns = [f"x{place}" for place in range(rows.shape[1] - 3)]
    rows.columns = ["time", "status", "entry", *columns]
    each = len(rows) // 5
    tables = {f"stratum{place}": rows.iloc[each * place : each * (place + 1)] for place in range(5)}
    study = Study(f"time ~ {' + '.join(columns)}", "cox", status="status", event=("1",), non_event=("0",))
    fit = fit_study(study, tables, smallest_count=1)
    found = [[f"{value:.7f}" for value in values] for values in (fit.coefficients, fit.standard_errors())]
    assert tuple(found) == COXPH[name]
