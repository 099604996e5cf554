"""A folder for compiled kernels in any account."""

import stat
from pathlib import Path

import pytest

from fedns.numerics.cpu import cache

SOURCES = Path(cache.__file__).parent


@pytest.fixture
def homeless(monkeypatch, tmp_path):
    """An account that can write nowhere but among the temporary files."""
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    honest = cache._can_write
    monkeypatch.setattr(cache, "_can_write", lambda folder: folder.is_relative_to(tmp_path) and honest(folder))
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def chosen(monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, "")  # so that it is put back after the test
    cache.choose_cache_folder(SOURCES)
    return cache.os.environ[cache.VARIABLE]


def test_numbas_own_folders_are_left_to_numba(monkeypatch):
    assert chosen(monkeypatch) == ""
    monkeypatch.setenv(cache.VARIABLE, "/somewhere")
    cache.choose_cache_folder(SOURCES)
    assert cache.os.environ[cache.VARIABLE] == "/somewhere"


def test_an_account_without_a_home_gets_a_folder_that_is_its_own(homeless, monkeypatch):
    folder = Path(chosen(monkeypatch))
    assert folder.is_relative_to(homeless) and stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_a_folder_that_others_can_write_is_not_taken(homeless, monkeypatch):
    Path(chosen(monkeypatch)).parent.chmod(0o777)
    with pytest.raises(PermissionError, match="no folder for compiled kernels can be written: set NUMBA_CACHE_DIR to one"):
        chosen(monkeypatch)
