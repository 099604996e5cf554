"""Ordinary situations in which a model used to come out wrong without a word: what each does to the tables of three sites.

A situation writes files, and ends either in the pooled answer or in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

Tables = dict[str, pd.DataFrame]
STUDY = Study("ill ~ age + dose + arm + sex", "binomial", event=("case",), non_event=("control",))
NAMES = ("Intercept", "age", "dose", "arm[low]", "arm[placebo]", "sex[m]")


@dataclass(frozen=True)
class Situation:
    """What becomes of the tables, and what the fit must do: words of its refusal, or of its notes, or the pooled answer."""

    name: str
    write: Callable[[Tables, Path], dict[str, Path]]
    refusal: tuple[str, ...] = ()
    note: str = ""
    study: Study = STUDY
    absent: tuple[str, ...] = ()  # columns of the design that are left out


def save(tables: Tables, folder: Path, **options) -> dict[str, Path]:
    """Files of these tables; options: keywords of pandas' to_csv for 'south'."""
    paths = {}
    for name, frame in tables.items():
        paths[name] = folder / f"{name}.csv"
        frame.to_csv(paths[name], **({"index": False} | (options if name == "south" else {})))
    return paths


def at_south(change: Callable[[pd.DataFrame], pd.DataFrame], **options) -> Callable[[Tables, Path], dict[str, Path]]:
    return lambda tables, folder: save(tables | {"south": change(tables["south"].copy())}, folder, **options)


def as_it_is(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def recoded(case, control) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.assign(ill=np.where(frame["ill"] == "case", case, control))


def lacks_a_level_and_has_a_column(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["arm"] != "low"].assign(max_hr=150.0)


def duplicate_header(tables: Tables, folder: Path) -> dict[str, Path]:
    paths = save(tables, folder)
    text = paths["south"].read_text(encoding="utf-8")
    paths["south"].write_text(text.replace("time", "age", 1), encoding="utf-8")
    return paths


def separated(tables: Tables, folder: Path) -> dict[str, Path]:
    """Nobody on placebo at any site is ill."""
    return save(
        {name: frame[(frame["arm"] != "placebo") | (frame["ill"] == "control")] for name, frame in tables.items()}, folder
    )


def with_dummies(tables: Tables, folder: Path) -> dict[str, Path]:
    return save({name: frame.assign(woman=(frame["sex"] == "f") * 1) for name, frame in tables.items()}, folder)


def with_sentinels(frame: pd.DataFrame) -> pd.DataFrame:
    frame.loc[frame.index[:6], "dose"] = -999
    return frame


def with_text(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(dose=frame["dose"].astype(str) + " mg")


SITUATIONS = [
    Situation("columns in another order", at_south(lambda frame: frame[frame.columns[::-1]])),
    Situation("a level is absent and a column is extra", at_south(lacks_a_level_and_has_a_column), note="ignored"),
    Situation("0 and 1 here, words there", at_south(recoded(1, 0)), ("'ill' at site 'south' holds '0', '1'",)),
    Situation("1 and 2 here, words there", at_south(recoded(2, 1)), ("'ill' at site 'south' holds '1', '2'",)),
    Situation("yes and no here", at_south(recoded("yes", "no")), ("site 'south'", "'no', 'yes'", "as site 'north' does")),
    Situation(
        "one class, in another case",
        at_south(lambda frame: frame[frame["ill"] == "case"].assign(ill="Case")),
        ("site 'south'", "'Case' is likely the same as 'case'"),
    ),
    Situation(
        "a unit a thousand times as large",
        at_south(lambda frame: frame.assign(dose=frame["dose"] / 1000)),
        ("column 'dose' has mean 0.09299", "at site 'south'", "at site 'west'", "a thousand"),
    ),
    Situation(
        "mmol/L here, mg/dL there",
        at_south(lambda frame: frame.assign(dose=frame["dose"] / 18.0182)),
        ("column 'dose'", "site 'south'", "glucose"),
    ),
    Situation("quasi-separation", separated, ("arm[placebo] separates the events",)),
    Situation(
        "an aliased dummy", with_dummies, note="woman = Intercept - sex[m]",
        study=replace(STUDY, formula="ill ~ age + dose + arm + sex + woman"), absent=("woman",),
    ),
    Situation(
        "an aliased dummy, refused", with_dummies, ("woman = Intercept - sex[m]",),
        study=replace(STUDY, formula="ill ~ age + dose + arm + sex + woman", aliased="refuse"),
    ),
    Situation("semicolons", at_south(as_it_is, sep=";"), note="semicolon"),
    Situation("tabs", at_south(as_it_is, sep="\t"), note="tab"),
    Situation("decimal commas", at_south(as_it_is, sep=";", decimal=","), note="decimal comma"),
    Situation("a byte order mark", at_south(as_it_is, encoding="utf-8-sig")),
    Situation("two columns of one name", duplicate_header, ("site 'south'", "more than one column called 'age'")),
    Situation(
        "latin-1", at_south(lambda frame: frame.assign(note="Müller"), encoding="latin-1"), note="Windows-1252",
    ),
    Situation(
        "levels that differ in case", at_south(lambda frame: frame.assign(sex=frame["sex"].str.upper())),
        ("column 'sex'", "'F' at site 'south'", "'f' at site 'north'", "likely the same"),
    ),
    Situation(
        "a level spelled in two ways", at_south(lambda frame: frame.assign(arm=frame["arm"].replace("placebo", "plasebo"))),
        ("'placebo' at site 'north'", "'plasebo' at site 'south'", "likely the same"),
    ),
    Situation(
        "a sentinel code", at_south(with_sentinels), ("column 'dose' at site 'south' holds -999", "missing_codes = [-999]"),
    ),
    Situation(
        "an index column", at_south(lambda frame: frame.assign(dose=np.arange(1, len(frame) + 1))),
        ("column 'dose' at site 'south' counts the rows",),
    ),
    Situation("an index column that pandas wrote", at_south(as_it_is, index=True), note="ignored"),
    Situation("a number here, text there", at_south(with_text), ("column 'dose'", "site 'north' and text at site 'south'")),
    Situation(
        "no outcome", at_south(lambda frame: frame.drop(columns="ill")), ("site 'south' does not have the outcome 'ill'",),
    ),
    Situation(
        "an outcome under another name", at_south(lambda frame: frame.rename(columns={"ill": "Ill "})),
        ("site 'south' does not have the outcome 'ill': it has 'Ill'",),
    ),
    Situation(
        "missing values", at_south(lambda frame: frame.assign(age=frame["age"].where(frame["age"] > 50))),
        ("site 'south' misses", "of 'age'", 'missing = "complete"'),
    ),
    Situation(
        "two values coded in two ways",
        lambda tables, folder: save(
            {n: f.assign(sex=(f["sex"] == "m") + (1 if n == "south" else 0)) for n, f in tables.items()}, folder
        ),
        ("column 'sex' is coded 0 and 1 at site 'north' and 1 and 2 at site 'south'",),
    ),
    Situation(
        "dates", at_south(lambda frame: frame.assign(age="1961-02-03")), ("column 'age' at site 'south' holds dates",),
    ),
    Situation(
        "names", at_south(lambda frame: frame.assign(arm=[f"patient {i}" for i in range(len(frame))])),
        ("column 'arm' at site 'south' has another value in every row",),
    ),
    Situation(
        "beyond the range", at_south(lambda frame: frame.assign(age=frame["age"] * 3)),
        ("column 'age' at site 'south' has", "outside the study's range 0 to 120 years"),
        study=replace(STUDY, columns={"age": ColumnRule(range=(0.0, 120.0), unit="years")}),
    ),
    Situation(
        "units in the header", at_south(lambda frame: frame.rename(columns={"dose": "dose [mg]"})),
        ("column 'dose' is in mg at site 'south', and in g according to the study",),
        study=replace(STUDY, columns={"dose": ColumnRule(unit="g")}),
    ),
]  # fmt: skip
