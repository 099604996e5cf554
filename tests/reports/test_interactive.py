"""Figures on a page, as text; a browser looks at them in test_report_in_browser.py."""

import json
import math
import re
import sys
from html import unescape
from xml.etree import ElementTree

from fedns.reports import plots
from fedns.reports.charts import Chart, Curve, Scale
from fedns.reports.interactive import figure_html, page_script

NASTY = "</script><!-- <script>&\"'"


def chart(**changes):
    lines = [
        Curve("a", {"rounds": [0, 1, 2]}, [1.0, 0.123456789, math.nan], [0.5, 0.1, 0.0], [2.0, 0.2, math.inf]),
        Curve(NASTY, {"rounds": [0, 1, 2], "bytes": [0.0, 1000.0, 2000.0]}, [3, 2, 1], dashed=True),
    ]
    scales = {"rounds": Scale("rounds"), "bytes": Scale("bytes", True, "bytes")}
    settings = {"name": "my figure", "title": NASTY, "caption": NASTY, "x": scales, "y": Scale("gap", True), "lines": lines}
    return Chart(**settings | changes)


def data_of(text):
    (found,) = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def test_the_data_survive_and_cannot_end_their_element():
    text = figure_html(chart(level=1e-6), picture="")
    data = data_of(text)
    assert text.count("<script") == text.count("</script>") == 1
    assert text.count("<!--") == 0
    assert data["title"] == data["lines"][1]["label"] == NASTY
    assert list(data["x"]) == ["rounds", "bytes"]
    assert data["x"]["bytes"] == {"label": "bytes", "logarithmic": True, "unit": "bytes"}
    assert data["level"] == 1e-6
    first, second = data["lines"]
    assert first["y"] == [1, 0.1234568, None]
    assert first["high"] == [2, 0.2, None]
    assert second["low"] is None
    assert second["x"] == {"rounds": [0, 1, 2], "bytes": [0, 1000, 2000]}
    assert unescape(re.search("<figcaption>(.*)</figcaption>", text)[1]) == NASTY


def test_lines_look_as_on_paper_and_ink_follows_the_page():
    data = data_of(figure_html(chart(lines=[Curve(str(n), {}, []) for n in range(8)]), picture=""))
    assert [line["colour"] for line in data["lines"]] == [*plots.COLOURS[:6], "currentColor", plots.COLOURS[0]]
    assert len({(line["colour"], line["dash"], line["marker"]) for line in data["lines"]}) == 8
    known = set(re.findall(r'[{,\n] +"?([^ "]+)"?: "', page_script()))
    assert {*plots.LINES, *plots.MARKERS} <= known
    assert data_of(figure_html(chart(), picture=""))["lines"][1]["marker"] == ""


def test_the_picture_is_drawn_here_unless_there_is_one(monkeypatch):
    picture = re.search(r'<div class="picture">(.*?)</div>', figure_html(chart()), re.DOTALL)[1]
    ElementTree.fromstring(picture)
    assert 'id="my-figure-paper"' in picture
    assert '<div class="picture"><svg/></div>' in figure_html(chart(), "<svg/>")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert '<div class="picture"></div>' in figure_html(chart())


def test_the_script_is_one_element_and_asks_for_nothing():
    script = page_script()
    assert script.count("<script") == script.count("</script") == 1
    addresses = set(re.findall(r"https?://[^\"' ]+", script))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address
