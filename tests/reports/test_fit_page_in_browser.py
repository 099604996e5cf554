"""The pages of a fit in a real browser: folds open, figures answer, and nothing is wider than a phone."""

from __future__ import annotations

import dataclasses

import pytest
from tests.browser.visiting import PHONE, corners, figure_of, overflow, values
from tests.studies.conftest import made_up
from tests.studies.situations import STUDY

from fedns.reports.prediction_part import charts
from fedns.studies.fit import fit_study
from fedns.studies.outputs import write_fit

pytestmark = pytest.mark.slow
LONG = "kind_of_treatment"


@pytest.fixture(scope="module")
def fit():
    """With a name that has no place beside a plot on a phone."""
    tables = {site: frame.rename(columns={"arm": LONG}) for site, frame in made_up().items()}
    return fit_study(dataclasses.replace(STUDY, formula=STUDY.formula.replace("arm", LONG)), tables)


@pytest.fixture(scope="module")
def folder(fit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    write_fit(fit, folder)
    return folder


@pytest.mark.parametrize("number", [0, 1], ids=["calibration", "roc"])
def test_figures_show_the_values_under_the_pointer(visit, folder, fit, number):
    page = visit(folder / "report.html")
    figure = figure_of(page, number)
    chart = charts(fit.diagnostics)[number]
    line, (horizontal,) = chart.lines[0], chart.x
    points = corners(figure, 0)
    assert len(points) == len(line.y)
    assert not figure.locator(".values").is_visible()
    middle = len(points) // 2
    page.mouse.move(*points[middle])
    assert values(figure).startswith(chart.x[horizontal].label)
    told = figure.locator(".values .chosen td span").inner_text()
    assert float(told) == pytest.approx(line.y[middle], rel=5e-3)
    page.mouse.move(0, 0)
    assert not figure.locator(".values").is_visible()


def test_folds_open_and_close(visit, folder):
    page = visit(folder / "report.html", viewport=PHONE)
    folds = page.locator("details")
    assert folds.count() > 4
    for fold in folds.all():
        content = fold.locator(":scope > :not(summary)").first
        for seen in (False, True, False):
            assert content.is_visible() is seen
            fold.locator("summary").click()
        assert content.is_visible()  # all stay open: what they hold must not widen the page either
    assert overflow(page) == 0


@pytest.mark.parametrize("name", ["report.html", "what-left.html", "what-left/north.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_a_phone(visit, folder, name, scheme):
    page = visit(folder / name, viewport=PHONE, color_scheme=scheme)
    assert overflow(page) == 0
    boxes = page.locator(".scroll").evaluate_all("all => all.map(box => box.getBoundingClientRect().right)")
    assert boxes and max(boxes) <= PHONE["width"]


def test_on_a_phone_names_in_a_forest_have_one_line_and_stay_in_sight_in_a_table(visit, folder):
    page = visit(folder / "report.html", viewport=PHONE)
    lines = (
        page.locator(".forest")
        .first.locator(".forest-name")
        .evaluate_all("all => all.map(name => [name.innerText, name.offsetHeight])")
    )
    heights = dict(lines)
    assert any(LONG in name for name in heights)
    assert len(set(heights.values())) == 1
    table = page.locator(".scroll").first
    table.evaluate("box => { box.scrollLeft = 1000; }")
    assert table.evaluate("box => box.scrollLeft") > 0
    assert table.locator("tbody td").first.bounding_box()["x"] == pytest.approx(table.bounding_box()["x"], abs=1)
