"""The report of a fit has every coefficient, its interval and what sites say; forest plots are where numbers are."""

from __future__ import annotations

import math
import re

import pytest
from tests.studies.conftest import made_up
from tests.studies.situations import STUDY

from fedns.reports.fit_page import report
from fedns.reports.forest import Estimate, forest
from fedns.studies.fit import fit_study


@pytest.fixture(scope="module")
def fit():
    return fit_study(STUDY, made_up())


def test_the_page_has_all_parts(fit):
    text = report(fit)
    for name in fit.names:
        assert f">{name}<" in text
    for heading in ("Coefficients", "How well the model fits", "How sites differ", "How the fit went", "What to know"):
        assert f"<h2>{heading}</h2>" in text
    assert text.count("<details>") == len(fit.names) - 1 + 5 and "odds ratio" in text
    assert "<script src" not in text and "http" not in re.sub(r"http://www.w3.org/\S+", "", text)


def test_the_page_opens_with_a_board(fit):
    text = report(fit)
    board = text[text.index('<ul class="board">') : text.index("<h2>")]
    assert "converged" in board and f"<b>{fit.num_rows}</b>" in board
    assert f"<b>{fit.diagnostics.total.roc.area:.3f}</b>" in board


def test_names_are_escaped():
    assert "<b>x" not in forest([Estimate("<b>x</b>", 0.1, 0.0, 0.2)])


def test_a_forest_puts_points_between_the_ends():
    text = forest([Estimate("a", 0.0, -1.0, 1.0), Estimate("b", 50.0, -50.0, 100.0)], ratio="odds ratio")
    places = [float(place) for place in re.findall(r'point" style="left:([\d.]+)%', text)]
    assert all(0 <= place <= 100 for place in places) and places[0] < places[1] == pytest.approx(97.2, abs=3)
    assert "1 (0.368 to 2.72)" in text
    assert forest([Estimate("a", math.nan, math.nan, math.nan)]) == ""


def test_ratios_near_one_have_a_scale_too():
    text = forest([Estimate("a", 0.03, math.log(0.946), math.log(1.11))], ratio="odds ratio")
    assert re.findall(r"<i [^>]*>([^<]+)</i>", text) == ["0.95", "1", "1.05", "1.1"]


def test_differences_have_a_plain_scale():
    text = forest([Estimate("a", 3.0, 2.0, 4.0)])
    assert re.findall(r"<i [^>]*>([^<]+)</i>", text) == ["0", "1", "2", "3", "4"]
