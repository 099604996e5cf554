"""What is written, read back and added up."""

import csv
import io
import json

import numpy as np
import pytest

from fedns.core.errors import DataError
from fedns.core.history import History, Record
from fedns.core.messages.ledger import LedgerEntry
from fedns.core.numbers import bytes_text, rounds_text
from fedns.core.termination import Ending
from fedns.lab.comparison.results import RoundsWriter, read_runs
from fedns.lab.comparison.summary import Spread, cells, notes_on_table, summarise, traffic, write_summary


def record(number, gap, *, sent=1000, **diagnostics):
    return Record(number, 1 + number, 0.5 * number, sent * number, 10 * number, 1.0 + gap, gap, gap, diagnostics)


def history(gaps, ending=Ending.GAP, sent=1000):
    ledger = [LedgerEntry(0, 1, "uplink", "Hi", ("n",), 2, 20)]
    ledger += [LedgerEntry(t, t + 1, "uplink", "Gradient", ("g",), 2, sent) for t in range(1, len(gaps))]
    records = [record(t, gap, sent=sent, decrement=gap) for t, gap in enumerate(gaps)]
    return History("m", records, np.zeros(1), ending, f"{ending.sentence}: ...", ledger)


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def write(folder, runs, *, unfinished=()):
    with (folder / "rounds.jsonl").open("w") as rounds, (folder / "runs.jsonl").open("w") as ends:
        for (method, trial), found in runs.items():
            writer = RoundsWriter(rounds, ends, method, trial)
            for entry in found.records:
                writer.on_round(entry, None)
            if (method, trial) not in unfinished:
                writer.on_end(found)


def test_read_back_as_written(folder):
    found = history([1.0, 1e-7, 1e-11])
    write(folder, {("a", 0): found, ("b", 0): found}, unfinished={("b", 0)})
    first, second = read_runs(folder)
    assert (first.method, first.trial, first.records) == ("a", 0, found.records)
    assert (first.ending, first.stop_reason, first.converged) == (found.ending, found.stop_reason, True)
    assert [(line.kind, line.at_start, line.messages, line.bytes) for line in first.ledger] == [
        ("Hi", True, 2, 20),
        ("Gradient", False, 4, 2000),
    ]
    assert (second.stop_reason, second.converged, second.ending) == ("interrupted", False, Ending.INTERRUPTED)


def test_each_round_is_on_disk_at_once_and_a_torn_line_is_skipped(folder):
    with (folder / "rounds.jsonl").open("w") as rounds:
        RoundsWriter(rounds, io.StringIO(), "a", 0).on_round(record(0, 1.0, odd=float("nan")), None)
        line = json.loads((folder / "rounds.jsonl").read_text())
        assert list(line) == [
            "method", "trial", "round", "exchanges", "seconds", "uplink_bytes", "downlink_bytes", "objective",
            "suboptimality", "gradient_norm", "evaluation_bytes", "odd",
        ]  # fmt: skip
        assert line["odd"] is None
        rounds.write('{"method": "a", "tri')
    (folder / "runs.jsonl").touch()
    (run,) = read_runs(folder)
    assert len(run.records) == 1


def test_a_folder_without_results(tmp_path):
    with pytest.raises(DataError, match="not a folder of results"):
        read_runs(tmp_path)


def test_summary_over_trials(folder):
    slow = history([1.0, 1e-3, 1e-7], Ending.PLATEAU)
    write(folder, {("a", 0): history([1.0, 1e-7, 1e-11]), ("a", 1): slow, ("p", 0): history([1.0, 1e-12], sent=0)})
    runs = read_runs(folder)
    first, pooled = summarise(runs, num_clients=2)
    six, ten = first.targets.values()
    assert six["rounds"] == Spread(1.5, 1, 2, 2)
    assert (ten["rounds"].mean, ten["rounds"].count, ten["uplink_bytes"].mean) == (2, 1, 2000)
    assert ten["uplink_bytes_per_client"].mean == 1000
    assert (first.trials, first.converged, first.endings) == (2, 1, {"converged": 1, "plateau": 1})
    assert first.final_gap == pytest.approx(5.0005e-8)
    assert cells(first) == (
        "a", "1.5 (1-2)", "2 [1/2]", "750 B", "1 kB [1/2]", "1", "5.0e-08", "converged 1/2, plateau 1/2",
    )  # fmt: skip
    assert cells(pooled)[3:5] == ("-", "-")
    assert notes_on_table([first, pooled], 1e-8) == [
        "p: data pooled: nothing is sent",
        "every run stops at a gap of 1e-08 (tol): smaller gaps were not looked for",
        "[3/10] means that 3 of 10 trials got there; the mean is over those",
    ]
    write_summary(folder / "summary.csv", [first, pooled])
    with (folder / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["rounds_to_1e-6_mean"] == "1.5"
    assert rows[0]["trials_to_1e-10"] == "1"
    assert rows[0]["uplink_bytes_per_client_to_1e-10_max"] == "1000.0"
    assert rows[1]["ended"] == "converged 1"


def test_never_reached_is_a_dash(folder):
    write(folder, {("a", 0): history([1.0, 0.5], Ending.DIVERGED)})
    (summary,) = summarise(read_runs(folder), 2)
    assert cells(summary)[1:5] == ("-", "-", "-", "-")
    assert cells(summary)[-1] == "diverged"
    assert notes_on_table([summary], None) == [f"a: {Ending.DIVERGED.sentence}: ..."]


def test_what_left_each_site(folder):
    write(folder, {("a", 0): history([1.0, 0.1, 0.01]), ("a", 1): history([1.0, 0.1])})
    hello, gradient = traffic(read_runs(folder), num_clients=2)
    assert (hello.line.at_start, hello.messages, hello.bytes_per_message, hello.bytes_per_client) == (True, 1, 10, 10)
    assert (gradient.messages, gradient.bytes_per_message, gradient.bytes_per_client) == (1, 500, 750)


def test_numbers_as_people_read_them():
    assert [bytes_text(n) for n in (0, 999, 1000, 77_490, 2.5e9, 3e15)] == [
        "0 B", "999 B", "1 kB", "77.5 kB", "2.5 GB", "3e+03 TB",
    ]  # fmt: skip
    assert [rounds_text(n) for n in (6, 6.24)] == ["6", "6.2"]
