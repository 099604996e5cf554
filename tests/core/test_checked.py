"""Values from files as the types of their fields."""

from dataclasses import dataclass

import pytest

from fedns.core.checked import filled, typed
from fedns.core.errors import ConfigError


@dataclass(frozen=True)
class Table:
    name: str
    size: int | None = None
    share: float = 0.5
    words: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (float, 3, 3.0),
        (float | None, None, None),
        (int | None, 4, 4),
        (tuple[str, ...], ["a", "b"], ("a", "b")),
        (tuple[str, ...] | None, None, None),
        (bool, True, True),
    ],
)
def test_a_value_of_the_right_kind(hint, value, expected):
    read = typed("key", hint, value)
    assert read == expected and type(read) is type(expected)


@pytest.mark.parametrize(
    ("hint", "value", "sentence"),
    [
        (int, True, "key must be a whole number, got True"),
        (int, 2.0, "key must be a whole number, got 2.0"),
        (int, None, "key must be a whole number, got None"),
        (float, "1", "key must be a number, got '1'"),
        (bool, 1, "key must be true or false, got 1"),
        (int | str, 1.5, "key must be a whole number or a text, got 1.5"),
        (tuple[str, ...], "a", "key must be a list of texts, got 'a'"),
    ],
)
def test_a_value_of_another_kind(hint, value, sentence):
    with pytest.raises(ConfigError) as refused:
        typed("key", hint, value)
    assert str(refused.value) == sentence


def test_a_whole_number_that_no_float_can_hold():
    with pytest.raises(ConfigError, match="key must be a number, got 1000"):
        typed("key", float, 10**400)


@pytest.mark.parametrize(
    ("values", "options", "sentence"),
    [
        ({}, {}, "FILE lacks 'name'"),
        ({}, {"required": ("size",)}, "FILE lacks 'name' and 'size'"),
        ([], {}, "FILE must be a table"),
        ({"name": "a", "sise": 1}, {}, "FILE: unknown setting 'sise': did you mean size"),
        ({"name": "a", "size": 1}, {"known": ("name",)}, "FILE: unknown setting 'size'"),
        ({"name": "a", "share": "b"}, {}, "FILE: share must be a number, got 'b'"),
        ({"size": 1}, {"name": "given", "known": ("share",)}, "FILE: unknown setting 'size'"),
    ],
)
def test_a_table_that_does_not_fit_is_one_sentence(values, options, sentence):
    with pytest.raises(ConfigError) as refused:
        filled(Table, "FILE", values, **options)
    assert str(refused.value).startswith(sentence)


def test_a_table_that_fits():
    assert filled(Table, "FILE", {"share": 1, "words": ["a"]}, name="given") == Table("given", None, 1.0, ("a",))
