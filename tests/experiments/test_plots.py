"""Figures."""

import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from fedns.core.errors import ConfigError
from fedns.core.history import History, Record
from fedns.experiments.plots import AXES, FLOOR, curve, plot_histories, save_figure


def history(gaps, method="m", sent=1000, seconds=1.0):
    records = [Record(t, t, seconds * t, sent * t, t, gap, gap, gap) for t, gap in enumerate(gaps)]
    return History(method, records, np.zeros(1), "done", True)


def test_a_curve_is_the_middle_over_all_trials():
    runs = [history([1, 1e-2, 1e-4, 1e-6]), history([1, 1e-3, 0.0]), history([1, 1e-1, 1e-3, 1e-5])]
    found = curve(runs, AXES["bytes"], num_clients=2)
    np.testing.assert_array_equal(found.x, [0, 500, 1000, 1500])
    np.testing.assert_array_equal(found.middle, [1, 1e-2, 1e-4, 1e-6])
    np.testing.assert_array_equal(found.low, [1, 1e-3, FLOOR, FLOOR])
    np.testing.assert_array_equal(found.high, [1, 1e-1, 1e-3, 1e-5])


def test_the_horizontal_axis_never_steps_back():
    found = curve([history([1] * 4, seconds=1.0), history([1] * 3, seconds=9.0)], AXES["seconds"], 1)
    assert (np.diff(found.x) >= 0).all()


@pytest.mark.parametrize("against", AXES)
def test_labels_scales_and_bands(against):
    figure = plot_histories({"a": [history([1, 0.1]), history([1, 0.2])], "b": history([1, 0.5])}, against, tol=1e-3)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert axes.get_yscale() == "log"
    assert axes.get_xscale() == "linear"
    assert axes.get_xlabel() == AXES[against].label
    assert len(axes.collections) == 1
    styles = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines[:2]}
    assert len(styles) == 2


def test_bytes_far_apart_are_logarithmic_and_pooled_methods_are_left_out():
    runs = {"small": history([1, 0.1], sent=10), "pooled": history([1, 0.1], sent=0), "large": history([1, 0.1], sent=1000)}
    (axes,) = plot_histories(runs, "bytes").axes
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["small", "large"]


def test_many_methods_have_their_legend_below_and_looks_of_their_own():
    figure = plot_histories({f"method {n}": history([1, 0.1]) for n in range(20)})
    assert figure.axes[0].get_legend() is None
    assert len(figure.legends[0].get_texts()) == 20
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines}
    assert len(looks) == 20


def test_a_list_is_labelled_by_method():
    (axes,) = plot_histories([history([1, 0.1], "x"), history([1, 0.1], "x"), history([1, 0.1], "y")]).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["x", "y"]


def test_files_and_the_text_for_a_page(tmp_path):
    runs = {"a <&> b": [history([1, 0.1]), history([1, 0.2])]}
    text = save_figure(plot_histories(runs, path=tmp_path / "plain.png"), tmp_path / "gap_rounds")
    assert (tmp_path / "plain.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "gap_rounds.png").read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(tmp_path / "gap_rounds.svg")
    ElementTree.fromstring(text)
    assert text.startswith("<svg")
    assert "currentColor" in text
    assert "a &lt;&amp;&gt; b" in text
    assert 'id="axes_1"' not in text
    assert save_figure(plot_histories(runs), tmp_path / "gap_rounds") == text


def test_without_matplotlib_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"figures need matplotlib: install it with pip install 'fedns\[plots\]'"):
        plot_histories({"a": history([1, 0.1])})


def test_an_unknown_axis():
    with pytest.raises(ConfigError, match="rounds, bytes, seconds"):
        plot_histories({"a": history([1, 0.1])}, "time")
