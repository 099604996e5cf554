import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import fedns
from fedns.cli import app as cli
from fedns.lab.comparison.method_pages import bytes_per_round, comparison_of_methods, methods_page, read_stated_run
from fedns.methods import METHODS

ROOT = Path(__file__).parents[3]


PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
ON_THE_PAGE = re.findall(r"^## (\S+)$", PAGE, flags=re.MULTILINE)


def test_the_docs_page_is_what_the_command_prints():
    """Of the methods that are on it; `make docs` adds new ones, and needs no data."""
    assert methods_page(ON_THE_PAGE) == PAGE, "run: make docs"


def test_every_method_that_was_measured_is_there_and_on_the_page():
    measured = read_stated_run()
    assert len(measured.cases) == 8
    names = {typed.split(":")[0] for typed in measured.cells}
    assert names <= set(METHODS) and names <= set(ON_THE_PAGE)


@pytest.mark.nightly
def test_every_method_is_on_the_page_and_was_measured_in_the_stated_run():
    """Before a release; whoever adds a method need not have the data of that run."""
    assert list(METHODS) == ON_THE_PAGE
    missing = {name for name in METHODS if read_stated_run().of(name) is None}
    assert missing <= {"newtonsketch"}  # pooled, and no method of the paper's comparison


@dataclass(frozen=True)
class Newcomer(fedns.GradientDescent):
    """A method that somebody has just added."""

    name: ClassVar[str] = "newcomer"


def test_a_method_that_nobody_has_measured_yet_turns_no_test_of_pages_red(monkeypatch):
    monkeypatch.setitem(METHODS._own, "newcomer", Newcomer)
    assert "newcomer" in METHODS
    test_the_docs_page_is_what_the_command_prints()
    test_every_method_that_was_measured_is_there_and_on_the_page()
    (row,) = (row for row in comparison_of_methods()[1] if row[0] == "newcomer")
    assert set(row[4:]) == {"-"} and "## newcomer\n\nA method that somebody has just added." in methods_page()


@pytest.mark.parametrize(
    ("method", "numbers"),
    [
        (fedns.FedNewton(), 20 * 21 // 2 + 20),
        (fedns.FedNS(), 5 * 20 + 20),
        (fedns.GIANT(), 2 * 20 + 13),
        (fedns.FedNL(), 20 + 21),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_bytes_of_a_round_are_the_numbers_sent_and_small_headers(method, numbers):
    count = bytes_per_round(method, 20, 5, "float64")
    assert 8 * numbers < count < 8 * numbers + 300


def test_sizes_add_columns_of_bytes(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["methods", "--features", "10", "--sketch-size", "4", "--clients", "3"])
    assert not end.value.code
    shown = capsys.readouterr().out
    assert "M=10, k=4, m=3" in shown and "of all" in shown and "measured:" in shown
    assert len(comparison_of_methods()[1]) == len(METHODS)
