"""Tables of four made-up hospitals, as untidy as tables are: for a first look, and for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedns.numerics.rng import generator
from fedns.runs.results import Results

HOSPITALS = {"aarau": 199, "basel": 172, "chur": 120, "davos": 150}  # enough for what sites permit unless told otherwise
_COLUMNS = ("age", "sex", "chest_pain", "ex_angina", "chol", "max_hr", "disease")
_PAINS = ("asymptomatic", "atypical", "nonanginal", "typical")


def write_example(folder: Path, *, overwrite: bool = False) -> list[Path]:
    """One table for each hospital: other separators, other orders of columns, a level that one of them does not have."""
    results, names = Results(folder, "example"), [f"{name}.csv" for name in HOSPITALS]
    results.refuse(names, overwrite=overwrite)
    results.begin(names)
    paths = []
    for number, (name, rows) in enumerate(HOSPITALS.items()):
        columns = list(_COLUMNS) if number != 1 else list(reversed(_COLUMNS))
        separator = ";" if number == 2 else ","
        patients = [patient for patient in _patients(number, rows) if number != 2 or patient["chest_pain"] != "typical"]
        lines = [separator.join(["patient", *columns])]
        for place, patient in enumerate(patients, start=1):
            cells = [str(place), *(patient[column] for column in columns)]
            lines.append(separator.join(cell.replace(".", ",") if number == 2 else cell for cell in cells))
        paths.append(folder / f"{name}.csv")
        paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def _patients(number: int, rows: int) -> list[dict[str, str]]:
    draw = generator(2024, "example", number)
    age = np.round(draw.normal(54 + 3 * number, 9, rows))
    male = draw.random(rows) < 0.7
    pain = draw.choice(4, rows, p=(0.45, 0.2, 0.25, 0.1))
    angina = draw.random(rows) < np.where(pain == 0, 0.55, 0.15)
    chol = np.round(draw.normal(240, 45, rows), 1)
    heart_rate = np.round(190 - 0.8 * age + draw.normal(0, 18, rows))
    margin = (
        -3.2 + 0.05 * age + 1.1 * male - 1.3 * (pain > 0) + 0.9 * angina + 0.004 * (chol - 240) - 0.015 * (heart_rate - 145)
    )
    ill = draw.random(rows) < 1 / (1 + np.exp(-margin))
    return [
        {
            "age": f"{age[i]:.0f}",
            "sex": "male" if male[i] else "female",
            "chest_pain": _PAINS[pain[i]],
            "ex_angina": "yes" if angina[i] else "no",
            "chol": f"{chol[i]:.1f}",
            "max_hr": f"{heart_rate[i]:.0f}",
            "disease": "yes" if ill[i] else "no",
        }
        for i in range(rows)
    ]
