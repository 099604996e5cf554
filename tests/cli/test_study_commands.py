"""The commands of a study, from drafting it to its results."""

from __future__ import annotations

import csv
import json

import pytest

from fedns.studies.study import Study


def test_draft_check_fit_look(hospitals, fedns_command):
    code, out, _ = fedns_command("check", hospitals / "study.toml", hospitals / "hospitals" / "chur.csv")
    assert code == 0
    assert "chest_pain' category: asymptomatic (" in out and "typical (0" not in out and "decimal comma" in out
    code, out, _ = fedns_command("fit", hospitals / "study.toml", hospitals / "hospitals", "--out", hospitals / "fit")
    assert code == 0 and "chest_pain[typical]" in out and "converged: Newton decrement" in out
    model = json.loads((hospitals / "fit" / "model.json").read_text(encoding="utf-8"))
    study = Study.read(hospitals / "study.toml")
    assert model["study_digest"] == study.digest and Study.from_dict(model["study"]) == study
    with (hospitals / "fit" / "coefficients.csv").open(encoding="utf-8") as file:
        lines = {line["name"]: line for line in csv.DictReader(file)}
    assert float(lines["chest_pain[typical]"]["coefficient"]) == model["coefficients"]["chest_pain[typical]"]
    assert (lines["chest_pain[typical]"]["term"], lines["chest_pain[typical]"]["level"]) == ("chest_pain", "typical")
    page = (hospitals / "fit" / "report.html").read_text(encoding="utf-8")
    assert "<h1>disease ~ age" in page and "chest_pain[typical]" in page and study.digest in page


def test_a_fit_that_has_not_converged_says_so_first(hospitals, fedns_command):
    text = (hospitals / "study.toml").read_text(encoding="utf-8")
    (hospitals / "short.toml").write_text(text.replace("rounds = 50", "rounds = 1"), encoding="utf-8")
    command = ("fit", hospitals / "short.toml", hospitals / "hospitals", "--out")
    code, out, _ = fedns_command(*command, hospitals / "first")
    assert code == 1 and out.startswith("not converged: used all 1 rounds\n") and "log-likelihood" not in out
    new = (
        "predict",
        hospitals / "first" / "model.json",
        hospitals / "hospitals" / "chur.csv",
        "--out",
        hospitals / "new.csv",
    )
    assert fedns_command(*new)[1].startswith("the model's fit has not converged: used all 1 rounds\n")
    code, out, _ = fedns_command(*command, hospitals / "second", "--unconverged")
    assert code == 1 and out.startswith("not converged: used all 1 rounds\n") and "log-likelihood" in out


def test_a_sites_limits_are_asked_too(hospitals, fedns_command):
    site = hospitals / "site.toml"
    site.write_text('name = "chur"\nengine = "flower"\n[data]\ndataset = "chur.csv"\n', encoding="utf-8")
    words = ("check", hospitals / "study.toml", hospitals / "hospitals" / "aarau.csv", "--site", site)
    code, out, _ = fedns_command(*words)
    assert code == 0 and "what your limits say\n  199 rows, 9 coefficients" in out
    text = (hospitals / "study.toml").read_text(encoding="utf-8")
    spline = text.replace("age +", "bs(age, knots=[50, 60]) +").replace("[columns.age]", "[columns.age]\nrange = [20, 100]")
    (hospitals / "spline.toml").write_text(spline, encoding="utf-8")
    assert fedns_command("check", hospitals / "spline.toml", *words[2:])[0] == 0
    small = hospitals / "small.csv"
    small.write_text("".join(words[2].read_text(encoding="utf-8").splitlines(keepends=True)[:31]), encoding="utf-8")
    code, out, _ = fedns_command(*words[:2], small, "--site", site)
    assert code == 1 and "hides levels of 'chest_pain' that few of its rows have" in out


def test_one_table_with_a_column_of_sites_gives_the_same(hospitals, fedns_command):
    paths = sorted((hospitals / "hospitals").glob("*.csv"))
    with (hospitals / "all.csv").open("w", encoding="utf-8", newline="") as file:
        out = None
        for path in paths:
            text = path.read_text(encoding="utf-8")
            rows = list(csv.DictReader(text.splitlines(), delimiter=";" if ";" in text else ","))
            out = out or csv.DictWriter(file, ["hospital", *rows[0]])
            if path == paths[0]:
                out.writeheader()
            for row in rows:
                out.writerow({"hospital": path.stem} | {name: cell.replace(",", ".") for name, cell in row.items()})
    study = hospitals / "study.toml"
    assert fedns_command("fit", study, hospitals / "hospitals", "-q", "--out", hospitals / "a")[0] == 0
    words = ("fit", study, hospitals / "all.csv", "--site-column", "hospital", "-q", "--out", hospitals / "b")
    assert fedns_command(*words)[0] == 0
    first, second = ((hospitals / name / "coefficients.csv").read_text(encoding="utf-8") for name in "ab")
    assert first == second


def test_a_table_that_does_not_fit_is_one_sentence_and_an_exit_code(hospitals, fedns_command):
    table = hospitals / "hospitals" / "davos.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("yes", "Yes"), encoding="utf-8")
    code, out, _ = fedns_command("check", hospitals / "study.toml", table)
    assert code == 1 and "'Yes' is likely the same as 'yes'" in out
    code, _, err = fedns_command("fit", hospitals / "study.toml", hospitals / "hospitals", "--out", hospitals / "fit")
    assert code == 2 and "site 'davos'" in err and err.count("\n") == 1
    assert not (hospitals / "fit").exists()


def test_a_draft_does_not_overwrite(hospitals, fedns_command):
    code, _, err = fedns_command("study", "init", hospitals / "hospitals", "--out", hospitals / "study.toml")
    assert code == 2 and "is there already" in err


def test_a_federation_for_a_study(hospitals, fedns_command):
    pytest.importorskip("flwr")
    words = ("init-federation", hospitals / "trial", "--sites", "aarau,basel", "--study")
    code, out, _ = fedns_command(*words, hospitals / "study.toml")
    assert code == 0 and "README.md" in out
    (hospitals / "wrong.toml").write_text('formula = "y ~ x"\nfamily = "gauss"\n', encoding="utf-8")
    code, _, err = fedns_command(*words, hospitals / "wrong.toml")
    assert code == 2 and "did you mean gaussian" in err


def test_a_study_that_cannot_be_written_is_not_said_to_be(hospitals, fedns_command):
    code, out, err = fedns_command("study", "init", hospitals / "hospitals", "--out", hospitals / "study.toml" / "new.toml")
    assert (code, out) == (2, "") and err.startswith("fedns: error: cannot use") and err.count("\n") == 1
