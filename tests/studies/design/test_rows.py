"""Rows are coded by what was agreed on, as far as that is what the study says."""

import numpy as np
import pytest

from fedns.core.errors import DataError
from fedns.studies.design.agreement import Agreement
from fedns.studies.design.columns import Design
from fedns.studies.design.rows import columns_of
from fedns.studies.design.site_table import SiteTable
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import read_frame

STUDY = Study("risk ~ poly(age, 2)", "gaussian")
AGES = np.arange(20.0, 70.0)


def coded(*polynomials):
    pd = pytest.importorskip("pandas")
    table = SiteTable(STUDY, read_frame(pd.DataFrame({"risk": AGES / 100, "age": AGES})))
    centres = {"age": (45.0, 14.0), "poly(age, 2)": (0.0, 1.0)}
    return columns_of(
        Design(STUDY, Agreement(STUDY.digest, centres=centres, polynomials={"poly(age, 2)": polynomials})), table
    )


def test_a_polynomial_has_the_powers_of_its_degree_and_no_others():
    standard = (AGES - 45.0) / 14.0
    assert np.allclose(coded((0.0, 1.0), (-1.0, 0.0, 1.0)), np.stack([standard, standard**2 - 1.0], axis=1))
    with pytest.raises(DataError, match="other powers"):
        coded((0.0, 1.0), (*[0.0] * 200, 1.0))  # almost nothing but the oldest person
