"""A registry over entry points that are really there: folders with a dist-info, as an installer leaves them."""

import sys
from typing import ClassVar

import pytest

from fedns.core.errors import ConfigError
from fedns.core.registry import Registry


class Thing:
    name: ClassVar[str]


class Own(Thing):
    name = "own"


SOURCE = """
from fedns.core.registry import Registry
from tests.core.test_registry import Thing

class Good(Thing):
    name = "good"

class Own(Thing):
    name = "own"

number = 3
"""


@pytest.fixture
def things(tmp_path, monkeypatch):
    """A registry with one thing of its own, and packages outside as given: {package: entry points}."""

    def install(**packages):
        for package, entries in packages.items():
            (tmp_path / f"{package}.py").write_text(SOURCE)
            info = tmp_path / f"{package}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
            (info / "entry_points.txt").write_text(f"[fedns.tests]\n{lines}")
        return Registry("thing", "fedns.tests", Thing, (Own,))

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    for module in [name for name in sys.modules if name.startswith("stranger_")]:
        del sys.modules[module]


def test_a_package_outside_adds_to_our_own_and_is_imported_when_it_is_needed(things):
    registry = things(stranger_a={"good": "stranger_a:Good"})
    assert "good" in registry and "bad" not in registry and "stranger_a" not in sys.modules
    assert registry["own"] is Own and "stranger_a" not in sys.modules
    assert list(registry) == ["own", "good"] and len(registry) == 2
    assert registry["good"] is sys.modules["stranger_a"].Good is registry.get("good")
    with pytest.raises(KeyError):
        registry["bad"]
    assert registry.get("bad") is None


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("lost", "stranger_b.lost:Good", "cannot be imported: ModuleNotFoundError: No module named 'stranger_b.lost'"),
        ("lost", "stranger_b:Lost", "cannot be imported: AttributeError: module 'stranger_b' has no attribute 'Lost'"),
        ("number", "stranger_b:number", "must be a Thing, but stranger_b:number is 3"),
        ("path", "pathlib:Path", "must be a Thing, but pathlib:Path is <class 'pathlib"),
        ("other", "stranger_b:Good", "must be registered by its own name, 'good'"),
    ],
)
def test_a_broken_package_is_named_in_one_sentence_and_breaks_nothing_else(name, value, sentence, things, caplog):
    registry = things(stranger_b={name: value}, stranger_c={"good": "stranger_c:Good"})
    assert registry["own"] is Own
    for _ in range(2):
        with pytest.raises(ConfigError) as failure:
            registry[name]
        message = str(failure.value)
        assert message.startswith(f"thing '{name}' of the package stranger_b ") and sentence in message
        assert "\n" not in message
        assert list(registry) == ["own", "good"]
        assert name in registry  # so that who asks for it hears the sentence, not that it is unknown
    assert [record.getMessage() for record in caplog.records] == [message]


def test_our_names_cannot_be_taken(things, caplog):
    registry = things(stranger_d={"own": "stranger_d:Own"})
    assert dict(registry) == {"own": Own}
    assert [r.getMessage() for r in caplog.records] == [
        "thing 'own' of the package stranger_d is left out: the name is taken"
    ]
