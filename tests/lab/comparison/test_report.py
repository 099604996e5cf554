"""The page."""

import re
from html.parser import HTMLParser

from fedns.core.history import Record
from fedns.core.termination import Ending
from fedns.lab.comparison.compare import Comparison
from fedns.lab.comparison.report import render, sentence
from fedns.lab.comparison.results import LedgerLine, TrialRun
from fedns.lab.comparison.summary import summarise
from fedns.reports.page import html_table, page, pairs, section
from fedns.runs.compare import Compare

VOID = {"meta", "br", "hr", "img", "link"}


class Checker(HTMLParser):
    """Tags that are opened and closed in order, and everything they point to."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def run(method="fedns", trial=0, gaps=(1.0, 1e-7, 1e-11), ending=Ending.GAP, reason="reached the tolerance"):
    records = [Record(t, t, 0.25 * t, 4000 * t, 400 * t, gap, gap, gap) for t, gap in enumerate(gaps)]
    ledger = [LedgerLine("uplink", "Sketch", ("gradient", "root"), False, 8, 8000)]
    return TrialRun(method, trial, records, ending, reason, ledger)


def comparison(tmp_path, runs, **changes):
    spec = Compare("a<b>.csv", ("fedns", "gd"), clients=4, trials=2, out=str(tmp_path))
    return Comparison(spec, tmp_path, {"rows and columns": "10 x 2 & more"}, [], 4, runs, **changes)


def test_one_page_with_everything_and_nothing_from_outside(tmp_path):
    figure = '<figure class="chart"><svg xmlns="http://www.w3.org/2000/svg"><path id="p" d="M0 0"/></svg></figure>'
    page = render(comparison(tmp_path, [run(), run(trial=1)]), figure, ["a note with <angles>"])
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert all(link.startswith("#") for link in checker.links)
    assert not re.search(r"@import|url\(h|<script src|<link|fetch\(|XMLHttp|import\(", page)
    text = "".join(checker.text)
    for expected in (
        "a<b>.csv: fedns", "10 x 2 & more", "a note with <angles>", "converged in all 2 trials: 2 rounds",
        "gradient, root", "1 kB", "sketch_size", "numpy", "numba", "Python", "fedns compare 'a<b>.csv' --methods fedns,gd",
    ):  # fmt: skip
        assert expected in text
    assert figure in page
    assert "interrupted" not in page


def test_an_interrupted_page_says_so(tmp_path):
    page = render(comparison(tmp_path, [run(ending=Ending.INTERRUPTED)], interrupted=True), "", [])
    assert "This run was interrupted" in page
    assert "<h2>Figures" not in page


def test_sentences_are_plain():
    (good,) = summarise([run(), run(trial=1, gaps=(1.0, 1e-3, 1e-7, 1e-11))], 4)
    assert sentence(good, 4) == (
        "converged in all 2 trials: 2.5 rounds on average (2 to 3), with 2.5 kB sent by each of 4 clients, 0.625 seconds."
    )
    stuck = "used all 2 rounds, on a plateau: the gap has stayed at 1.0e-01 for 9 rounds"
    (alone,) = summarise([run(gaps=(1.0, 0.1), ending=Ending.PLATEAU, reason=stuck)], 4)
    assert sentence(alone, 4) == f"did not converge: {stuck}."
    (mixed,) = summarise([run(), run(trial=1, gaps=(1.0, 0.1), ending=Ending.PLATEAU, reason=stuck)], 4)
    (none,) = summarise([run(trial=t, gaps=(1.0, 0.1), ending=Ending.PLATEAU, reason=stuck) for t in range(3)], 4)
    assert sentence(none, 4).startswith(
        "did not converge in any of 3 trials (plateau); the median gap at the end is 1.0e-01"
    )
    assert sentence(mixed, 4).startswith("converged in 1 of 2 trials (converged 1/2, plateau 1/2); the median gap")


def test_the_pieces_of_a_page_escape_what_is_text():
    body = section("a <b>", html_table(("to 1e-6", "n"), [("x & y", "1")]) + pairs([("<key>", "value")]))
    checker = Checker()
    checker.feed(page("title </title>", body))
    assert checker.open == []
    text = "".join(checker.text)
    for expected in ("a <b>", "x & y", "<key>", "title </title>", "to 1e\u20116"):
        assert expected in text
    assert body.count('class="text"') == 3
