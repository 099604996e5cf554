"""Every exit status that the documentation promises, and one sentence with it, through the command line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.federation.in_process import run_of
from tests.processes import PATIENCE_SECONDS, family_of, start, wait_until

import fedns
from fedns.cli import federation_commands
from fedns.cli.app import main
from fedns.core.errors import ConfigError
from fedns.core.history import Record
from fedns.core.termination import Ending
from fedns.federation import doctor
from fedns.federation.coordinator.influence import SiteInfluence
from fedns.federation.coordinator.session import Result
from fedns.federation.coordinator.state import DiskError
from fedns.federation.coordinator.watching import SiteStatus
from fedns.federation.processes import EngineLost
from fedns.federation.protocol.absence import FederationError, SiteRefuses
from fedns.lab.comparison.federation_demo import Shown
from fedns.studies.fit import fit_study
from fedns.studies.study import Study

STUDY = 'formula = "disease ~ age + sex"\nfamily = "binomial"\n[outcome]\nevent = ["yes"]\nnon_event = ["no"]\n'
PROMISED = {
    row[0]: row[1]
    for line in (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8").splitlines()
    if (row := [cell.strip() for cell in line.strip("|").split("|")]) and re.fullmatch(r"[0-9, ]+", row[0])
}
ENDINGS = {
    Ending.GAP: 0,
    Ending.GRADIENT: 0,
    Ending.DECREMENT: 0,
    Ending.METHOD: 0,
    Ending.OUT_OF_ROUNDS: 1,
    Ending.AT_OPTIMUM: 1,
    Ending.IMPROVING: 1,
    Ending.PLATEAU: 1,
    Ending.UNSETTLED: 1,
    Ending.STOPPED: 1,
    Ending.INTERRUPTED: 1,
    Ending.STUCK: 1,
    Ending.DIVERGED: 4,
    Ending.SITES_LOST: 5,
    Ending.ENGINE_LOST: 6,
    Ending.REFUSED: 7,
}
RAISED = {
    ConfigError("a setting"): 2,
    FederationError("too few sites"): 5,
    EngineLost("it ended"): 6,
    SiteRefuses("R4"): 7,
    DiskError("its disk is full"): 8,
}


def test_the_table_of_statuses_is_whole():
    assert set(PROMISED) == {"0", "1", "2", "3", "4", "5", "6", "7", "8", "130, 143"}
    assert set(ENDINGS) == set(Ending)


@pytest.fixture
def coordinated(tmp_path, monkeypatch, fedns_command):
    """`fedns coordinate` of a run that ends as told, or raises."""
    (tmp_path / "experiment.toml").write_text('engine = "flower"\nsites = ["north", "south"]\n', encoding="utf-8")
    spec = run_of("gd", 2, home=tmp_path, out="run")
    monkeypatch.setattr(federation_commands, "read_experiment", lambda path: spec)
    monkeypatch.setattr(federation_commands, "open_transport", lambda spec, logs: contextlib.nullcontext())
    monkeypatch.setattr(federation_commands, "write_report", lambda spec, result: tmp_path / "report.html")

    def call(outcome, *, decides=False, blanked=0, quiet=False):
        def coordinate(*_, **__):
            if isinstance(outcome, BaseException):
                raise outcome
            record = Record(1, 2, 0.1, 8, 8, 0.5, None, 1e-3)
            history = fedns.History("gd", [record], np.zeros(3), outcome, "why it ended", [])
            influence = SiteInfluence("north", 0.9, named="moves a coefficient" if decides else "")
            return Result(history, [SiteStatus("north", blanked_columns=blanked), SiteStatus("south")], [influence])

        monkeypatch.setattr(federation_commands, "coordinate", coordinate)
        return fedns_command("coordinate", tmp_path / "experiment.toml", *(["-q"] if quiet else []))

    return call


@pytest.mark.parametrize("ending", ENDINGS)
def test_how_a_run_over_sites_ends(ending, coordinated):
    code, out, _ = coordinated(ending)
    assert code == ENDINGS[ending] and "why it ended" in out and "report: " in out
    assert coordinated(ending, quiet=True)[:2] == (ENDINGS[ending], "")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_site_that_decides_is_status_3_unless_worse_befell(ending, coordinated):
    code, out, _ = coordinated(ending, decides=True)
    assert code == (ENDINGS[ending] if ENDINGS[ending] >= 4 else 3) and "it decides this model" in out


def test_an_answer_that_is_not_quite_the_pooled_one_is_no_convergence(coordinated):
    code, out, _ = coordinated(Ending.GRADIENT, blanked=2)
    assert code == 1 and "not quite the pooled one" in out
    assert coordinated(Ending.DIVERGED, blanked=2)[0] == 4 and coordinated(Ending.GRADIENT, decides=True, blanked=2)[0] == 3


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_what_cannot_go_on_is_one_sentence_and_its_status(error, coordinated):
    assert coordinated(error) == (RAISED[error], "", f"fedns: error: {error}\n")


def test_signals(coordinated):
    assert coordinated(KeyboardInterrupt()) == (130, "", "fedns: interrupted\n")
    assert coordinated(SystemExit(143))[0] == 143


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_a_fit_over_sites_ends_with_the_same(error, coordinated, tmp_path, monkeypatch, fedns_command):
    (tmp_path / "trial" / "coordinator").mkdir(parents=True)
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")

    def fit(*_, **__):
        raise error

    monkeypatch.setattr(federation_commands, "fit_federation", fit)
    found = fedns_command("fit", tmp_path / "study.toml", "--federation", tmp_path / "trial", "--out", tmp_path / "out")
    assert found == (RAISED[error], "", f"fedns: error: {error}\n")


def test_a_fit_over_sites_that_is_not_quite_the_pooled_answer(coordinated, hospitals, monkeypatch, fedns_command):
    (hospitals / "trial" / "coordinator").mkdir(parents=True)
    tables = {path.stem: path for path in (hospitals / "hospitals").glob("*.csv")}
    (hospitals / "study.toml").write_text(STUDY, encoding="utf-8")
    fit = fit_study(Study.read(hospitals / "study.toml"), tables)
    words = ("fit", hospitals / "study.toml", "--federation", hospitals / "trial", "--out")
    for caveats, status in (((), 0), (("not quite the pooled one",), 1)):
        monkeypatch.setattr(federation_commands, "fit_federation", lambda *_, **__: replace(fit, caveats=caveats))  # noqa: B023
        code, out, _ = fedns_command(*words, hospitals / f"out{status}")
        assert code == status and bool(caveats) == ("note: not quite the pooled one" in out)
        page = (hospitals / f"out{status}" / "report.html").read_text(encoding="utf-8")
        assert ("<li>not quite the pooled one</li>" in page) == bool(caveats)


def test_a_fit_on_this_machine(hospitals, fedns_command):
    study, tables = hospitals / "study.toml", hospitals / "hospitals"
    study.write_text(STUDY, encoding="utf-8")
    assert fedns_command("fit", study, tables, "-q", "--out", hospitals / "a") == (0, "", "")
    study.write_text(f"{STUDY}[fit]\nrounds = 1\n", encoding="utf-8")
    code, out, _ = fedns_command("fit", study, tables, "--out", hospitals / "b")
    assert code == 1 and "not converged: " in out and (hospitals / "b" / "report.html").is_file()
    assert fedns_command("fit", study, tables, "-q", "--out", hospitals / "c")[:2] == (1, "")
    study.write_text(STUDY.replace('"disease ~ age + sex"', '"disease ~ age + disease_again"'), encoding="utf-8")
    assert fedns_command("fit", study, tables, "--out", hospitals / "d")[0] == 2  # no such column
    assert not (hospitals / "d").exists()


def test_a_separated_outcome_is_refused_with_status_2(tmp_path, fedns_command):
    rows = [f"{(7 * x) % 80},{'yes' if (7 * x) % 80 > 40 else 'no'}" for x in range(80)]
    (tmp_path / "t.csv").write_text("age,disease\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY.replace(" + sex", ""), encoding="utf-8")
    code, out, err = fedns_command("fit", tmp_path / "study.toml", tmp_path / "t.csv", "--out", tmp_path / "out")
    assert (code, out) == (2, "") and "separate" in err and err.count("\n") == 1


def test_a_kind_of_standard_errors_that_there_is_not_is_refused_before_the_fit(hospitals, fedns_command, monkeypatch):
    monkeypatch.setattr("fedns.studies.fit.fit_study", None)  # a call would fail
    words = ("fit", hospitals / "study.toml", hospitals / "hospitals", "--out", hospitals / "out", "--standard-errors")
    code, _, err = fedns_command(*words, "HC9")
    assert code == 2 and "unknown kind of standard errors 'HC9'" in err


def test_rows_that_are_refused_and_tables_that_do_not_fit_are_status_1(hospitals, fedns_command):
    study, tables = hospitals / "study.toml", hospitals / "hospitals"
    study.write_text(STUDY, encoding="utf-8")
    assert fedns_command("fit", study, tables, "-q", "--out", hospitals / "fit")[0] == 0
    new = hospitals / "new.csv"
    predict = ("predict", hospitals / "fit" / "model.json", new, "--overwrite", "--out", hospitals / "p.csv")
    new.write_text("age,sex\n50,male\n60,female\n", encoding="utf-8")
    code, out, _ = fedns_command(*predict)
    assert code == 0 and "sex  reference: female" in out and "2 of 2 rows predicted" in out
    new.write_text("age,sex\n50,male\n60,other\n", encoding="utf-8")
    code, out, _ = fedns_command(*predict)
    assert code == 1 and "row 2: 'sex' has the level 'other'" in out and "1 of 2 rows predicted" in out
    assert fedns_command("check", study, tables / "basel.csv")[0] == 0
    table = tables / "basel.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("yes", "Yes"), encoding="utf-8")
    code, out, _ = fedns_command("check", study, table)
    assert code == 1 and "in the way" in out and "fits the study" not in out


@pytest.mark.parametrize(
    ("faults", "status"), [([], 0), (["OK"], 0), (["WAIT"], 0), (["OK", "WAIT", "FIX"], 1), (["FIX", "OK"], 1)]
)
def test_the_doctor_asks_for_nothing_that_comes_by_itself(faults, status, monkeypatch, fedns_command):
    made = {"OK": doctor.Finding("a"), "WAIT": doctor.Finding("b", "why", waits=True), "FIX": doctor.Finding("c", "why")}
    monkeypatch.setattr(doctor, "examine", lambda *_: [made[fault] for fault in faults])
    code, out, _ = fedns_command("doctor", "site.toml")
    shown = {"OK": "OK   a", "WAIT": "WAIT b: why", "FIX": "FIX  c: why"}
    assert (code, out.splitlines()) == (status, [shown[fault] for fault in faults])


@pytest.mark.parametrize(("bits", "bytes_", "status"), [(True, True, 0), (False, True, 1), (True, False, 1)])
def test_a_demonstration_that_shows_something_else_is_status_1(bits, bytes_, status, monkeypatch, fedns_command, tmp_path):
    history = fedns.History("gd", [Record(1, 2, 0.1, 8, 8, 0.5, None, 1e-3)], np.zeros(3), Ending.GRADIENT, "why", [])
    good = Shown("gd", Result(history, []), tmp_path / "report.html", True, True)
    shown = [replace(good, same_bits=bits, same_bytes=bytes_), good]
    monkeypatch.setattr(federation_commands, "run_demo", lambda demo, watching: shown)
    code, out, _ = fedns_command("demo-federation", "--out", tmp_path / "demo")
    assert code == status and ("DIFFERENT" in out) == bool(status)


def test_what_nobody_foresaw_is_a_traceback_without_any_value(tmp_path, monkeypatch, capsys):
    """A traceback that shows local variables would put rows of a site on its screen and into its log."""
    secret = "Jane Doe, 61"

    def of_a_row(*_, **__):
        row = {"name": secret}
        return 1 / (len(row) - 1)

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which the command line may replace
    monkeypatch.setattr("fedns.studies.checking.check_table", of_a_row)
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "t.csv").write_text("age,sex,disease\n1,a,yes\n2,b,no\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError) as ended:
        main(["check", str(tmp_path / "study.toml"), str(tmp_path / "t.csv")])
    sys.excepthook(ended.type, ended.value, ended.tb)
    told = capsys.readouterr().err
    assert "in of_a_row" in told and told.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert secret not in told


# By command, what is interrupted, and its words.
INTERRUPTED = {
    "compare": (("compare", "breast_cancer", "--out", "out"), "lab.comparison.prepare.load_data", " before the first round"),
    "reproduce": (
        ("reproduce", "--quick", "--out", "out"), "lab.paper.command.run_all", "; the same command goes on from here",
    ),
    "sweep": (
        ("run", "sweep.toml", "--out", "out"), "lab.comparison.sweep.run_tasks", "; the same command goes on from here",
    ),
    "run": (("run", "run.toml", "--out", "out"), "lab.comparison.prepare.load_data", " before the first round"),
    "fit": (("fit", "study.toml", "t.csv", "--out", "out"), "studies.fit.fit_study", ""),
    "init": (("study", "init", "t.csv", "--out", "s.toml"), "studies.draft.draft_study", ""),
    "check": (("check", "study.toml", "t.csv"), "studies.checking.check_table", ""),
    "predict": (("predict", "model.json", "t.csv"), "studies.prediction.Model.load", ""),
    "coordinate": (("coordinate", "experiment.toml"), "cli.federation_commands.read_experiment", ""),
    "site": (("site", "site.toml"), "federation.site_command.run_site", ""),
    "demo": (("demo-federation", "--out", "out"), "cli.federation_commands.run_demo", ""),
    "doctor": (("doctor", "site.toml"), "federation.doctor.examine", ""),
    "fetch": (("data", "fetch", "phishing"), "lab.data.collection.fetch.fetch", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", INTERRUPTED)
def test_ctrl_c_is_one_sentence_and_status_130(name, tmp_path, monkeypatch, fedns_command):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY, encoding="utf-8")
    Path("t.csv").write_text("age,sex,disease\n1,a,yes\n2,b,no\n", encoding="utf-8")
    Path("model.json").write_text("{}", encoding="utf-8")
    Path("site.toml").write_text('name = "north"\nengine = "flower"\n[data]\ndataset = "t.csv"\n', encoding="utf-8")
    Path("experiment.toml").write_text('engine = "flower"\nsites = ["north"]\n', encoding="utf-8")
    Path("run.toml").write_text('dataset = "breast_cancer"\n', encoding="utf-8")
    Path("sweep.toml").write_text('dataset = ["breast_cancer", "digits"]\n', encoding="utf-8")
    words, place, said = INTERRUPTED[name]

    def pressed(*_, **__):
        if name == "reproduce":  # which asks whether it came to its end
            return False
        raise KeyboardInterrupt

    monkeypatch.setattr(f"fedns.{place}", pressed)
    code, _, err = fedns_command(*words)
    # Of the reproduction also how long it takes, and which data sets are not here.
    own = [line for line in err.splitlines() if "expected to take" not in line and "is left out" not in line]
    assert code == 130 and own == [f"fedns: interrupted{said}"]


WORKERS = """
import sys, time
from pathlib import Path
from fedns.lab.comparison.workers import Task, run_tasks

def work(say):
    return 1

if __name__ == "__mp_main__":  # a process that was started, in the middle of what it imports
    Path(sys.argv[1], f"here-{time.time_ns()}").touch()
    time.sleep(600)

if __name__ == "__main__":
    try:
        list(run_tasks([Task("a", work), Task("b", work)], lambda task, text: None, 2))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def test_processes_that_are_just_being_started_do_not_speak_of_a_ctrl_c(tmp_path):
    (tmp_path / "workers.py").write_text(WORKERS, encoding="utf-8")
    words = [sys.executable, tmp_path / "workers.py", tmp_path]
    process = start(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(lambda: len(list(tmp_path.glob("here-*"))) == 2, "both processes import")
        for pid in reversed(family_of(process.pid)):  # the children first: their words are looked for
            os.kill(pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "")


def test_ctrl_c_while_the_command_line_itself_is_imported():
    code = (
        "import sys, fedns.cli\n"
        "class Pressed:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'fedns.cli.app': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "fedns.cli.main(['--version'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fedns: interrupted\n")


def test_ctrl_c_in_the_middle_of_code_that_was_made_as_a_text_is_status_130_too(tmp_path):
    """As where a dataclass is made: Python would end by the signal, which a shell tells as no status of ours."""
    (tmp_path / "pressed.py").write_text(
        "from fedns.cli import app\napp.app = lambda *words, **settings: exec('raise KeyboardInterrupt')\napp.main([])\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "-m", "pressed"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "fedns: interrupted\n")
