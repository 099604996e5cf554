"""The study as a value, a file and a digest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedns.core.errors import ConfigError
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

FULL = """
title = "Heart"
formula = "disease ~ age + C(grade) + chol"
family = "binomial"
missing = "complete"
weights = "w"

[outcome]
event = [1, "yes", true]
non_event = 0

[columns.age]
unit = "years"
range = [18, 110]

[columns.grade]
levels = [1, 2, 3]
reference = 2

[columns.chol]
missing_codes = [0, -999]
differs_at = ["south"]

[penalty]
strength = 0.5
[penalty.terms]
"age" = 0.1

[fit]
method = "fednewton"
tolerance = 1e-6
rounds = 7
aliased = "refuse"

[policy]
absent = "wait"
"""


def test_everything_in_the_file_is_in_the_value_and_in_the_digest(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(FULL, encoding="utf-8")
    study = Study.read(path)
    assert study.event == ("1", "yes", "true") and study.non_event == ("0",)
    assert study.rule("grade") == ColumnRule(levels=("1", "2", "3"), reference="2")
    assert (study.strength_of("age"), study.strength_of("chol")) == (0.1, 0.5)
    assert Study.from_json(study.to_json()) == study
    for change in ({"rounds": 8}, {"title": "x"}, {"columns": {}}, {"strengths": {}}, {"policy": {}}, {"missing": "mean"}):
        assert replace(study, **change).digest != study.digest


def test_the_digest_does_not_depend_on_the_order_of_the_file(tmp_path):
    one, two = tmp_path / "1.toml", tmp_path / "2.toml"
    one.write_text(
        'family = "gaussian"\nformula = "y ~ x"\n[columns.x]\nunit = "m"\n[columns.y]\nunit = "s"\n', encoding="utf-8"
    )
    two.write_text(
        'formula = "y ~ x"\nfamily = "gaussian"\n[columns.y]\nunit = "s"\n[columns.x]\nunit = "m"\n', encoding="utf-8"
    )
    assert Study.read(one).digest == Study.read(two).digest


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('family = "gaussian"', "has no formula"),
        ('formula = "y ~ x"\nfamily = "gaussian"\nmethd = 1', "unknown setting 'methd'"),
        ('formula = "y ~ x"\nfamily = "gaussian"\n[fit]\nround = 1', "did you mean rounds"),
        ('formula = "y ~ x"\nfamily = "gaussian"\n[columns.x]\nrange = [2, 1]', r"range must be \[lowest, highest\]"),
        ('formula = "y ~ x"\nfamily = "gaussian"\n[columns.x]\nlevels = ["a"]\nreference = "b"', "not among its levels"),
        ('formula = "y ~ x"\nfamily = "gaussian"\n[penalty]\nstrength = -1', "must be a number >= 0"),
        ('formula = "y ~ x"\nfamily = "gaussian"\n[penalty.terms]\nz = 1', "unknown penalised term 'z'"),
        ('formula = "y ~ bs(x, df=4)"\nfamily = "gaussian"', "needs the range of 'x'"),
        ('formula = "y ~ x"\nfamily = "gaussian"\nweights = "x"', "a column has one role"),
        ('formula = "y ~ x"\nfamily = "gaussian"\n[outcome]\nevent = 1\nnon_event = 0', "belong to family binomial"),
        ('formula = "y ~ x"\nfamily = "binomial"\n[outcome]\nevent = 1\nnon_event = 1', "as event and as non-event"),
        ('formula = "y ~ x + C(x)"\nfamily = "gaussian"', "a category in one term and not in another"),
        ("formula = 1\nfamily = 2", "must be a text"),
    ],
)
def test_whatever_is_wrong_is_one_sentence(tmp_path, text, words):
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        Study.read(path)


def test_a_notebook_shows_the_settings():
    study = Study("y ~ x", "gaussian", title="<b>bold</b>")
    shown = study._repr_html_()
    assert "y ~ x" in shown and "&lt;b&gt;bold" in shown and study.digest in shown
