"""What the README shows works as shown."""

import re
from pathlib import Path

import fedns

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
