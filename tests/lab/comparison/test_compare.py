"""A comparison from settings to files."""

import json

import numpy as np
import pytest

import fedns
from fedns.core.errors import ConfigError, DataError
from fedns.lab.comparison import compare as compare_module
from fedns.lab.comparison import prepare
from fedns.lab.comparison.compare import compare
from fedns.lab.comparison.display import Display
from fedns.lab.comparison.report import write_outputs
from fedns.lab.comparison.results import read_runs
from fedns.lab.data.catalogue import BUILT_IN_SHAPES
from fedns.runs.compare import Compare
from fedns.runs.methods import parse_methods
from fedns.runs.results import LIST_FILE
from fedns.sketches import DEFAULT_SIZE

KEYS = [
    "method", "trial", "round", "exchanges", "seconds", "uplink_bytes", "downlink_bytes", "objective", "suboptimality",
    "gradient_norm", "evaluation_bytes",
]  # fmt: skip
DIAGNOSTICS = {
    "newton": ["newton_decrement", "step_size"],
    "fedns": ["newton_decrement", "step_size"],
    "fedndes": ["newton_decrement", "sketch_size", "step_size"],
}


def small(folder, **changes):
    settings = {
        "methods": ("newton", "fedns", "fedndes"), "clients": 5, "scale": "standardise", "sketch_size": 24, "trials": 2,
        "rounds": 25, "out": str(folder), "seed": 3,
    }  # fmt: skip
    return Compare("breast_cancer", **settings | changes)


def lines(folder):
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    comparison = compare(small(folder))
    return comparison, write_outputs(comparison)


def test_every_promised_file(finished):
    comparison, outputs = finished
    names = {path.name for path in comparison.folder.iterdir()}
    figures = {f"gap_{against}.{kind}" for against in ("rounds", "bytes", "seconds") for kind in ("png", "svg", "pdf")}
    assert names == {"rounds.jsonl", "runs.jsonl", "summary.csv", "report.html", "settings.toml", LIST_FILE} | figures
    assert outputs.warnings == []
    assert all(path.stat().st_size > 0 for path in comparison.folder.iterdir())


def test_one_line_per_method_trial_and_round_with_the_promised_keys(finished):
    comparison, _ = finished
    found = lines(comparison.folder)
    for line in found:
        assert list(line) == KEYS + (DIAGNOSTICS[line["method"]] if line["round"] else [])
    for run in comparison.runs:
        own = [line["round"] for line in found if (line["method"], line["trial"]) == (run.method, run.trial)]
        assert own == list(range(len(own)))
    assert {(run.method, run.trial) for run in comparison.runs} == {(m, t) for m in DIAGNOSTICS for t in (0, 1)}


def test_methods_converge_and_pooled_ones_send_nothing(finished):
    comparison, outputs = finished
    by_name = {summary.method: summary for summary in outputs.summaries}
    assert all(summary.converged == 2 for summary in outputs.summaries)
    assert by_name["newton"].sends_nothing
    assert not by_name["fedns"].sends_nothing
    assert "newton: data pooled: nothing is sent" in outputs.notes
    assert comparison.num_clients == 5


def test_the_same_seed_gives_the_same_numbers(finished, tmp_path):
    again = compare(Compare.from_toml(finished[0].folder / "settings.toml", {"out": str(tmp_path), "threads": 1}))
    assert [run.stop_reason for run in again.runs] == [run.stop_reason for run in finished[0].runs]
    for before, after in zip(lines(finished[0].folder), lines(tmp_path), strict=True):
        assert {k: v for k, v in before.items() if k != "seconds"} == {k: v for k, v in after.items() if k != "seconds"}


def test_trials_differ(finished):
    gaps = {
        (line["method"], line["trial"]): line["suboptimality"] for line in lines(finished[0].folder) if line["round"] == 2
    }
    assert gaps["fedns", 0] != gaps["fedns", 1]


def test_scaling_says_what_each_site_sent(finished):
    scaling = finished[0].facts["scaling"]
    assert scaling.startswith("standardise; each site sends")
    assert "91 numbers, 728 bytes" in scaling


def test_a_large_sketch_is_pointed_out(tmp_path):
    comparison = compare(
        small(tmp_path, methods=("fedns:sketch_size=15", "fedns:sketch_size=16", "fedndes:sketch_size=9"), trials=1)
    )
    assert [note.split(" is ")[0] for note in comparison.notes] == [
        "fedns:sketch_size=16: a sketch of 16 rows", "fedndes:sketch_size=9: a sketch of 18 rows",
    ]  # fmt: skip
    assert "480 numbers, more than the 465 of the packed Hessian (M = 30)" in comparison.notes[0]


class StopsIn(Display):
    """Presses Ctrl-C in a trial's round."""

    def __init__(self, method, trial, number):
        self.at = (method, trial, number)

    def moved(self, method, trial, record):
        if (method, trial, record.round) == self.at:
            raise KeyboardInterrupt


def test_an_interrupted_run_keeps_its_rounds(finished, tmp_path):
    comparison = compare(small(tmp_path), StopsIn("fedns", 1, 3))
    outputs = write_outputs(comparison)
    assert comparison.interrupted
    assert [(run.method, run.trial, run.ending.label) for run in comparison.runs] == [
        ("newton", 0, "converged"), ("fedns", 0, "converged"), ("fedndes", 0, "converged"),
        ("newton", 1, "converged"), ("fedns", 1, "interrupted"),
    ]  # fmt: skip
    assert comparison.runs[-1].last.round == 3
    whole = lines(finished[0].folder)
    for kept, expected in zip(lines(tmp_path), whole[: len(lines(tmp_path))], strict=True):
        assert kept["suboptimality"] == expected["suboptimality"]
    assert "This run was interrupted" in outputs.report.read_text()


def test_a_folder_is_cleaned_of_earlier_results_only(tmp_path):
    write_outputs(compare(small(tmp_path, methods=("newton",), trials=1, rounds=2)))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "gap_notes.png").write_text("mine")
    assert {"report.html", "gap_rounds.png", "gap_rounds.pdf"} <= {path.name for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=r"of an earlier comparison: .* --overwrite"):
        compare(small(tmp_path, methods=("newton",), trials=1))
    compare(small(tmp_path, methods=("newton",), trials=1), overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == (tmp_path / "gap_notes.png").read_text() == "mine"
    assert not (tmp_path / "report.html").exists()
    assert not (tmp_path / "gap_rounds.png").exists()
    assert not (tmp_path / "gap_rounds.pdf").exists()
    assert len(read_runs(tmp_path)) == 1


def test_nothing_is_removed_when_the_data_are_wrong(tmp_path):
    compare(small(tmp_path, methods=("newton",), trials=1, rounds=2))
    before = (tmp_path / "rounds.jsonl").read_text()
    with pytest.raises(DataError, match="569 rows for 600 clients"):
        compare(small(tmp_path, clients=600), overwrite=True)
    assert (tmp_path / "rounds.jsonl").read_text() == before


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(ConfigError, match="is a file: choose another folder"):
        compare(small(tmp_path / "taken"))


def test_regression_weights_groups_and_an_intercept(tmp_path):
    draw = np.random.default_rng(0)
    x, site = draw.normal(size=(60, 2)), np.repeat(["north", "south", "west"], 20)
    y = 1 + x @ [1.0, -2.0] + 0.1 * draw.normal(size=60)
    rows = [f"{a},{b},{t},{s},{1 + i % 3}" for i, ((a, b), t, s) in enumerate(zip(x, y, site, strict=True))]
    (tmp_path / "plots.csv").write_text("a,b,yield,site,w\n" + "\n".join(rows) + "\n")
    spec = Compare(
        str(tmp_path / "plots.csv"), ("fednewton", "fedns"), target="yield", group="site", weight="w", split="group",
        intercept=True, wire="float32", trials=2, rounds=20, participation=1.0, out=str(tmp_path / "out"),
    )  # fmt: skip
    comparison = compare(spec)
    assert comparison.num_clients == 3
    facts = comparison.facts
    assert facts["coefficients (M)"] == "3, one the intercept"
    assert facts["targets"].startswith("numbers, mean")
    assert facts["sample weights"] == "column 'w'"
    assert comparison.runs[0].converged


def test_the_warm_up_has_as_many_clients_as_the_run_and_few_rows(tmp_path, monkeypatch):
    """`auto` and others choose by the number of clients, so fewer would leave kernels to be compiled on the clock."""
    played, simulate = [], compare_module.simulate
    monkeypatch.setattr(
        compare_module, "simulate", lambda *args, **options: played.append(args[2]) or simulate(*args, **options)
    )
    compare(small(tmp_path, methods=("auto",), clients=20, trials=1, rounds=3))
    warm_up, run = played
    assert warm_up.num_clients == run.num_clients == 20
    assert warm_up.num_samples <= compare_module.WARM_UP_ROWS < run.num_samples


@pytest.mark.parametrize("split", ["iid", "sorted"])
@pytest.mark.parametrize("name", BUILT_IN_SHAPES)
def test_methods_that_are_named_without_settings_converge_on_every_data_set_that_is_here(name, split):
    spec = Compare(dataset=name, split=split)
    assert spec.sketch_size == DEFAULT_SIZE == fedns.FedNS().sketch.size == fedns.FedNDES().sketch.size
    dataset, problem = prepare.load_data(spec)
    trial = prepare.prepare_trial(spec, problem, prepare.split_and_scale(spec, dataset, 0), 0)
    for method in parse_methods(("fedns", "fedndes")):
        kept = {"rounds": spec.rounds, "tol": spec.tol, "optimum": trial.optimum}
        history = fedns.simulate(method.algorithm, problem, trial.shards, **kept)
        assert history.converged, f"{method.label}: {history.stop_reason}"
