"""How much memory rows may take."""

import pytest

from fedns.numerics import memory
from fedns.numerics.errors import BackendError


def test_the_variable_decides(monkeypatch):
    monkeypatch.setenv(memory.VARIABLE, "1.5")
    with memory.limited(None):
        assert memory.room() == 1_500_000_000


@pytest.mark.parametrize("text", ["much", "-1", "nan"])
def test_a_variable_that_is_no_size_is_refused(monkeypatch, text):
    monkeypatch.setenv(memory.VARIABLE, text)
    with memory.limited(None), pytest.raises(BackendError, match=r"number of gigabytes above 0, got"):
        memory.room()


def test_half_of_the_smallest_limit(monkeypatch):
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    monkeypatch.setattr(memory, "_limits", lambda: iter([8000, 6000]))
    with memory.limited(None):
        assert memory.room() == 3000


def test_groups_of_both_versions_and_those_around_them(tmp_path):
    for place, text in {"app/part/memory.max": "max", "app/memory.max": "4096"}.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(f"{text}\n")
    (tmp_path / "memory" / "job").mkdir(parents=True)
    (tmp_path / "memory" / "job" / "memory.limit_in_bytes").write_text("512\n")
    own = tmp_path / "cgroup"
    own.write_text("4:memory:/job\n3:cpu:/job\n0::/app/part\n")
    assert list(memory._group_limits(own, tmp_path)) == [512, 4096]
    assert list(memory._group_limits(tmp_path / "none", tmp_path)) == []
