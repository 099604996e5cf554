"""A file in another's place, a path that leads nowhere, an argument out of order: one sentence that names it."""

from __future__ import annotations

import json

import pytest

STUDY = 'formula = "disease ~ age"\nfamily = "binomial"\n[outcome]\nevent = ["yes"]\nnon_event = ["no"]\n'
# Words, and what the sentence says of them.
REFUSED = {
    "fit hospitals study.toml": "hospitals is a folder, where the file of a study is expected: write `fedns fit study.toml ",
    "fit t.csv study.toml": "t.csv is a table, where the file of a study is expected: write `fedns fit study.toml t.csv`",
    "fit t.csv hospitals study.toml": "write `fedns fit study.toml t.csv hospitals`",
    "fit site.toml t.csv": "site.toml is the file of a site, where the file of a study is expected",
    "fit nope.toml hospitals": "nope.toml does not exist",
    "fit study.toml nope": "nope does not exist",
    "fit study.toml study.toml": "study.toml is the file of a study, where a table or a folder of tables is expected",
    "fit study.toml empty": "the folder empty holds no table",
    "fit study.toml --federation nope": "nope does not exist",
    "fit study.toml --federation hospitals": "hospitals is a folder, where the folder of a federation is expected",
    "fit study.toml t.csv --federation trial": "give either tables, or --federation",
    "fit study.toml": "give either tables, or --federation",
    "fit study.toml t.csv --resume": "--resume is for fits over real sites",
    "fit study.toml t.csv --out t.csv": "'t.csv' is a file",
    "study init nope": "nope does not exist",  # though study.toml is there
    "study init study.toml": "study.toml is the file of a study, where a table or a folder of tables is expected",
    "study init hospitals": "study.toml is there already",
    "study init t.csv t.csv --out new.toml": "two tables are called 't'",
    "study init t.csv hospitals --site-column x --out new.toml": "--site-column is for one table",
    "study example t.csv": "'t.csv' is a file",
    "check t.csv study.toml": "where the file of a study is expected: write `fedns check study.toml t.csv`",
    "check study.toml hospitals": "hospitals is a folder, where a table is expected",
    "check study.toml nope.csv": "nope.csv does not exist",
    "check study.toml t.csv --site study.toml": "study.toml is the file of a study, where the file of a site is expected",
    "check study.toml t.csv --site nope.toml": "nope.toml does not exist",
    "predict t.csv model.json": "where the model.json of a fit is expected: write `fedns predict model.json t.csv`",
    "predict nope.json t.csv": "nope.json does not exist",
    "predict study.toml t.csv": "study.toml is the file of a study, where the model.json of a fit is expected",
    "predict model.json t.csv --out t.csv": "t.csv is there already",
    "what-left hospitals": "hospitals is a folder, where the file of a site is expected",
    "what-left nope.toml": "nope.toml does not exist",
    "site study.toml": "study.toml is the file of a study, where the file of a site is expected",
    "site experiment.toml": "is the file of a coordinator's experiment, where the file of a site is expected",
    "site trial": "trial is the folder of a federation, where the file of a site is expected",
    "site nope.toml": "nope.toml does not exist",
    "coordinate site.toml": "site.toml is the file of a site, where the file of a coordinator's experiment is expected",
    "coordinate nope.toml": "nope.toml does not exist",
    "init-federation new --sites a --study t.csv": "t.csv is a table, where the file of a study is expected",
    "init-federation new --sites a --study nope.toml": "nope.toml does not exist",
    "init-federation hospitals --sites a": "holds x.csv and is no federation",
    "init-federation t.csv --sites a": "'t.csv' is a file",
    "init-federation": "Missing argument 'FOLDER'",
    "renew nope": "nope is not where a federation was provisioned",
    "revoke hospitals --site x": "hospitals is not where a federation was provisioned",
    "run t.csv": "t.csv is a table, where the file of a comparison is expected",
    "run study.toml": "study.toml is the file of a study",
    "run nope.toml": "nope.toml does not exist",
    "run broken.toml": "broken.toml' is not TOML",
    "run empty": "empty is a folder",
    "compare hospitals": "unknown data set 'hospitals'",
    "compare nope.csv": "nope.csv does not exist",
    "compare breast_cancer --out t.csv": "'t.csv' is a file",
    "reproduce --out t.csv": "'t.csv' is a file",
    "demo-federation --out hospitals": "hospitals is there and is no earlier demonstration",
    "demo-federation --engine nope --out new": "unknown engine 'nope'",
    "demo-federation --methods nope --out new": "unknown method 'nope'",
    "demo-federation --methods , --out new": "no method was given",
    "demo-federation --sites 0 --out new": "0",
    "data fetch nope": "unknown set of the collection 'nope'",
    "methods --features 0": "features must be a whole number >= 1, got 0",
    "methods --wire x --features 3": "wire precision must be float64 or float32, got 'x'",
    "nope": "No such command 'nope'",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("hospitals", "empty", "trial/coordinator"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("t.csv", "hospitals/x.csv"):
        (tmp_path / name).write_text("age,disease\n1,yes\n2,no\n3,yes\n", encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "site.toml").write_text('name = "x"\nengine = "flower"\n[data]\ndataset = "t.csv"\n', encoding="utf-8")
    (tmp_path / "experiment.toml").write_text('engine = "flower"\nsites = ["x"]\n', encoding="utf-8")
    (tmp_path / "broken.toml").write_text("[", encoding="utf-8")
    (tmp_path / "model.json").write_text(json.dumps({}), encoding="utf-8")
    return tmp_path


def inside(folder):
    return {path.relative_to(folder).as_posix(): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize("words", REFUSED)
def test_one_sentence_names_it_and_nothing_is_written(words, folder, fedns_command):
    before = inside(folder)
    code, out, err = fedns_command(*words.split())
    assert (code, out) == (2, "") and err.startswith("fedns: error: ") and err.count("\n") == 1
    assert REFUSED[words] in err
    assert inside(folder) == before


def test_a_file_of_no_known_kind_is_left_to_its_reader(folder, fedns_command):
    (folder / "short.toml").write_text('family = "binomial"\n', encoding="utf-8")
    code, _, err = fedns_command("fit", "short.toml", "t.csv")
    assert code == 2 and "formula" in err


def test_the_doctor_of_what_is_not_there(folder, fedns_command):
    code, out, _ = fedns_command("doctor", "nope.toml")
    assert code == 1 and out.startswith("FIX  nope.toml can be read: ")
