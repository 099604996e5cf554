"""Tables that we write, opened in a spreadsheet: one form of coefficients, and no text that is computed."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedns.core.files import csv_text, text_of_cell
from fedns.federation.coordinator.influence import SiteInfluence
from fedns.lab.comparison.summary import write_summary
from fedns.reports.influence_part import LEFT_OUT_FILE, write_left_out
from fedns.runs.results import COLUMNS
from fedns.studies.tables.files.frames import read_frame

LEVELS = ("=1+1", "+49 30", "-5 mg", "@home", "'=quoted", "plain")
STUDY = 'formula = "disease ~ dose + age"\nfamily = "binomial"\n[outcome]\nevent = ["yes"]\nnon_event = ["no"]\n'


def computed(cell):
    """Whether a spreadsheet takes this cell for a formula; numbers are none."""
    try:
        float(cell)
    except ValueError:
        return len(cell) > 1 and cell[0] in "=+-@\t\r\n＝＋－＠"
    return False


@given(st.text(st.sampled_from("=+-@'\t\r\n＝ax1,;\"|")))
def test_any_text_is_shown_and_read_back(text):
    (row,) = csv.reader(io.StringIO(csv_text([["first", text]]), newline=""))
    assert not computed(row[1]) and text_of_cell(row[1]) == text


def test_numbers_have_all_digits_and_no_quotes():
    values = [-1.5, np.float64(1 / 3), -7, float("nan"), float("-inf"), None, True]
    assert csv_text([values]) == "-1.5,0.3333333333333333,-7,,-inf,,True\n"


@pytest.fixture
def tables(tmp_path):
    """Two sites, one with a name that a spreadsheet would compute, and levels of that kind."""
    draw = np.random.default_rng(0)
    folder = tmp_path / "tables"
    folder.mkdir()
    for site in ("=north", "south"):
        frame = pd.DataFrame({"dose": draw.choice(LEVELS, 300), "age": draw.normal(50, 9, 300).round(1)})
        frame["disease"] = np.where(draw.random(300) < 0.4 + 0.2 * (frame["dose"] == "=1+1"), "yes", "no")
        frame.to_parquet(folder / f"{site}.parquet")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def cells_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_levels_that_look_like_formulas(tables, fedns_command):
    out, study = tables / "out", tables / "study.toml"
    code, shown, _ = fedns_command("fit", study, tables / "tables", "--out", out)
    assert code == 0 and "dose[=1+1]" in shown
    cells = cells_of(out / "coefficients.csv")
    assert tuple(cells[0]) == COLUMNS and not any(computed(cell) for line in cells for cell in line)
    back = read_frame(out / "coefficients.csv")
    levels = [level for level in back.columns["level"].values if level is not None]
    reference = set(back.columns["reference"].values) - {None}
    assert len(reference) == 1 and {*levels, *reference} == set(LEVELS) and len(levels) == len(LEVELS) - 1
    new = tables / "new.csv"
    new.write_text(csv_text([["dose", "age"], *([level, 50.0] for level in (*LEVELS, "=2+2"))]), encoding="utf-8")
    assert fedns_command("predict", out / "model.json", new, "--out", tables / "p.csv")[0] == 1  # the last one was not there
    predicted = cells_of(tables / "p.csv")
    assert [bool(line[1]) for line in predicted[1:]] == [True] * len(LEVELS) + [False]
    assert not any(computed(cell) for line in predicted for cell in line)


def test_classes_that_look_like_formulas(tables, fedns_command):
    for path in (tables / "tables").iterdir():
        frame = pd.read_parquet(path)
        frame.drop(columns="disease").to_parquet(path)
    (tables / "study.toml").write_text('formula = "dose ~ age"\nfamily = "multinomial"\n', encoding="utf-8")
    assert fedns_command("fit", tables / "study.toml", tables / "tables", "-q", "--out", tables / "out")[0] == 0
    cells = cells_of(tables / "out" / "coefficients.csv")
    assert not any(computed(cell) for line in cells for cell in line)
    place = cells[0].index("class")
    assert len({text_of_cell(line[place]) for line in cells[1:]} & set(LEVELS)) == len(LEVELS) - 1


def test_other_tables_go_through_the_same_writer(tmp_path, monkeypatch):
    site = SiteInfluence("=north", 0.5, without=np.array([-1.0, 2.0]))
    write_left_out(tmp_path, {"=x": -0.5, "Intercept": 1.0}, [site])
    cells = cells_of(tmp_path / LEFT_OUT_FILE)
    assert cells == [["name", "coefficient", "without =north"], ["'=x", "-0.5", "-1.0"], ["Intercept", "1.0", "2.0"]]
    write_summary(tmp_path / "summary.csv", [])
    assert (tmp_path / "summary.csv").read_text() == ""
