import csv

import pytest

from fedns.cli import app as cli
from fedns.core.errors import ConfigError
from fedns.lab.comparison import sweep as sweeps
from fedns.lab.comparison.sweep import is_finished, is_sweep, read_sweep, run_sweep

TEXT = """
methods = ["fednewton", "fedns"]
split = ["iid", "sorted"]
scale = "standardise"
rounds = 3
trials = 1
clients = 4

[[cases]]
dataset = "breast_cancer"

[[cases]]
dataset = "diabetes"
sketch_size = [4, 8]
"""


@pytest.fixture
def config(tmp_path):
    return written(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A sweep that was run to its end: six cases."""
    sweep = read(written(tmp_path_factory.mktemp("sweep")))
    done, interrupted = run_sweep(sweep)
    assert not interrupted and len(done) == 6
    return sweep


def written(folder):
    path = folder / "sweep.toml"
    path.write_text(TEXT)
    return path


def read(config, **overrides):
    return read_sweep(config, {"out": str(config.parent / "out")} | overrides)


def test_lists_and_cases_are_multiplied_out_in_order(config):
    sweep = read(config)
    assert [case.label for case in sweep.cases] == [
        "breast_cancer iid",
        "breast_cancer sorted",
        "diabetes iid 4",
        "diabetes iid 8",
        "diabetes sorted 4",
        "diabetes sorted 8",
    ]
    assert {case.spec.rounds for case in sweep.cases} == {3}
    assert len({case.spec.folder for case in sweep.cases}) == 6
    assert {case.spec.rounds for case in read(config, rounds=2).cases} == {2}


def test_what_is_a_sweep():
    assert is_sweep({"split": ["iid"]}) and is_sweep({"cases": []})
    assert not is_sweep({"methods": ["fedns", "gd"], "split": "iid"})


def test_the_table_has_a_row_per_method_and_a_column_per_case(finished):
    sweep = finished
    with (sweep.folder / "table.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["method", *(case.label for case in sweep.cases)]
    assert [row[0] for row in rows[1:]] == ["fednewton", "fedns"]
    assert "1 / " in rows[1][3]  # Newton solves a least-squares problem in one step
    assert (sweep.folder / "table.md").read_text().startswith("| method | breast_cancer iid |")


def test_what_is_finished_is_not_run_again_and_what_was_cut_off_is(finished, monkeypatch):
    sweep = finished
    before = {case.label: (case.spec.folder / "rounds.jsonl").read_text() for case in sweep.cases}
    (sweep.cases[2].spec.folder / "finished").unlink()  # as if the process had been killed there
    ran = []
    original = sweeps.compare
    monkeypatch.setattr(sweeps, "compare", lambda spec, *given, **named: ran.append(spec) or original(spec, *given, **named))
    run_sweep(sweep)
    assert ran == [sweep.cases[2].spec]
    assert set(before) == {case.label for case in sweep.cases if is_finished(case.spec)}


def test_other_settings_are_run_again(finished):
    config = finished.folder.parent / "sweep.toml"
    assert all(is_finished(case.spec) for case in read(config).cases)
    assert not any(is_finished(case.spec) for case in read(config, rounds=2).cases)


def test_from_the_command_line(finished, capsys):
    """Of which one case is left to do."""
    (finished.cases[0].spec.folder / "finished").unlink()
    with pytest.raises(SystemExit) as end:
        cli.main(["run", str(finished.folder.parent / "sweep.toml"), "--out", str(finished.folder)])
    assert not end.value.code and is_finished(finished.cases[0].spec)
    assert "rounds / bytes sent per client to a gap of 1e-10" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('dataset = ["digits", "digits"]', "two cases are both called 'digits'"),
        ('cases = ["digits"]', "cases must be tables"),
        ('dataset = ["digits"]\nsplit = ["iid", 3]', "split must be a text"),
    ],
)
def test_bad_sweeps_are_refused_in_words(tmp_path, text, sentence):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        read_sweep(path, {})
