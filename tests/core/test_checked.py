"""Values from files as the types of their fields."""

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

import pytest

from fedns.core.checked import Checked, Count, Known, Unset, described, filled, sentence_of, typed, unset_of
from fedns.core.errors import ConfigError
from fedns.runs.compare import Compare
from fedns.runs.over_sites import ColumnRun, Handshake, StudyRun


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


@dataclass(frozen=True)
class Described(Checked):
    """Settings."""

    is_settings: ClassVar[bool] = True
    kind: Annotated[str, Known(("linear", "cubic")), "Shape of the curve."] = "linear"
    device: Annotated[Annotated[str, Known(lambda: ("cpu", "cuda"))] | None, "Where.", Unset("cpu")] = None
    degree: Annotated[Count | None, "At most this."] = None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "cubik"}, "unknown kind 'cubik': did you mean cubic? Known are linear, cubic"),
        ({"kind": 3}, "kind must be a text, got 3"),
        ({"device": "cude"}, "unknown device 'cude': did you mean cuda or cpu? Known are cpu, cuda"),
        ({"degree": 0}, "degree must be a whole number >= 1 or None, got 0"),
    ],
)
def test_what_stands_beside_a_type_decides_what_a_value_may_be(settings, sentence):
    assert Described(device="cuda", degree=2, kind="cubic")
    with pytest.raises(ConfigError) as refused:
        Described(**settings)
    assert str(refused.value) == sentence


def test_a_setting_says_what_it_is_in_one_place():
    assert [sentence_of(Described, name) for name in ("kind", "device", "degree")] == [
        "Shape of the curve.", "Where.", "At most this.",
    ]  # fmt: skip
    assert [unset_of(Described, name) for name in ("kind", "device", "degree")] == [None, "cpu", None]
    assert described(Described).__doc__ == (
        "Settings.\n\n- kind: Shape of the curve.\n- device: Where.\n- degree: At most this."
    )


@pytest.mark.parametrize("kind", [Compare, ColumnRun, Handshake, StudyRun])
def test_every_setting_of_a_run_has_a_sentence(kind):
    assert [one.name for one in fields(kind) if not sentence_of(kind, one.name)] in ([], ["home"])
