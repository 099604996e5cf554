"""The part of a report about predictions: calibration and ROC as figures, and the figures of every site as a table."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from fedns.reporting.charts import Chart, Line, Scale
from fedns.reporting.interactive import figure_html
from fedns.reporting.page import html_table
from fedns.studies.diagnostics.diagnosed import Diagnostics, Prediction, prediction_table
from fedns.studies.inference.fitted import StudyFit

_MOST_SITES = 8  # lines that a figure has room for
_EVENTS = (
    "Rows of neighbouring predictions are counted together, and the area under the curve (AUC) is known to lie within the "
    "bounds; its standard error is DeLong's."
)
_NUMBERS = "Observed and expected are means; residuals are Pearson's, by groups of neighbouring ones."
_HELD_OUT = (
    "“By the others”: a site is predicted by the model of all other sites, which is one Newton step from the joint one."
)


def predictions(fit: StudyFit) -> str:
    """Nothing where the sites did not tell."""
    found = fit.prediction
    if not isinstance(found, Diagnostics):
        return ""
    headings, *rows = prediction_table(found)
    words = [_EVENTS if found.total.events else _NUMBERS, *([_HELD_OUT] if found.held_out else [])]
    charts = [calibration_chart(found), *([roc_chart(found)] if found.total.roc else [])]
    figures = "".join(figure_html(chart, _picture(chart)) for chart in charts)
    notes = f"<p class='notes'>{escape(' '.join(words))}</p>"
    return f'<div class="figures">{figures}</div>{html_table(headings, rows)}{notes}'


def calibration_chart(found: Diagnostics) -> Chart:
    """Predicted against observed."""
    tenths = found.total.calibration
    ends = [min(t.predicted for t in tenths), max(t.predicted for t in tenths)]
    kind = "risk" if found.total.events else "mean"
    low, high = ([t.low for t in tenths], [t.high for t in tenths]) if found.total.events else (None, None)
    lines = [
        Line("all sites", {kind: [t.predicted for t in tenths]}, [t.observed for t in tenths], low, high),
        Line("perfect", {kind: ends}, ends, dashed=True),
    ]
    caption = "Tenths of the rows by their prediction" + (", with 95 % intervals." if found.total.events else ".")
    horizontal = {kind: Scale("predicted")}
    return Chart("calibration", "Calibration", caption, horizontal, Scale("observed"), lines)


def roc_chart(found: Diagnostics) -> Chart:
    """The ROC of all sites, of each where there are few, and of each by the model of the others."""
    lines = [_roc_line("all sites", found.total)]
    lines += _site_lines(found.held_out, " by the others") or _site_lines(found.sites, "")
    lines.append(Line("chance", {"rate": [0.0, 1.0]}, [0.0, 1.0], dashed=True))
    horizontal = {"rate": Scale("false positive rate")}
    return Chart("roc", "ROC", "", horizontal, Scale("true positive rate"), lines)


def _site_lines(sites: Mapping[str, Prediction], word: str) -> list[Line]:
    shown = [(f"{site}{word}", one) for site, one in sites.items() if one.roc is not None]
    return [_roc_line(name, one) for name, one in shown] if 1 < len(shown) <= _MOST_SITES else []


def _roc_line(name: str, one: Prediction) -> Line:
    assert one.roc is not None
    false, true = one.roc.curve
    return Line(f"{name}, {one.roc.area:.3f}", {"rate": false.tolist()}, true.tolist())


def _picture(chart: Chart) -> str:
    """The lines alone, for readers without scripts; the table below has the numbers."""
    (name,) = chart.x
    ends = [value for line in chart.lines for value in (*line.x[name], *line.y)]
    low, high = min(ends), max(ends)
    size = 100.0 / ((high - low) or 1.0)
    thin = 'fill="none" stroke="currentColor" stroke-width="1.5" vector-effect="non-scaling-stroke"'
    shapes = ""
    for line in chart.lines:
        places = [(size * (x - low), 100 - size * (y - low)) for x, y in zip(line.x[name], line.y, strict=True)]
        dashes = ' stroke-dasharray="3 3"' if line.dashed else ""
        shapes += f'<polyline {thin}{dashes} points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
    return f'<svg viewBox="-1 -1 102 102" role="img" aria-label="{escape(chart.title)}">{shapes}</svg>'
