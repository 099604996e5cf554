"""Tests leave nothing in the home of whoever runs them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import HOME, left_at


def test_a_home_of_its_own_for_this_process_and_those_it_starts(pytestconfig):
    home = pytestconfig.stash[HOME]
    told = subprocess.run(
        [sys.executable, "-c", "import pathlib; print(pathlib.Path.home())"], capture_output=True, text=True, check=True
    )
    assert Path(told.stdout.strip()) == Path.home() == Path("~").expanduser() == home
    assert not any(home.iterdir())
    assert not Path(os.environ["XDG_CACHE_HOME"]).is_relative_to(home)


def test_what_is_left_is_named_and_taken_away(tmp_path):
    home = tmp_path / "home"
    (home / ".fedns/keys").mkdir(parents=True)
    (home / ".fedns/keys/site.key").write_text("secret")
    assert left_at(home) == [".fedns", ".fedns/keys", ".fedns/keys/site.key"]
    assert left_at(home) == []
