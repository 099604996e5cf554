"""Figures."""

import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from fedns.core.errors import ConfigError
from fedns.core.history import History, Record
from fedns.core.termination import Ending
from fedns.reports.charts import Chart, Curve, Scale
from fedns.reports.gap_charts import AXES
from fedns.reports.plots import draw_chart, plot_histories, save_chart


def history(gaps, method="m", sent=1000, seconds=1.0):
    records = [Record(t, t, seconds * t, sent * t, t, gap, gap, gap) for t, gap in enumerate(gaps)]
    return History(method, records, np.zeros(1), Ending.GAP, "done")


def labels(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def chart(**changes):
    line = Curve(
        "a <&> $b$", {"n": [1, 2, 3], "bytes": [0, 1000, 2000]}, [1.0, 0.1, 0.01], [0.5, 0.05, 0.0], [2.0, 0.2, 0.02]
    )
    claim = Curve("claim", {"n": [1, 2, 3]}, [1.0, 0.5, 0.25], dashed=True)
    scales = {"n": Scale("$n", logarithmic=True), "bytes": Scale("sent", unit="bytes")}
    settings = {
        "name": "gap",
        "title": "a $title",
        "caption": "",
        "x": scales,
        "y": Scale("gap", True),
        "lines": [line, claim],
    }
    return Chart(**settings | changes)


@pytest.mark.parametrize("against", AXES)
def test_labels_scales_and_bands(against):
    figure = plot_histories({"a": [history([1, 0.1]), history([1, 0.2])], "b": history([1, 0.5])}, against, tol=1e-3)
    (axes,) = figure.axes
    assert labels(figure) == ["a", "b"]
    assert axes.get_yscale() == "log"
    assert axes.get_xscale() == "linear"
    assert axes.get_xlabel() == AXES[against].label
    assert len(axes.collections) == 1
    styles = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines[:2]}
    assert len(styles) == 2


def test_methods_that_send_nothing_are_left_out_of_the_bytes():
    runs = {"small": history([1, 0.1], sent=10), "pooled": history([1, 0.1], sent=0), "large": history([1, 0.1], sent=1000)}
    figure = plot_histories(runs, "bytes")
    assert figure.axes[0].get_xscale() == "log"
    assert labels(figure) == ["small", "large"]
    with pytest.raises(ConfigError, match="chart 'gap' can be drawn against rounds, seconds, not 'bytes'"):
        plot_histories({"pooled": runs["pooled"]}, "bytes")


def test_many_methods_have_looks_of_their_own():
    figure = plot_histories({f"method {n}": history([1, 0.1]) for n in range(20)})
    assert len(labels(figure)) == 20
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines}
    assert len(looks) == 20


def test_a_list_is_labelled_by_method():
    assert labels(plot_histories([history([1, 0.1], "x"), history([1, 0.1], "x"), history([1, 0.1], "y")])) == ["x", "y"]


def test_a_figure_can_be_saved_at_once(tmp_path):
    plot_histories({"a": history([1, 0.1])}, path=tmp_path / "plain.png")
    assert (tmp_path / "plain.png").read_bytes().startswith(b"\x89PNG")


def test_a_chart_is_drawn_as_it_says():
    (axes,) = draw_chart(chart(level=1e-3)).axes
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_title()) == ("log", "log", r"a \$title")
    line, claim, level = axes.lines
    assert (claim.get_linestyle(), claim.get_marker()) == ("--", "None")
    assert line.get_marker() != "None"
    np.testing.assert_array_equal(level.get_ydata(), 1e-3)
    assert axes.get_ylim()[0] < 1e-3
    assert len(axes.collections) == 1
    figure = draw_chart(chart(), "bytes")
    assert labels(figure) == [r"a <&> \$b\$"]
    figure.canvas.draw()
    assert "1 kB" in [text.get_text() for text in figure.axes[0].get_xticklabels()]


def test_a_chart_without_lines_and_one_with_a_linear_axis():
    assert draw_chart(chart(lines=())).legends == []
    assert draw_chart(chart(y=Scale("error"))).axes[0].get_yscale() == "linear"


def test_files_of_every_kind_and_the_text_for_a_page(tmp_path):
    texts = save_chart(chart(), tmp_path)
    kinds = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {f"gap_{against}.{kind}" for against in ("n", "bytes") for kind in kinds}
    assert all(content.startswith(kinds[name.split(".")[1]]) for name, content in before.items())
    ElementTree.parse(tmp_path / "gap_n.svg")
    assert list(texts) == ["n", "bytes"]
    ElementTree.fromstring(texts["n"])
    assert texts["n"].startswith("<svg")
    assert "currentColor" in texts["n"]
    assert "a &lt;&amp;&gt; $b$" in texts["n"]
    assert 'id="axes_1"' not in texts["n"]
    assert save_chart(chart(), tmp_path) == texts
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_chart_with_one_scale_has_files_of_its_name(tmp_path):
    lines = [Curve("a", {"n": [1, 2]}, [1.0, 0.5])]
    save_chart(chart(x={"n": Scale("n")}, lines=lines), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"gap.png", "gap.svg", "gap.pdf"}


def test_without_matplotlib_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"figures need matplotlib: install it with pip install 'fedns\[plots\]'"):
        plot_histories({"a": history([1, 0.1])})


def test_an_unknown_axis():
    with pytest.raises(ConfigError, match="rounds, bytes, seconds"):
        plot_histories({"a": history([1, 0.1])}, "time")
