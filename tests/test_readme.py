"""What the README shows works as shown."""

import re
from pathlib import Path

import pytest

import fedns
from fedns.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    history = names["history"]
    assert isinstance(history, fedns.History) and history.converged and history.suboptimality[-1] <= 1e-10


def test_links_lead_somewhere():
    root = Path(__file__).parents[1]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (root / target).is_file(), target


def test_the_session_on_four_hospitals_is_what_happens(tmp_path, monkeypatch, capsys):
    (session,) = re.findall(r"```\n(\$ fedns study example.*?)```", README, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    printed = ""
    for line in session.splitlines():
        if line.startswith("$ fedns "):
            with pytest.raises(SystemExit):
                main(line.removeprefix("$ fedns ").split())
            printed = capsys.readouterr().out
        elif line != "...":
            assert line in printed.splitlines()
