"""A folder for compiled kernels in any account."""

import os
import stat
from pathlib import Path

import pytest

from fedns.numerics import cache

SOURCES = Path(cache.__file__).parent / "cpu"
SENTENCE = "no folder for compiled kernels can be written: set NUMBA_CACHE_DIR to one"


@pytest.fixture
def places(monkeypatch, tmp_path):
    """A home and a folder for temporary files: an account that can write nowhere else."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    honest = cache._can_write
    monkeypatch.setattr(cache, "_can_write", lambda folder: folder.is_relative_to(tmp_path) and honest(folder))
    return tmp_path


def chosen(monkeypatch, sources=SOURCES):
    monkeypatch.setenv(cache.VARIABLE, "")  # so that it is put back after the test
    cache.choose_cache_folder(sources)
    return Path(cache.os.environ[cache.VARIABLE])


def take_away(folder):
    """A file where the folder would be: nothing can be written there, not by the superuser either."""
    folder.write_text("", encoding="utf-8")


def test_numbas_own_folders_are_left_to_numba(monkeypatch):
    assert chosen(monkeypatch) == Path()
    monkeypatch.setenv(cache.VARIABLE, "/somewhere")
    cache.choose_cache_folder(SOURCES)
    assert cache.os.environ[cache.VARIABLE] == "/somewhere"


def test_kernels_of_read_only_packages_are_kept_in_the_users_cache(places, monkeypatch):
    assert chosen(monkeypatch).is_relative_to(places / "home" / ".cache")


def test_an_account_without_a_home_gets_a_folder_that_is_its_own(places, monkeypatch):
    take_away(places / "home")
    folder = chosen(monkeypatch)
    assert folder.is_relative_to(places / "temporary") and stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_each_version_of_the_sources_has_a_folder(places, monkeypatch, tmp_path):
    sources = tmp_path / "numerics" / "cpu"
    sources.mkdir(parents=True)
    take_away(sources / "__pycache__")
    (sources / "kernels.py").write_text("a = 1", encoding="utf-8")
    facts, before = (sources / "kernels.py").stat(), chosen(monkeypatch, sources)
    assert chosen(monkeypatch, sources) == before
    (sources / "kernels.py").write_text("a = 2", encoding="utf-8")
    os.utime(sources / "kernels.py", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert chosen(monkeypatch, sources) != before


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_is_not_taken(places, monkeypatch, mode):
    take_away(places / "home")
    chosen(monkeypatch).parent.chmod(mode)
    with pytest.raises(PermissionError, match=SENTENCE):
        chosen(monkeypatch)


def test_an_account_that_can_write_nowhere_is_told_so(places, monkeypatch):
    for name in ("home", "temporary"):
        take_away(places / name)
    with pytest.raises(PermissionError, match=SENTENCE):
        chosen(monkeypatch)
