"""What is measured once is read back as it was."""

import numpy as np

from fedns.lab.paper import once, theorems
from fedns.lab.paper.part import ClaimVerdict, Part, table_of_rows
from fedns.reports.charts import Chart, Curve, Scale

CURVE = Curve.over("k = 2", {"rounds": [0.0, 1.0]}, [2.0, 0.5], [[1.0, 3.0], [0.5, 0.5]])
PART = Part(
    "Theorem 1",
    ["some words"],
    [Chart("distance", "Distance", "by round", {"rounds": Scale("rounds")}, Scale("distance", True), [CURVE], level=0.1)],
    [table_of_rows("Factors", [{"k": "2", "factor": "0.5"}])],
    {"factor": 0.5},
    [ClaimVerdict("Theorem 1, rate", "it is fast", "holds if", "k grows", "0.5")],
)


def test_a_part_of_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(theorems, "THEOREMS", {"theorem1": lambda quick, say: PART})
    (task,) = theorems.tasks(tmp_path, quick=True)
    task.work(*task.arguments, lambda text: None)
    assert theorems.read(tmp_path, quick=True) == [PART]
    assert theorems.tasks(tmp_path, quick=True) == [] and len(theorems.tasks(tmp_path, quick=False)) == 1
    assert (CURVE.low, CURVE.high) == ([1.0, 0.5], [3.0, 0.5])


def test_names_that_no_file_can_have_and_numbers_of_any_kind(tmp_path):
    path = once.path_of(tmp_path, "synthetic:rows=5")
    once.write(path, [np.float64(0.5), np.int64(2)])
    assert path.parent == tmp_path and ":" not in path.name
    assert once.read(tmp_path, "synthetic*") == [[0.5, 2.0]]
