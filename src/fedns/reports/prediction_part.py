"""The part of a report about predictions: calibration and ROC as figures, and the figures of every site as a table."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from fedns.reports.charts import Chart, Curve, Scale
from fedns.reports.interactive import figure_html
from fedns.reports.page import folded, html_table, paragraph
from fedns.studies.diagnostics.by_site import ClassDiagnostics, Diagnosed
from fedns.studies.diagnostics.curves import Groups, Tenth, calibration
from fedns.studies.diagnostics.predictions import Diagnostics, Prediction
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.questions.concordance import TimeDiagnostics

_MOST_SITES = 8  # lines that a figure has room for
_EVENTS = (
    "Rows of neighbouring predictions are counted together, and the area under the curve (AUC) is known to lie within the "
    "bounds; its standard error is DeLong's."
)
_CLASSES = "Each class is predicted against all others together."
_NUMBERS = "Observed and expected are means; residuals are Pearson's, by groups of neighbouring ones."
_TIMES = (
    "Concordance (Harrell's C): of two rows of one site, one of which had its event while the other had none yet, how often "
    "it is the one with the higher risk; 0.5 is chance. Its standard error is by the infinitesimal jackknife."
)
_HELD_OUT = "“By the others”: a site is predicted by the model of all other sites, which was "
_REFITTED = {True: "fitted without it until it converged.", False: "taken one Newton step from the joint one."}


def predictions(fit: StudyFit) -> str:
    """Nothing where the sites did not tell."""
    found = fit.prediction
    if isinstance(found, str):
        return ""
    headings, *rows = found.table()
    words = [_words(found), *_lumps(found)]
    parts = found.classes.values() if isinstance(found, ClassDiagnostics) else [found]
    if any(part.held_out for part in parts):
        words.append(_HELD_OUT + _REFITTED[all(part.refitted for part in parts)])
    figures = "".join(figure_html(chart, _picture(chart)) for chart in charts(found))
    notes = paragraph(" ".join(words))
    numbers = (
        "" if isinstance(found, TimeDiagnostics) else folded(_calibration_table(_totals(found)), "Calibration in numbers")
    )
    shown = f'<div class="figures">{figures}</div>' if figures else ""
    further = "".join(html_table(table[0], table[1:]) for table in (one.table() for one in fit.further_diagnostics.values()))
    return shown + html_table(headings, rows) + notes + numbers + further


def _totals(found: Diagnosed) -> dict[str, Prediction]:
    if isinstance(found, ClassDiagnostics):
        return {name: one.total for name, one in found.classes.items()}
    return {"all sites": found.total}


def _lumped(found: Diagnosed) -> dict[str, Groups]:
    """Sites with many rows, so few of which have one of the outcomes that all are one group."""
    if not isinstance(found, Diagnostics) or not found.total.events or len(found.sites) < 2:
        return {}
    least = found.total.groups.weight / 20
    return {
        site: one.groups for site, one in found.sites.items() if one.groups.weights.size == 1 and one.groups.weight > least
    }


def _lumps(found: Diagnosed) -> list[str]:
    return [
        f"Site {site} is one group of {groups.weight:.10g} rows, {groups.expected:.3g} predicted and {groups.observed:.3g} "
        "observed on average: too few of them have one of the outcomes to be divided, and the curve of all may jump there."
        for site, groups in _lumped(found).items()
    ]


def _calibration_table(totals: Mapping[str, Prediction]) -> str:
    first = next(iter(totals.values()))
    events, rows = first.events and first.counted, []
    for name, one in totals.items():
        for part in one.calibration:
            ends = [f"{part.low:.3f} to {part.high:.3f}"] if events else []
            rows.append([name, f"{part.weight:.10g}", f"{part.predicted:.4g}", f"{part.observed:.4g}", *ends])
    return html_table(["", "rows", "predicted", "observed", *(["95 % interval"] if events else [])], rows)


def _words(found: Diagnosed) -> str:
    if isinstance(found, Diagnostics):
        return _EVENTS if found.total.events else _NUMBERS
    return _TIMES if isinstance(found, TimeDiagnostics) else f"{_CLASSES} {_EVENTS}"


def charts(found: Diagnosed) -> list[Chart]:
    """Calibration, and ROC where groups can tell; none of times."""
    if isinstance(found, TimeDiagnostics):
        return []
    totals = _totals(found)
    lumps = {site: calibration(groups, events=True) for site, groups in _lumped(found).items()}
    if isinstance(found, ClassDiagnostics):
        lines = _roc_lines(totals)
    else:
        apart = _roc_lines(found.held_out, " by the others"), _roc_lines(found.sites)
        lines = _roc_lines(totals) + next((part for part in apart if 1 < len(part) <= _MOST_SITES), [])
    return [_calibration_chart(totals, lumps), *([_roc_chart(lines)] if lines else [])]


def _calibration_chart(totals: Mapping[str, Prediction], lumps: Mapping[str, tuple[Tenth, ...]]) -> Chart:
    """Predicted against observed, a line for each, and a point for each site that is one group."""
    first = next(iter(totals.values()))
    events, lines, ends = first.events and first.counted, [], []
    kind = "risk" if first.events else "mean"
    shown = {name: one.calibration for name, one in totals.items()} | {
        f"{site}, one group": one for site, one in lumps.items()
    }
    for name, tenths in shown.items():
        low, high = ([t.low for t in tenths], [t.high for t in tenths]) if events else (None, None)
        lines.append(Curve(name, {kind: [t.predicted for t in tenths]}, [t.observed for t in tenths], low, high))
        ends += [t.predicted for t in tenths]
    lines.append(Curve("perfect", {kind: [min(ends), max(ends)]}, [min(ends), max(ends)], dashed=True))
    caption = "About ten parts of the rows by their prediction" + (", with 95 % intervals." if events else ".")
    return Chart("calibration", "Calibration", caption, {kind: Scale("predicted")}, Scale("observed"), lines)


def _roc_chart(lines: list[Curve]) -> Chart:
    """These curves, and what chance would give."""
    chance = Curve("chance", {"rate": [0.0, 1.0]}, [0.0, 1.0], dashed=True)
    return Chart("roc", "ROC", "", {"rate": Scale("false positive rate")}, Scale("true positive rate"), [*lines, chance])


def _roc_lines(parts: Mapping[str, Prediction], word: str = "") -> list[Curve]:
    """The curves of those whose groups can tell."""
    found = []
    for name, one in parts.items():
        if one.roc is not None:
            false, true = one.roc.curve
            found.append(Curve(f"{name}{word}, {one.roc.area:.3f}", {"rate": false.tolist()}, true.tolist()))
    return found


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
