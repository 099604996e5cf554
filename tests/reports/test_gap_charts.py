"""Charts of the gap."""

import numpy as np
import pytest

from fedns.core.errors import ConfigError
from fedns.core.history import History, Record
from fedns.core.termination import Ending
from fedns.reports.gap_charts import FLOOR, SPREAD, gap_chart, gap_line


def history(gaps, sent=1000, seconds=1.0):
    records = [Record(t, t, seconds * t, sent * t, t, gap, gap, gap) for t, gap in enumerate(gaps)]
    return History("m", records, np.zeros(1), Ending.GAP, "done")


def test_a_curve_is_the_middle_over_all_trials():
    runs = [history([1, 1e-2, 1e-4, 1e-6]), history([1, 1e-3, 0.0]), history([1, 1e-1, 1e-3, 1e-5])]
    found = gap_line("a", runs, clients=2)
    np.testing.assert_array_equal(found.x["rounds"], [0, 1, 2, 3])
    np.testing.assert_array_equal(found.x["bytes"], [0, 500, 1000, 1500])
    np.testing.assert_array_equal(found.y, [1, 1e-2, 1e-4, 1e-6])
    np.testing.assert_array_equal(found.low, [1, 1e-3, FLOOR, FLOOR])
    np.testing.assert_array_equal(found.high, [1, 1e-1, 1e-3, 1e-5])


def test_the_horizontal_axis_never_steps_back():
    found = gap_line("a", [history([1] * 4, seconds=1.0), history([1] * 3, seconds=9.0)], clients=1)
    assert (np.diff(found.x["seconds"]) >= 0).all()


def test_one_chart_has_all_three_scales_and_the_spread():
    chart = gap_chart({"a": [history([1, 0.1]), history([1, 0.2])], "b": [history([1, 0.5])]}, 1, "title", 1e-3, "name")
    assert (chart.name, chart.title, chart.level) == ("name", "title", 1e-3)
    assert list(chart.x) == ["rounds", "bytes", "seconds"]
    assert not any(scale.logarithmic for scale in chart.x.values())
    assert chart.y.logarithmic
    assert chart.x["bytes"].unit == "bytes"
    first, second = chart.lines
    assert (first.low, first.high) == ([1, 0.1], [1, 0.2])
    assert (second.low, second.high) == (None, None)
    assert chart.caption.endswith(f"{SPREAD} The dotted line is a gap of 0.001.")
    alone = gap_chart({"b": [history([1, 0.5])]}, 1).caption
    assert SPREAD not in alone
    assert "dotted" not in alone


def test_bytes_far_apart_are_logarithmic_and_pooled_methods_are_left_out():
    runs = {"small": 10, "pooled": 0, "large": 1000}
    chart = gap_chart({label: [history([1, 0.1], sent=sent)] for label, sent in runs.items()}, 1)
    assert chart.x["bytes"].logarithmic
    assert [line.label for line in chart.lines if "bytes" in line.x] == ["small", "large"]
    assert list(gap_chart({"pooled": [history([1, 0.1], sent=0)]}, 1).x) == ["rounds", "seconds"]


def test_a_start_alone_and_nothing_at_all():
    chart = gap_chart({"a": [history([1])]}, 1)
    assert (list(chart.x), chart.lines[0].x) == (["rounds"], {})
    with pytest.raises(ConfigError, match="there is no run to draw"):
        gap_chart({}, 1)
