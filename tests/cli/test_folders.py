"""Folders of results: a second run never mixes with the first, and nobody's files are lost."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from fedns.core.errors import ConfigError
from fedns.federation.provision import init_federation
from fedns.runs.results import LIST_FILE, Results

COMPARE = ("compare", "breast_cancer", "--methods", "newton", "--clients", "3", "--trials", "1", "--rounds", "2")
STUDY = 'formula = "disease ~ age + sex"\nfamily = "binomial"\n[outcome]\nevent = ["yes"]\nnon_event = ["no"]\n'
ONE_SENTENCE = ("fedns: error: ", 1)


def shape(err):
    return err[: len("fedns: error: ")], err.count("\n")


@pytest.fixture
def two_hospitals(hospitals):
    """The study with two of the four tables in two/, which a fit of all four has more pages than."""
    (hospitals / "two").mkdir()
    for name in ("aarau", "basel"):
        shutil.copy(hospitals / "hospitals" / f"{name}.csv", hospitals / "two")
    (hospitals / "study.toml").write_text(STUDY, encoding="utf-8")
    return hospitals


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_second_fit_is_refused_before_it_begins_and_with_overwrite_replaces_the_first(two_hospitals, fedns_command):
    study, out = two_hospitals / "study.toml", two_hospitals / "out"
    assert fedns_command("fit", study, two_hospitals / "hospitals", "-q", "--out", out)[0] == 0
    assert (out / "what-left" / "davos.html").is_file()
    first = (out / "model.json").read_bytes()
    (out / "notes.txt").write_text("mine")
    (out / "what-left" / "mine.html").write_text("mine")
    code, _, err = fedns_command("fit", study, two_hospitals / "two", "-q", "--out", out)
    assert code == 2 and shape(err) == ONE_SENTENCE and "--overwrite" in err and str(out) in err
    assert (out / "model.json").read_bytes() == first
    assert fedns_command("fit", study, two_hospitals / "two", "-q", "--out", out, "--overwrite")[0] == 0
    ours = {"coefficients.csv", "model.json", "report.html", "what-left.html"}
    pages = {"what-left/aarau.html", "what-left/basel.html"}
    assert files(out) == ours | pages | {"notes.txt", "what-left/mine.html", LIST_FILE}
    sites = json.loads((out / "model.json").read_text())["provenance"]["sites"]
    assert [site["name"] for site in sites] == ["aarau", "basel"]


def test_a_fit_that_fails_leaves_the_one_before(two_hospitals, fedns_command):
    study, out = two_hospitals / "study.toml", two_hospitals / "out"
    assert fedns_command("fit", study, two_hospitals / "two", "-q", "--out", out)[0] == 0
    before = {name: (out / name).read_bytes() for name in files(out)}
    table = two_hospitals / "two" / "basel.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("yes", "Yes"), encoding="utf-8")
    assert fedns_command("fit", study, two_hospitals / "two", "-q", "--out", out, "--overwrite")[0] == 2
    assert {name: (out / name).read_bytes() for name in files(out)} == before


@pytest.mark.parametrize("flag", [(), ("--overwrite",)])
def test_what_we_did_not_write_is_not_overwritten_either(flag, two_hospitals, fedns_command):
    out = two_hospitals / "out"
    out.mkdir()
    (out / "report.html").write_text("mine")
    code, _, err = fedns_command("fit", two_hospitals / "study.toml", two_hospitals / "two", "-q", "--out", out, *flag)
    assert code == 2 and shape(err) == ONE_SENTENCE and "report.html is there already" in err
    assert (out / "report.html").read_text() == "mine" and files(out) == {"report.html"}


@pytest.fixture
def without_figures(monkeypatch):
    """They are most of the time of a small comparison; that they are replaced too is tried in tests/lab/comparison."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_a_comparison_too(tmp_path, fedns_command, without_figures):
    out = tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    (out / "gap_notes.png").write_text("mine")
    assert fedns_command(*COMPARE, "-q", "--out", out)[0] == 0
    first = (out / "summary.csv").read_bytes()
    code, _, err = fedns_command(*COMPARE, "-q", "--out", out)
    assert code == 2 and shape(err) == ONE_SENTENCE and "--overwrite" in err
    assert (out / "summary.csv").read_bytes() == first
    assert fedns_command(*COMPARE, "--methods", "gd", "-q", "--out", out, "--overwrite")[0] == 0
    assert "\ngd," in (out / "summary.csv").read_text() and (out / "gap_notes.png").read_text() == "mine"
    config = tmp_path / "c.toml"
    config.write_text('dataset = "breast_cancer"\nmethods = ["newton"]\nclients = 3\ntrials = 1\nrounds = 2\n')
    assert fedns_command("run", config, "-q", "--out", out)[0] == 2
    assert fedns_command("run", config, "-q", "--out", out, "--overwrite")[0] == 0
    assert "\nnewton," in (out / "summary.csv").read_text()


def test_a_sweep_goes_on_and_with_other_settings_asks(tmp_path, fedns_command, without_figures):
    config = tmp_path / "c.toml"
    text = 'dataset = "breast_cancer"\nmethods = ["newton"]\nclients = [3]\ntrials = 1\nrounds = {}\n'
    config.write_text(text.format(2))
    out = tmp_path / "out"
    assert fedns_command("run", config, "-q", "--out", out)[0] == 0
    assert fedns_command("run", config, "-q", "--out", out)[0] == 0  # finished before
    config.write_text(text.format(3))
    code, _, err = fedns_command("run", config, "-q", "--out", out)
    assert code == 2 and shape(err) == ONE_SENTENCE and "--overwrite" in err
    assert fedns_command("run", config, "-q", "--out", out, "--overwrite")[0] == 0


def test_predictions_and_example_tables_too(two_hospitals, fedns_command):
    out, table = two_hospitals / "out", two_hospitals / "two" / "aarau.csv"
    assert fedns_command("fit", two_hospitals / "study.toml", two_hospitals / "two", "-q", "--out", out)[0] == 0
    predict = ("predict", out / "model.json", table, "--out")
    assert fedns_command(*predict, two_hospitals / "p.csv")[0] == 0
    assert fedns_command(*predict, two_hospitals / "q.csv")[0] == 0
    code, _, err = fedns_command(*predict, two_hospitals / "p.csv")
    assert code == 2 and shape(err) == ONE_SENTENCE and "--overwrite" in err
    assert fedns_command(*predict, two_hospitals / "p.csv", "--overwrite")[0] == 0
    before = table.read_bytes()
    assert fedns_command(*predict, table, "--overwrite")[0] == 2 and table.read_bytes() == before
    edited = two_hospitals / "hospitals" / "basel.csv"
    edited.write_text("mine")
    code, _, err = fedns_command("study", "example", two_hospitals / "hospitals")
    assert code == 2 and shape(err) == ONE_SENTENCE and edited.read_text() == "mine"
    assert fedns_command("study", "example", two_hospitals / "hospitals", "--overwrite")[0] == 0


def test_pages_of_what_left_leave_a_fit_beside_them_alone(two_hospitals, fedns_command):
    site = two_hospitals / "site.toml"
    site.write_text('name = "aarau"\nengine = "flower"\n[data]\ndataset = "two/aarau.csv"\n', encoding="utf-8")
    (two_hospitals / "state").mkdir()
    line = {"direction": "uplink", "kind": "Registration", "purpose": "register", "fields": {}, "bytes": 1}
    (two_hospitals / "state" / "ledger.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    out = two_hospitals / "out"
    assert fedns_command("what-left", site, "--out", out)[0] == 0
    code, _, err = fedns_command("what-left", site, "--out", out)
    assert code == 2 and shape(err) == ONE_SENTENCE and "--overwrite" in err
    assert fedns_command("what-left", site, "--out", out, "--overwrite")[0] == 0
    fit = two_hospitals / "fit"
    assert fedns_command("fit", two_hospitals / "study.toml", two_hospitals / "two", "-q", "--out", fit)[0] == 0
    before = {name: (fit / name).read_bytes() for name in files(fit)}
    assert fedns_command("what-left", site, "--out", fit, "--overwrite")[0] == 2
    assert {name: (fit / name).read_bytes() for name in files(fit)} == before


@pytest.mark.parametrize("listed", ['{"fit": ["../secret.txt"]}', '{"fit": ["/etc/hostname"]}', "[1]", "{", '{"fit": 3}'])
def test_a_list_that_was_tampered_with_removes_nothing_outside(listed, tmp_path):
    (tmp_path / "secret.txt").write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / LIST_FILE).write_text(listed)
    Results(out, "fit").begin(["model.json"])
    assert (tmp_path / "secret.txt").read_text() == "mine"


def test_a_killed_writer_leaves_no_file_without_an_owner(tmp_path):
    """Names are in the list before the first of them is a file."""
    results = Results(tmp_path, "fit")
    results.begin(["a.txt", "pages/b.html"])
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "b.html").write_text("half")
    with pytest.raises(ConfigError, match=r"pages/b\.html of an earlier fit"):
        Results(tmp_path, "fit").refuse([], overwrite=False)
    Results(tmp_path, "fit").begin([])
    assert not (tmp_path / "pages").exists()


def test_keys_are_written_into_an_empty_folder_or_a_federation_alone(tmp_path, hospitals, fedns_command):
    pytest.importorskip("flwr")
    tables = hospitals / "hospitals"
    before = files(tables)
    code, _, err = fedns_command("init-federation", tables, "--sites", "aarau,basel")
    assert code == 2 and shape(err) == ONE_SENTENCE and "davos.csv" in err and "empty" in err
    assert files(tables) == before
    (tmp_path / "empty").mkdir()
    assert fedns_command("init-federation", tmp_path / "empty", "--sites", "aarau,basel")[0] == 0
    (tmp_path / "empty" / "notes.txt").write_text("who to phone")
    assert fedns_command("init-federation", tmp_path / "empty", "--sites", "aarau,basel,chur")[0] == 0
    file = tmp_path / "file"
    file.write_text("mine")
    code, _, err = fedns_command("init-federation", file, "--sites", "aarau")
    assert code == 2 and shape(err) == ONE_SENTENCE and file.read_text() == "mine"


def test_what_an_interrupted_start_of_a_federation_left_can_be_gone_on_with(tmp_path):
    pytest.importorskip("cryptography")
    (tmp_path / "f" / "authority").mkdir(parents=True)
    init_federation(tmp_path / "f", "flower", ["north"], "localhost:9092")
    assert (tmp_path / "f" / "sites" / "north" / "site.toml").is_file()
