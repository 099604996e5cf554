"""The report in a real browser: figures are drawn and answer, on any screen, with nothing from outside."""

from __future__ import annotations

import math
import re

import pytest
from tests.browser.visiting import PHONE, corners, figure_of, overflow, values

from fedns.lab.comparison.compare import compare
from fedns.lab.comparison.report import comparison_chart, write_outputs
from fedns.reports.charts import Chart, Curve, Scale
from fedns.reports.interactive import figure_html
from fedns.reports.page import page as whole_page
from fedns.runs.compare import Compare

PAINTED = "getComputedStyle(document.body).backgroundColor"
NASTY = "</script><script>window.broken = 1</script>", "<b>&amp; \"bold\"</b> 'x'", "$\\frac{a}$ <!-- "


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    spec = Compare(
        "breast_cancer", ("newton", "fedns", "gd"), clients=5, scale="standardise", sketch_size=24, trials=2, rounds=12,
        out=str(tmp_path_factory.mktemp("compared")),
    )  # fmt: skip
    done = compare(spec)
    assert write_outputs(done).warnings == []
    return done


@pytest.fixture
def report(comparison):
    return comparison.folder / "report.html"


def nasty_chart(name="nasty"):
    lines = [
        Curve(NASTY[0], {"n": [1, 2, 4]}, [1.0, math.nan, 1e-8], [0.0, 0.0, 1e-9], [2.0, 1.0, 1e-7]),
        Curve(NASTY[1], {"n": [1, 2, 4]}, [3.0, 0.0, math.inf]),
        Curve(NASTY[2], {"n": [2]}, [0.5], dashed=True),
    ]
    return Chart(name, NASTY[0], NASTY[1], {"n": Scale(NASTY[2])}, Scale(NASTY[1], logarithmic=True), lines, level=1e-4)


def drawn(figure):
    return figure.locator(".plot path.line").count()


def test_every_line_is_drawn_and_the_values_under_the_pointer_are_those_of_the_data(visit, report, comparison):
    page = visit(report)
    figure, chart = figure_of(page), comparison_chart(comparison)
    assert figure.locator(".picture").count() == 0
    assert drawn(figure) == len(chart.lines) == 3
    assert figure.locator(".plot path.band").count() == sum(line.low is not None for line in chart.lines) > 0
    for number, line in enumerate(chart.lines):
        points = corners(figure, number)
        assert len(points) == len(line.y)
        page.mouse.move(*points[3])
        assert "communication rounds: 3" in values(figure)
        shown = dict(figure.locator(".values tr").evaluate_all("rows => rows.map(r => [...r.cells].map(c => c.innerText))"))
        assert set(shown) == {line.label for line in chart.lines}
        assert float(shown[line.label].split()[0]) == pytest.approx(line.y[3], rel=5e-3)
    low, high = re.search(r"\((\S+) to (\S+)\)", shown["fedns"]).groups()
    assert float(low) == pytest.approx(chart.lines[1].low[3], rel=5e-3)
    assert float(high) == pytest.approx(chart.lines[1].high[3], rel=5e-3)


def test_the_legend_hides_lines_and_brings_them_back(visit, report):
    figure = figure_of(visit(report))
    button = figure.get_by_role("button", name="fedns")
    for expected, lines in (("true", 3), ("false", 2), ("true", 3)):
        assert button.get_attribute("aria-pressed") == expected
        assert drawn(figure) == lines
        button.click()


def test_the_switch_changes_the_horizontal_axis(visit, report, comparison):
    page = visit(report)
    figure, chart = figure_of(page), comparison_chart(comparison)
    assert figure.locator(".x-label").text_content() == "communication rounds"
    before = corners(figure, 1)
    figure.get_by_role("button", name="bytes").click()
    assert figure.locator(".x-label").text_content() == "bytes sent per client"
    assert figure.get_by_role("button", name="bytes").get_attribute("aria-pressed") == "true"
    assert figure.get_by_role("button", name="rounds").get_attribute("aria-pressed") == "false"
    assert figure.get_by_role("button", name="newton").is_disabled()  # it sends nothing
    assert drawn(figure) == 2
    after = corners(figure, 0)
    assert [x for x, _ in after] != [x for x, _ in before]
    assert re.search(r"\d kB", figure.locator(".axes").text_content())
    page.mouse.move(*after[-1])
    sent = float(re.search(r"per client: (\S+) kB", values(figure)).group(1))
    assert 1000 * sent == pytest.approx(chart.lines[1].x["bytes"][-1], rel=5e-3)


def test_the_keyboard_reaches_every_column(visit, report):
    page = visit(report)
    figure = figure_of(page)
    figure.get_by_role("button", name="seconds").focus()
    page.keyboard.press("Tab")
    assert "communication rounds: 0" in values(figure)
    page.keyboard.press("ArrowRight")
    assert "communication rounds: 1" in values(figure)
    page.keyboard.press("End")
    assert "communication rounds: 12" in values(figure)
    page.keyboard.press("Escape")
    assert not figure.locator(".values").is_visible()


def test_light_dark_phone_and_print(visit, report):
    light, dark = visit(report, color_scheme="light"), visit(report, color_scheme="dark")
    assert light.evaluate(PAINTED) == "rgb(255, 255, 255)"
    assert dark.evaluate(PAINTED) != light.evaluate(PAINTED)
    phone = visit(report, viewport=PHONE, has_touch=True)
    figure = figure_of(phone)
    phone.touchscreen.tap(*corners(figure, 1)[2])
    assert "communication rounds: 2" in values(figure)
    assert overflow(phone) == 0
    dark.emulate_media(media="print", color_scheme="dark")
    assert dark.evaluate(PAINTED) == "rgb(255, 255, 255)"
    printed = figure_of(dark)
    assert printed.locator(".plot > svg").is_visible()
    assert not printed.locator(".switch").is_visible()
    assert dark.pdf().startswith(b"%PDF")


def test_without_scripts_the_picture_is_there(visit, report):
    page = visit(report, java_script_enabled=False)
    assert page.locator(".picture svg").bounding_box()["height"] > 200


def test_labels_are_only_ever_text(visit, tmp_path):
    path = tmp_path / "nasty.html"
    path.write_text(whole_page(NASTY[0], figure_html(nasty_chart())), encoding="utf-8")
    page = visit(path)
    figure = figure_of(page)
    assert page.evaluate("window.broken") is None
    assert page.title() == NASTY[0]
    assert tuple(figure.locator(".legend button").all_text_contents()) == NASTY
    assert figure.locator("h3").text_content() == NASTY[0]
    assert figure.locator(".x-label").text_content() == NASTY[2]
    assert figure.locator(".switch").is_hidden()
    assert drawn(figure) == 3
    # The first line is interrupted, the second has one point that a log axis can show.
    starts = [figure.locator("path.line").nth(number).get_attribute("d").count("M") for number in range(3)]
    assert starts == [2, 1, 1]
    assert all("NaN" not in path for path in figure.locator("path").evaluate_all("all => all.map(p => p.getAttribute('d'))"))


def test_many_figures_are_drawn_when_they_are_near_and_all_of_them_for_print(visit, tmp_path):
    path = tmp_path / "many.html"
    figures = "".join(figure_html(nasty_chart(f"figure {number}"), picture="") for number in range(40))
    path.write_text(whole_page("many", f'<div class="figures">{figures}</div>'), encoding="utf-8")
    page = visit(path, viewport={"width": 800, "height": 600})
    figure_of(page)
    assert 0 < page.locator(".plot > svg").count() < 40
    page.locator("figure.chart").last.scroll_into_view_if_needed()
    page.locator("figure.chart").last.locator(".plot > svg").wait_for()
    page.emulate_media(media="print")
    page.wait_for_function("document.querySelectorAll('.plot > svg').length === 40")
