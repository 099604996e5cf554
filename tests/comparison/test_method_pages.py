from pathlib import Path

import pytest

import fedns
from fedns.algorithms import METHODS
from fedns.cli import app as cli
from fedns.comparison.measured import bytes_per_round, read_measured
from fedns.comparison.method_pages import comparison_of_methods, methods_page

ROOT = Path(__file__).parents[2]


def test_the_docs_page_is_what_the_command_prints():
    assert (ROOT / "docs" / "methods.md").read_text(encoding="utf-8") == methods_page(), "run: make docs"


def test_every_method_was_measured_in_the_stated_run():
    measured = read_measured()
    assert len(measured.cases) == 8
    missing = {name for name in METHODS if measured.of(name) is None}
    assert missing <= {"newtonsketch"}  # pooled, and no method of the paper's comparison


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
