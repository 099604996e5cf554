"""The paper's objective has 1e-3 |w|^2, and so has whatever is run in its name."""

import json

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.lab.comparison.sweep import read_sweep
from fedns.lab.data.catalogue import available
from fedns.lab.paper import accuracy, dimensions, plan, theorems
from fedns.lab.paper.theorems import settings

PRINTED = 1e-3  # of |w|^2: "Experiments" of the paper


def printed_penalty(problem):
    """What a problem adds to the mean loss at a point, beside what the paper adds."""
    shards = make_shards(rows=30, columns=4, sizes=(30,))
    w = np.array([0.5, -2.0, 1.0, 0.25])
    margins = shards.targets * (shards.rows.values @ w)
    added = problem.evaluate(w, shards.onehot).objective - np.mean(np.log1p(np.exp(-margins)))
    return added / (w @ w)


@pytest.mark.parametrize("name", [*plan.CONFIGS, "table2", "phishing"])
@pytest.mark.parametrize("quick", [False, True])
def test_every_configuration_of_the_paper_has_it(name, quick):
    for case in read_sweep(plan.config(f"{name}.toml"), {}, quick=quick).cases:
        assert printed_penalty(fedns.Problem(penalty=fedns.Ridge(case.spec.strength))) == pytest.approx(PRINTED, rel=1e-9)


def test_theorems_dimensions_and_accuracies_are_measured_with_it(tmp_path, monkeypatch):
    problems = []
    noted = fedns.Problem

    def noting(*given, **named):
        problems.append(noted(*given, **named))
        return problems[-1]

    monkeypatch.setattr(settings, "has_phishing", lambda: False)
    problems.append(settings.logistic_setting(4).problem)
    monkeypatch.setattr(dimensions, "Problem", noting)
    dimensions.measure("digits", "none", tmp_path / "digits.json", lambda text: None)
    monkeypatch.setattr(accuracy, "Problem", noting)
    monkeypatch.setattr(accuracy, "METHODS", ())
    accuracy.measure(accuracy.HeldOut("breast_cancer", None, 4, "maxabs", ()), 1, tmp_path / "a.json", lambda text: None)
    assert len(problems) == 3
    for problem in problems:
        assert printed_penalty(problem) == pytest.approx(PRINTED, rel=1e-9)


def test_what_was_measured_with_another_penalty_is_measured_again(tmp_path, monkeypatch):
    """A folder of results outlives a version: rounds with one penalty must not stand beside dimensions with another."""
    monkeypatch.setattr(dimensions, "available", lambda: [info for info in available() if info.name == "digits"])
    monkeypatch.setattr(theorems, "THEOREMS", {"theorem1": None})
    monkeypatch.setattr(accuracy, "names_at_hand", lambda: ["phishing"])
    for old in ("digits-none.json", "phishing-2.json", "theorem1_quick.json"):
        (tmp_path / old).write_text(json.dumps([]))
    assert dimensions.read(tmp_path) == [] and len(dimensions.tasks(tmp_path, quick=True)) == 1
    assert accuracy.read(tmp_path, quick=True) == [] and len(accuracy.tasks(tmp_path, quick=True)) == 1
    assert theorems.read(tmp_path, quick=True) == [] and len(theorems.tasks(tmp_path, quick=True)) == 1
