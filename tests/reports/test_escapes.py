"""Whatever a site or a user calls a thing, a page shows it as text: its tags are those of a page with a harmless name."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import fedns
from fedns.core.history import Record
from fedns.core.messages.ledger import LedgerEntry
from fedns.core.termination import Ending
from fedns.federation.coordinator.influence import SiteInfluence
from fedns.federation.coordinator.session import Result
from fedns.federation.coordinator.watching import SiteStatus
from fedns.lab.comparison.compare import Comparison
from fedns.lab.comparison.report import render
from fedns.lab.comparison.results import LedgerLine, TrialRun
from fedns.lab.paper.part import ClaimVerdict, Part
from fedns.lab.paper.report import write_paper_report as write_paper
from fedns.reports.charts import Chart, Curve, Scale
from fedns.reports.interactive import figure_html
from fedns.reports.page import Tile, board, folded, html_table, page, pairs, section
from fedns.reports.plots import page_svg
from fedns.reports.run_page import write_report as write_run
from fedns.reports.what_left import site_page
from fedns.runs.compare import Compare
from fedns.runs.over_sites import ColumnRun
from fedns.studies.fit import fit_study
from fedns.studies.outputs import write_fit
from fedns.studies.study import Study

EVIL = """A<script>alert("x")</script><img src=x onerror='y'>"&amp;"""
TAME = "A" + "x" * (len(EVIL) - 1)


class Tags(HTMLParser):
    """Every tag with its attributes, and every text but scripts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.texts = [], [""]
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, tuple(name for name, _ in attributes)))
        self.texts.append("")

    def handle_endtag(self, tag):
        self.tags.append(("/" + tag, ()))
        self.texts.append("")

    def handle_data(self, data):
        if self.cdata_elem is None:
            self.texts[-1] += data


def check(make, times):
    """make: a page from a name, which stands in it at least so many times, whole."""
    evil, tame = Tags(make(EVIL)), Tags(make(TAME))
    assert evil.tags == tame.tags
    assert sum(text.count(EVIL) for text in evil.texts) >= times


def test_the_parts_of_a_page():
    check(
        lambda name: page(
            name,
            section(name, html_table([name], [[name, name]]) + pairs([(name, name)]))
            + board([Tile(name, name)])
            + folded("", name),
        ),
        9,
    )


def test_a_figure():
    def drawn(name):
        line = Curve(name, {"rounds": [0.0, 1.0]}, [1.0, 0.1])
        chart = Chart("gap", name, name, {"rounds": Scale(name)}, Scale(name, True), [line])
        return figure_html(chart, "")  # a picture is laid out by the width of its letters

    check(drawn, 2)
    chart = Chart("gap", EVIL, "", {"rounds": Scale(EVIL)}, Scale(EVIL), [Curve(EVIL, {"rounds": [0.0, 1.0]}, [1.0, 0.1])])
    assert {"svg", "text"} <= {tag for tag, _ in Tags(page_svg(chart)).tags} and "<img" not in page_svg(chart).lower()
    text = drawn("</script><script>alert(1)</script>")
    assert text.count("<script") == 1 and json.loads(text.split('json">')[1].split("</script>")[0])


def tables(name):
    draw = np.random.default_rng(0)
    found = {}
    for site in ("north", name):
        frame = pd.DataFrame({"age": draw.normal(50, 9, 240), name: draw.choice(["0", name, "z"], 240)})
        chance = 1 / (1 + np.exp(-0.05 * (frame["age"] - 50) - 0.6 * (frame[name] == "z")))
        frame["y"] = np.where(draw.random(240) < chance, name, "none of it")
        found[site] = frame
    return found


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """By name, the files of a fit in which site, column, level, event, unit and title have it."""
    found = {}
    for name in (EVIL, TAME):
        study = Study(
            f"y ~ age + `{name}`", "binomial", title=name, event=(name,), non_event=("none of it",), strength=1e-3,
            columns={"age": fedns.ColumnRule(unit=name)},
        )  # fmt: skip
        fit = fit_study(study, tables(name))
        folder = tmp_path_factory.mktemp("fit")
        write_fit(fit, folder)
        found[name] = fit, folder
    return found


@pytest.mark.parametrize("part", ["report", "index", "site", "notebook", "study"])
def test_a_fit(fits, part):
    def text(name):
        fit, folder = fits[name]
        if part in ("notebook", "study"):
            return (fit if part == "notebook" else fit.study)._repr_html_()
        if part == "site":
            (path,) = [path for path in (folder / "what-left").iterdir() if path.stem != "north"]
        else:
            path = folder / {"report": "report.html", "index": "what-left.html"}[part]
        return path.read_text(encoding="utf-8").replace(fit.study.digest, "digest")

    check(text, {"report": 20, "index": 2, "site": 3, "notebook": 2, "study": 2}[part])


def test_messages_of_a_kind_that_nobody_knows():
    check(lambda name: site_page(name, [LedgerEntry(1, 1, "uplink", name, {name: (2,)}, 1, 1, name)], name), 4)


def test_a_comparison(tmp_path):
    def text(name):
        records = [Record(t, t, 0.25 * t, 4000 * t, 400 * t, gap, gap, gap) for t, gap in enumerate((1.0, 1e-7))]
        run = TrialRun(name, 0, records, Ending.PLATEAU, name, [LedgerLine("uplink", name, (name,), False, 8, 8000)])
        spec = Compare(name, ("fedns",), clients=4, trials=1, positive=name, out=str(tmp_path))
        return render(Comparison(spec, tmp_path, {name: name}, [], 4, [run]), "", [name])

    check(text, 12)


def test_a_run_over_sites(tmp_path):
    def text(name):
        folder = tmp_path / str(name == EVIL) / "run"
        folder.mkdir(parents=True, exist_ok=True)
        line = {"direction": "uplink", "site": name, "purpose": name, "kind": name, "fields": [name], "bytes": 8}
        (folder / "ledger.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
        told = {"time": name, "event": "rejected", "site": name, "reason": name}
        (folder / "log.jsonl").write_text(json.dumps(told) + "\n", encoding="utf-8")
        record = Record(0, 0, 0.0, 0, 0, 1.0, None, 1.0, note=name)
        history = fedns.History("fedns", [record], np.zeros(3), Ending.REFUSED, name, [])
        status = SiteStatus(name, runs=name, blanked_columns=1)
        decides = SiteInfluence(name, 0.5, 1.0, 1.0, 1.0, 1.0, named=name)
        apart = SiteInfluence(name, 0.5, 1.0, 1.0, 1.0, 1.0, apart=True)
        spec = ColumnRun(sites=("north",), home=folder.parent, out="run")
        path = write_run(spec, Result(history, [status], [decides, apart]))
        return path.read_text(encoding="utf-8").replace(str(folder), "folder")

    check(text, 15)


def test_a_reproduction(tmp_path):
    def text(name):
        verdict = ClaimVerdict(name, name, "holds if", name, name)
        words = Part(name, [name], tables=[(name, [name], [[name]])], verdicts=[verdict])
        return write_paper(tmp_path / str(name == EVIL), [words], True, [name], 1).read_text(encoding="utf-8")

    (tmp_path / "True").mkdir()
    (tmp_path / "False").mkdir()
    check(text, 9)
