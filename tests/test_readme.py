"""What the README shows works as shown."""

import re
from pathlib import Path

import pytest

import fedns
from fedns.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_examples_run_in_the_order_they_are_read(capsys):
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL):
        exec(code, names)
    history, model = names["history"], names["model"]
    assert isinstance(history, fedns.History) and history.converged and history.suboptimality[-1] <= 1e-10
    assert isinstance(model, fedns.FederatedLogisticRegression) and "std err" in capsys.readouterr().out


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
