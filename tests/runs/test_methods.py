"""Methods from text."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from fedns.core.algorithm import Algorithm, Outcome
from fedns.core.errors import ConfigError
from fedns.methods import METHODS
from fedns.methods.searches import ArmijoSearch, LocalSearch
from fedns.runs.methods import alternatives, parameters, parse_method, parse_methods
from fedns.sketches import SJLT, SRHT, Sketch


@dataclass(frozen=True)
class Made(Algorithm):
    """A method that this package knows nothing of."""

    whole: int
    real: float = 0.5
    flag: bool = False
    word: str = "a"
    choice: Literal["left", "right"] = "left"
    limit: int | None = None
    sketch: Sketch | None = None

    name: ClassVar[str] = "made"

    def handlers(self):
        return ()

    def round(self, problem, state, cohort):
        return Outcome(state)


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr("fedns.runs.methods.METHODS", {**METHODS, "made": Made})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_asked_for_by_name_alone(name):
    method = parse_method(name, "sjlt", 5)
    assert type(method.algorithm) is METHODS[name]
    assert method.label == name
    if hasattr(method.algorithm, "sketch"):
        assert method.algorithm.sketch == SJLT(5)


@pytest.mark.parametrize("name", METHODS)
def test_every_default_can_be_typed(name):
    plain = [p for p in parameters(METHODS[name]) if p.default and not p.only_for]
    text = f"{name}:" + ";".join(f"{p.name}={p.default}" for p in plain)
    assert parse_method(text).algorithm == METHODS[name]()


def test_sketches_are_set_per_method():
    texts = ["fedns", "fedns:sketch=sjlt;nonzeros=2", "fedns:sketch_size=8;line_search=aggregate", "fednewton"]
    methods = parse_methods(texts, "srht", 17)
    assert [m.label for m in methods] == texts
    assert methods[0].algorithm.sketch == SRHT(17)
    assert methods[1].algorithm.sketch == SJLT(17, 2)
    assert methods[2].algorithm.sketch == SRHT(8)
    assert methods[2].algorithm.line_search == ArmijoSearch()


def test_a_line_search_is_a_word_and_its_own_parameters_beside_it():
    def search(text):
        return parse_method(text).algorithm.line_search

    assert search("fedns") is None is search("newtonsketch:line_search=none") is search("fedns:armijo_slope=0.2")
    assert search("fedns:line_search=local;backtrack_factor=0.7") == LocalSearch(0.1, 0.7)
    assert search("giant:armijo_slope=0.2;trials=3") == search("gd:armijo_slope=0.2;trials=3") == ArmijoSearch(0.2, 0.5, 3)
    assert search("newtonsketch") == search("newtonsketch:line_search=aggregate") == ArmijoSearch()


def test_any_dataclass_of_the_usual_types(made):
    method = parse_method("made: whole=3; real=1e-3; flag=yes; word=b; choice=right; limit=4; sketch=srht; sketch_size=2")
    assert method.algorithm == Made(3, 1e-3, True, "b", "right", 4, SRHT(2))
    assert parse_method("made:whole=1;limit=none").algorithm == Made(1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fednss", "unknown method 'fednss': did you mean fedns"),
        ("fedns:stepsize=1", "unknown parameter of method 'fedns' 'stepsize': did you mean step_size"),
        ("fedns:step_size", "must have the form parameter=value"),
        ("fedns:step_size=1;step_size=2", "given twice"),
        ("fedns:step_size=big", "step_size must be a number, got 'big'"),
        ("fedns:sketch=shrt", "unknown sketch 'shrt': did you mean srht"),
        ("fedns:sketch_size=0", "size of SRHT must be a whole number >= 1, got 0"),
        ("fedns:sketch_size=1.5", "sketch_size must be a whole number, got '1.5'"),
        ("fedns:nonzeros=2", "unknown parameter of method 'fedns' 'nonzeros'"),
        ("fedns:line_search=maybe", "unknown line search 'maybe': known are none, aggregate, local"),
        ("giant:line_search=local", "unknown line search 'local': known are none, aggregate"),
        (
            "fedns:line_search=local;backtrack_factor=1",
            "backtrack_factor of LocalSearch must be a finite number > 0 and < 1, got 1",
        ),
        ("fednewton:sketch=srht", "unknown parameter of method 'fednewton' 'sketch'"),
        ("made", "needs a value for 'whole'"),
        ("made:whole=1;choice=up", "choice must be left or right, got 'up'"),
        ("made:whole=1;flag=maybe", "flag must be true or false, got 'maybe'"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(made, text, sentence):
    with pytest.raises(ConfigError) as caught:
        parse_method(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lists_are_neither_empty_nor_repetitive():
    with pytest.raises(ConfigError, match="no method was given"):
        parse_methods([])
    with pytest.raises(ConfigError, match="'fedns' is given twice"):
        parse_methods(["fedns", "fedns "])


def test_alternatives_are_multiplied_out():
    assert alternatives(" fedns ") == ["fedns"]
    assert alternatives("fedns:sketch=srht|sjlt;sketch_size=4|8") == [
        "fedns:sketch=srht;sketch_size=4", "fedns:sketch=srht;sketch_size=8",
        "fedns:sketch=sjlt;sketch_size=4", "fedns:sketch=sjlt;sketch_size=8",
    ]  # fmt: skip
    assert alternatives("fedns:aggregation=sum") == ["fedns:aggregation=sum"]
