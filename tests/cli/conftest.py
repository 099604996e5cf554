"""The command line in this process, and four hospitals to use it on."""

from __future__ import annotations

import pytest

from fedns.cli import main


@pytest.fixture
def fedns_command(capsys):
    """Run a command: exit status, output, errors."""

    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def hospitals(tmp_path, fedns_command):
    """A folder with the tables in hospitals/ and the study in study.toml."""
    assert fedns_command("study", "example", tmp_path / "hospitals")[0] == 0
    assert fedns_command("study", "init", tmp_path / "hospitals", "--out", tmp_path / "study.toml")[0] == 0
    return tmp_path
