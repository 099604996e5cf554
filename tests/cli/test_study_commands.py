"""The commands of a study, from drafting it to its results."""

from __future__ import annotations

import csv
import json

import pytest

from fedns.cli import main
from fedns.studies.study import Study


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    output = capsys.readouterr()
    return int(ended.value.code or 0), output.out, output.err


@pytest.fixture
def hospitals(tmp_path, capsys):
    assert run(capsys, "study", "example", tmp_path / "hospitals")[0] == 0
    assert run(capsys, "study", "init", tmp_path / "hospitals", "--out", tmp_path / "study.toml")[0] == 0
    return tmp_path


def test_draft_check_fit_look(hospitals, capsys):
    code, out, _ = run(capsys, "check", hospitals / "study.toml", hospitals / "hospitals" / "chur.csv")
    assert code == 0
    assert "chest_pain' category: asymptomatic (" in out and "typical (0" not in out and "decimal comma" in out
    code, out, _ = run(capsys, "fit", hospitals / "study.toml", hospitals / "hospitals", "--out", hospitals / "fit")
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


def test_a_sites_limits_are_asked_too(hospitals, capsys):
    site = hospitals / "site.toml"
    site.write_text('name = "chur"\nengine = "flower"\n[data]\ndataset = "chur.csv"\n', encoding="utf-8")
    words = ("check", hospitals / "study.toml", hospitals / "hospitals" / "aarau.csv", "--site", site)
    code, out, _ = run(capsys, *words)
    assert code == 0 and "what your limits say\n  199 rows, 9 coefficients" in out
    text = (hospitals / "study.toml").read_text(encoding="utf-8")
    spline = text.replace("age +", "bs(age, knots=[50, 60]) +").replace("[columns.age]", "[columns.age]\nrange = [20, 100]")
    (hospitals / "spline.toml").write_text(spline, encoding="utf-8")
    assert run(capsys, "check", hospitals / "spline.toml", *words[2:])[0] == 0
    small = hospitals / "small.csv"
    small.write_text("".join(words[2].read_text(encoding="utf-8").splitlines(keepends=True)[:31]), encoding="utf-8")
    code, out, _ = run(capsys, *words[:2], small, "--site", site)
    assert code == 1 and "hides levels of 'chest_pain' that few of its rows have" in out


def test_one_table_with_a_column_of_sites_gives_the_same(hospitals, capsys):
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
    assert run(capsys, "fit", study, hospitals / "hospitals", "-q", "--out", hospitals / "a")[0] == 0
    words = ("fit", study, hospitals / "all.csv", "--site-column", "hospital", "-q", "--out", hospitals / "b")
    assert run(capsys, *words)[0] == 0
    first, second = ((hospitals / name / "coefficients.csv").read_text(encoding="utf-8") for name in "ab")
    assert first == second


def test_a_table_that_does_not_fit_is_one_sentence_and_an_exit_code(hospitals, capsys):
    table = hospitals / "hospitals" / "davos.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("yes", "Yes"), encoding="utf-8")
    code, out, _ = run(capsys, "check", hospitals / "study.toml", table)
    assert code == 1 and "'Yes' is likely the same as 'yes'" in out
    code, _, err = run(capsys, "fit", hospitals / "study.toml", hospitals / "hospitals", "--out", hospitals / "fit")
    assert code == 2 and "site 'davos'" in err and err.count("\n") == 1
    assert not (hospitals / "fit").exists()


def test_a_draft_does_not_overwrite(hospitals, capsys):
    code, _, err = run(capsys, "study", "init", hospitals / "hospitals", "--out", hospitals / "study.toml")
    assert code == 2 and "is there already" in err


def test_a_federation_for_a_study(hospitals, capsys):
    pytest.importorskip("flwr")
    words = ("init-federation", hospitals / "trial", "--sites", "aarau,basel", "--study")
    code, out, _ = run(capsys, *words, hospitals / "study.toml")
    assert code == 0 and "README.md" in out
    (hospitals / "wrong.toml").write_text('formula = "y ~ x"\nfamily = "gauss"\n', encoding="utf-8")
    code, _, err = run(capsys, *words, hospitals / "wrong.toml")
    assert code == 2 and "did you mean gaussian" in err
