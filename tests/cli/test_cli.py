"""The command line, as a person uses it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.processes import PATIENCE_SECONDS, start, wait_until
from typer.testing import CliRunner

import fedns
from fedns.cli import app as cli

ROOT = Path(__file__).parents[2]
SMALL = ["--clients", "5", "--scale", "standardise", "--sketch-size", "8", "--trials", "2", "--rounds", "12"]


def command(*words, folder=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "fedns.cli", *words], capture_output=True, text=True, cwd=folder, check=False,
        env=os.environ | environment,
    )  # fmt: skip


def call(capsys, *words):
    """The command line in this process: exit code, output, errors."""
    with pytest.raises(SystemExit) as end:
        cli.main(list(words))
    captured = capsys.readouterr()
    return end.value.code or 0, captured.out, captured.err


def test_help_does_not_load_what_it_does_not_need():
    heavy = "('numpy', 'numba', 'scipy', 'sklearn', 'matplotlib')"
    code = f"import sys, fedns.cli; loaded = [m for m in {heavy} if m in sys.modules]; sys.exit(','.join(loaded) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_and_version():
    runner = CliRunner()
    assert runner.invoke(cli.app, ["--version"]).output == f"fedns {fedns.__version__}\n"
    top = runner.invoke(cli.app, ["--help"])
    assert top.exit_code == 0
    assert all(name in top.output for name in ("datasets", "methods", "compare", "run"))
    assert "completion" not in top.output  # nobody asked for a command that writes into a shell's start-up files
    flags = runner.invoke(cli.app, ["compare", "--help"]).output
    for flag in (
        "methods",
        "clients",
        "split",
        "sketch",
        "sketch-size",
        "strength",
        "rounds",
        "tol",
        "trials",
        "seed",
        "out",
    ):
        assert f"--{flag} " in flags


def test_datasets(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNS_DATA", str(tmp_path))
    np.savez(tmp_path / "ours.npz", X=np.eye(4), y=np.array([0, 1, 0, 1]))
    code, out, _ = call(capsys, "datasets")
    assert code == 0
    assert re.search(r"breast_cancer +569 +30 +binary", out)
    assert re.search(r"ours +4 +4 +binary", out)


def test_methods(capsys):
    code, out, _ = call(capsys, "methods")
    assert code == 0
    for name, kind in fedns.METHODS.items():
        assert re.search(rf"^{name}  ", out, re.MULTILINE)
        assert kind.uplink in out
    assert "sketch=srht; sketch_size=32; nonzeros=1 (sjlt only); step_size=1" in out


def test_compare_prints_the_table_and_says_where_the_report_is(capsys, tmp_path):
    out = tmp_path / "out"
    code, shown, err = call(capsys, "compare", "breast_cancer", "--methods", "newton,fedns", *SMALL, "--out", str(out))
    assert code == 0
    assert "breast_cancer: 569 x 30, 5 clients (iid), 2 trials" in shown
    assert re.search(r"newton +\d+ +\d+ +- +-", shown)
    assert "newton: data pooled: nothing is sent" in shown
    assert f"report: {out / 'report.html'}" in shown
    assert "trial 2/2: newton" in err
    again = ("compare", "breast_cancer", "--methods", "newton", *SMALL, "--out", str(out), "--quiet", "--overwrite")
    code, shown, err = call(capsys, *again)
    assert (code, shown, err) == (0, "", "")


def test_run_is_compare_from_a_file_and_flags_override(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = str(ROOT / "configs" / "breast_cancer.toml")
    code, shown, _ = call(capsys, "run", config, "--trials", "1", "--methods", "fednewton", "--clients", "3")
    assert code == 0
    assert "3 clients (iid), 1 trial" in shown
    assert (tmp_path / "runs/breast_cancer/report.html").is_file()


def test_without_matplotlib_everything_else_is_written(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = call(capsys, "compare", "breast_cancer", "--methods", "newton", *SMALL, "--out", str(tmp_path))
    assert code == 0
    assert "figures need matplotlib" in err
    assert {"rounds.jsonl", "summary.csv", "report.html"} <= {path.name for path in tmp_path.iterdir()}
    assert not list(tmp_path.glob("*.png"))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder of files that cannot be used."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDNS_DATA", raising=False)
    (tmp_path / "three.csv").write_text("a,b,y\n" + "".join(f"{i},1,{'xyz'[i % 3]}\n" for i in range(9)))
    (tmp_path / "hole.csv").write_text("age,dose,y\n1,2,0\n3,,1\n5,6,0\n")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "empty.libsvm").touch()
    (tmp_path / "torn.libsvm").write_text("+1 1:0.5 2:1\n-1 1:2\n+1 1:0.5 2:\n")
    return tmp_path


BAD = {
    "unknown data set": (["nosuch"], "unknown data set 'nosuch'"),
    "data set misspelt": (["breast_cancr"], "did you mean breast_cancer"),
    "unknown method": (["breast_cancer", "--methods", "fednss"], "unknown method 'fednss': did you mean fedns"),
    "more clients than rows": (["breast_cancer", "--clients", "570"], "569 rows for 570 clients"),
    "sketch size 0": (["breast_cancer", "--sketch-size", "0"], "sketch_size must be a whole number >= 1, got 0"),
    "labels not two-valued": (["three.csv", "--target", "y"], "3 labels ('x', 'y', 'z')"),
    "NaN in a column": (["hole.csv", "--target", "y", "--clients", "2"], "column 'dose' has 1 missing"),
    "an empty file": (["empty.csv", "--target", "y"], "empty"),
    "an empty LIBSVM file": (["empty.libsvm"], "empty"),
    "a truncated LIBSVM line": (["torn.libsvm", "--clients", "2"], "line 3"),
    "no such file": (["none.csv"], "none.csv"),
    "not a number": (["breast_cancer", "--clients", "many"], "'many' is not a valid integer"),
    "not a flag": (["breast_cancer", "--client", "3"], "No such option"),
    "no sites": (["breast_cancer", "--split", "group"], "no natural sites"),
    "unknown split": (["breast_cancer", "--split", "idd"], "unknown split 'idd'"),
    "negative strength": (["breast_cancer", "--strength", "-1"], "strength must be a finite number >= 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(files, capsys, name):
    words, sentence = BAD[name]
    code, out, err = call(capsys, "compare", *words, "--quiet")
    assert code == 2
    assert out == ""
    assert err.startswith("fedns: error: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_bad_input_of_a_real_process(files):
    done = command("compare", "hole.csv", "--target", "y", "--clients", "2", folder=files)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("fedns: error: column 'dose' has 1 missing")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif("FEDNS_DATA" not in os.environ, reason="needs the archives in FEDNS_DATA")
def test_missing_values_of_a_real_study_are_named(capsys, tmp_path):
    code, _, err = call(capsys, "compare", "heart_4sites_raw", "--split", "group", "--out", str(tmp_path / "out"))
    assert code == 2
    assert "column 'trestbps' has 59 missing or infinite values (and 9 more columns)" in err


def test_ctrl_c_keeps_what_was_finished(tmp_path):
    out = tmp_path / "out"
    words = ["compare", "breast_cancer", "--methods", "fednewton,fedns", *SMALL, "--trials", "100000", "--out", str(out)]
    process = start([sys.executable, "-m", "fedns.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    runs = out / "runs.jsonl"
    try:
        wait_until(lambda: runs.is_file() and runs.read_text().count("\n") > 4, "five runs have ended")
        process.send_signal(signal.SIGINT)
        shown, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert ", interrupted" in shown
    assert "fednewton" in shown
    finished = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert {line["method"] for line in finished} == {"fednewton", "fedns"}
    assert "This run was interrupted" in (out / "report.html").read_text()


def test_ctrl_c_before_the_first_round(capsys, tmp_path, monkeypatch):
    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedns.lab.comparison.prepare.load_data", pressed)
    code, _, err = call(capsys, "compare", "breast_cancer", "--out", str(tmp_path / "out"))
    assert code == 130
    assert err == "fedns: interrupted before the first round\n"


def test_the_quickstart_runs():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/quickstart.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "reached the tolerance 1e-10" in done.stdout
