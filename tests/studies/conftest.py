"""Tables of several sites, and what statsmodels makes of them when they are pooled."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

PAIN = {1: "typical", 2: "atypical", 3: "nonanginal", 4: "asymptomatic"}


@pytest.fixture(scope="session")
def heart() -> dict[str, pd.DataFrame]:
    """The four hospitals, each a table of its own, with the words that a hospital would use."""
    folder = os.environ.get("FEDNS_DATA")
    path = Path(folder or ".") / "heart_4sites_raw.npz"
    if not folder or not path.exists():
        pytest.skip("heart_4sites_raw is not in FEDNS_DATA")
    with np.load(path) as archive:
        frame = pd.DataFrame(archive["X"], columns=[str(name) for name in archive["columns"]])
        frame["disease"] = np.where(archive["y"] > 0, "yes", "no")
        site = archive["site_names"][archive["site"]]
    frame["cp"] = frame["cp"].map(PAIN)
    frame["sex"] = np.where(frame["sex"] == 1, "male", "female")
    columns = ["age", "sex", "cp", "trestbps", "chol", "thalach", "exang", "disease"]
    return {str(name): frame.loc[site == name, columns].reset_index(drop=True) for name in dict.fromkeys(site)}


@pytest.fixture
def heart_study() -> Study:
    return Study(
        "disease ~ age + sex + cp + trestbps + thalach + exang",
        "binomial",
        event=("yes",),
        non_event=("no",),
        missing="complete",
        columns={"age": ColumnRule(unit="years", range=(18.0, 110.0))},
    )


def made_up(rows: int = 240, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Three sites with two numbers, a category and an outcome of any family."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.normal(60, 9, rows).round(1),
            "dose": random.gamma(4.0, 25.0, rows).round(1),
            "arm": random.choice(["placebo", "low", "high"], rows),
            "sex": random.choice(["f", "m"], rows),
            "time": random.uniform(0.5, 4.0, rows).round(2),
            "weight": random.integers(1, 5, rows),
        }
    )
    margin = 0.04 * (frame["age"] - 60) + 0.01 * (frame["dose"] - 100) + 0.7 * (frame["arm"] == "high") - 0.3
    frame["ill"] = np.where(random.random(rows) < 1 / (1 + np.exp(-margin)), "case", "control")
    frame["score"] = (10 + 2 * margin + random.normal(0, 1, rows)).round(3)
    frame["falls"] = random.poisson(np.exp(0.5 * margin))
    ends = [0, rows // 2, rows // 2 + rows // 3, rows]
    return {
        name: frame.iloc[start:stop].reset_index(drop=True)
        for name, start, stop in zip(("north", "south", "west"), ends, ends[1:], strict=False)
    }


@pytest.fixture
def three_sites() -> dict[str, pd.DataFrame]:
    return made_up()
