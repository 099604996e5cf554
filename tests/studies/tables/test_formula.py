"""Formulas, compared with formulaic's own reading of them."""

from __future__ import annotations

import pytest

from fedns.core.errors import ConfigError
from fedns.studies.tables.formula import Factor, parse_formula, quoted, term_text
from fedns.studies.tables.transforms import TRANSFORMS


@pytest.mark.parametrize(
    "text",
    [
        "y ~ a", "y ~ a + b", "y ~ a:b", "y ~ a * b", "y ~ a * b * c", "y ~ (a + b) * c", "y ~ a * b - a", "y ~ 0 + a",
        "y ~ a - 1", "y ~ (a + b):(c + d)", "y ~ a + a", "y ~ a:b + b:a", "y ~ 1", "y ~ a * b - a:b + c",
    ],
)  # fmt: skip
def test_terms_are_formulaics(text):
    formulaic = pytest.importorskip("formulaic")
    theirs = {frozenset(term.factors) for term in formulaic.Formula(text).rhs}
    intercept = {factor for factors in theirs if {str(f) for f in factors} == {"1"} for factor in [factors]}
    expected = {frozenset(str(factor) for factor in factors) for factors in theirs - intercept}
    found = parse_formula(text)
    assert {frozenset(factor.text for factor in term) for term in found.terms} == expected
    assert found.intercept == bool(intercept)


def test_functions():
    found = parse_formula(
        "y ~ C(sex) + bs(chol, df=4) + poly(age, 2) + log(t) + bs(x, knots=[3, 1], degree=2) + offset(log(n))"
    )
    assert [term_text(term) for term in found.terms] == [
        "C(sex)", "bs(chol, df=4)", "poly(age, 2)", "log(t)", "bs(x, knots=[1, 3], degree=2)",
    ]  # fmt: skip
    assert found.offset == Factor("n", TRANSFORMS["log"]()) and found.columns == ("sex", "chol", "age", "t", "x", "n")


def test_names_that_are_no_words():
    found = parse_formula("`blood pressure` ~ `chest pain` + age")
    assert found.outcome == "blood pressure" and found.columns == ("chest pain", "age")
    assert quoted("chest pain") == "`chest pain`" and quoted("age") == "age"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y", "'~' was expected, it ends there"),
        ("y ~ a +", "it ends there"),
        ("y ~ __import__('os')", "has no meaning in it"),
        ("y ~ exec(a)", "unknown function 'exec'"),
        ("y ~ y + a", "'y' stands on both sides"),
        ("y ~ 0", "neither a term nor an intercept"),
        ("y ~ poly(a, 9)", "must be 1 to 5"),
        ("y ~ bs(a, df=1)", "df of bs"),
        ("y ~ log(a, 2)", "has no options"),
        ("y ~ offset(a) + offset(b)", "two offsets"),
        ("y ~ " + "(" * 50 + "a" + ")" * 50, "too many parentheses"),
        ("y ~ " + "a" * 5000, "characters"),
        ("y ~ " + "*".join(f"a{number}" for number in range(500)), "more than the 2000 terms"),
        ("y ~ " + ":".join("(" + "+".join("abcdefghij") + ")" for _ in range(90)), "more than the 2000 terms"),
        ("y ~ " + "+".join(f"b{number}*" + "*".join("acdefghij") for number in range(150)), "more than the 2000 terms"),
    ],
)
def test_what_cannot_be_read(text, words):
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        parse_formula(text)
