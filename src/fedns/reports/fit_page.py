"""The page about a fit: coefficients, how well the model fits, how sites differ, and how all of it came about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from fedns.core.numbers import bytes_text
from fedns.reports.forest import Estimate, forest
from fedns.reports.page import (
    Tile,
    board,
    bullets,
    folded,
    html_table,
    pairs,
    paragraph,
    report_page,
    traffic_rows,
    versions,
)
from fedns.reports.prediction_part import predictions
from fedns.studies.design.site_table import HIDDEN
from fedns.studies.diagnostics.predictions import Diagnostics
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.inference.table import Row, by_class, class_title, goodness_pairs, p_text, reference_pairs, statistic_text
from fedns.studies.questions.concordance import TimeDiagnostics
from fedns.studies.tables.formula import INTERCEPT

_95 = 1.959963984540054


def report(fit: StudyFit, kind: str = "model") -> str:
    """The page, with standard errors of this kind."""
    study = fit.study
    title = study.title or study.formula
    parts = [
        ("Coefficients", _coefficients(fit, kind)),
        ("How well the model fits", _goodness(fit, kind)),
        ("How well the model predicts", predictions(fit)),
        ("Baseline hazards", _baseline(fit)),
        ("What to know", _notes(fit, kind)),
        ("Sites", _sites(fit)),
        ("How sites differ", _differences(fit)),
        ("How the fit went", folded(_rounds(fit))),
        ("What left the sites", _ledger(fit)),
        ("How columns were coded", folded(_coding(fit))),
        ("Study", folded(pairs([("digest", study.digest), *_settings(study.as_dict())]))),
        ("Versions", folded(pairs(versions().items()))),
    ]
    first = [f"Question: {one}" for one in fit.questions] if fit.converged else [fit.first_line]
    title = title if fit.converged else f"Not converged: {title}"
    head = [paragraph(_lead(fit), "lead"), _board(fit)]
    return report_page(title, head, parts, first=[paragraph(one, "lead", strong=True) for one in first])


def notebook(fit: StudyFit) -> str:
    """The table of coefficients for a notebook, without a page around it."""
    headings = ["", "coefficient", "std. error", "p", "interval"]
    rows = [
        [r.name, f"{r.coefficient:.5g}", f"{r.std_error:.4g}", p_text(r.p_value), f"{r.low:.4g} to {r.high:.4g}"]
        for r in fit.rows()
    ]
    warned = "" if fit.converged else f"<p><strong>{escape(fit.first_line)}</strong></p>"
    return warned + html_table(headings, rows) + pairs(reference_pairs(fit.agreed.design))


def _board(fit: StudyFit) -> str:
    """Tiles with what is to be known at a glance."""
    ending = ("converged", "good") if fit.converged else ("not converged", "bad")
    tiles = [Tile(ending[0], f"in {fit.history.records[-1].round} rounds", ending[1])]
    tiles.append(Tile(f"{fit.num_rows}", f"rows of {len(fit.sites)} sites"))
    tiles.append(Tile(bytes_text(fit.uplink_bytes), "sent by all sites"))
    if fit.inference is not None and fit.inference.sums is not None and math.isfinite(fit.goodness.test_p_value):
        tiles.append(Tile(p_text(fit.goodness.test_p_value), "p of the whole model"))
    if isinstance(fit.prediction, Diagnostics) and fit.prediction.total.roc is not None:
        tiles.append(Tile(f"{fit.prediction.total.roc.area:.3f}", "AUC, all sites"))
    if isinstance(fit.prediction, TimeDiagnostics):
        tiles.append(Tile(f"{fit.prediction.total.index:.3f}", "concordance, all sites"))
    return board(tiles)


def _lead(fit: StudyFit) -> str:
    ended = f"Converged: {fit.reason}. " if fit.converged else ""
    return (
        f"{ended}{fit.study.family.capitalize()} model on "
        f"{fit.num_rows} rows of {len(fit.sites)} sites, with {fit.method}; all sites together sent "
        f"{bytes_text(fit.uplink_bytes)}."
    )


def _coefficients(fit: StudyFit, kind: str) -> str:
    """A table, and where exp(coefficient) means something a forest plot, for every class of the outcome."""
    design, parts = fit.agreed.design, []
    for one, found in by_class(fit.agreed.design, fit.rows(kind)):
        parts += [f"<h3>{escape(class_title(design, one))}</h3>"] if one else []
        parts.append(_coefficient_table(fit, kind, found))
    compared = reference_pairs(design)
    note = paragraph("On the original scale of every column. All digits are in coefficients.csv.")
    return "".join([*parts, pairs(compared) if compared else "", note])


def _coefficient_table(fit: StudyFit, kind: str, found: Sequence[Row]) -> str:
    ratio = _ratio(fit)
    statistic = fit.inference.statistic_name(kind) if fit.inference else "z"
    headings = ["name", "coefficient", "std. error", statistic, "p", "95 % interval", *([ratio] if ratio else [])]
    rows = []
    for row in found:
        if row.left_out:
            rows.append([row.name, "left out", *[""] * (len(headings) - 2)])
            continue
        known = not math.isnan(row.std_error)
        cells = [row.name, f"{row.coefficient:.6g}", f"{row.std_error:.4g}" if known else "-"]
        cells += ["-" if math.isnan(row.statistic) else f"{row.statistic:.2f}", p_text(row.p_value) or "-"]
        cells.append(f"{row.low:.4g} to {row.high:.4g}" if known else "-")
        rows.append([*cells, *([f"{row.ratios[0]:.4g}"] if ratio else [])])
    picture = ""
    if ratio:
        lines = [Estimate(row.name, row.coefficient, row.low, row.high) for row in found if row.name != INTERCEPT]
        picture = forest(lines, ratio=ratio)
        picture = (
            f"<h3>{escape(ratio.capitalize())}s with 95 % intervals, logarithmic scale</h3>{picture}" if picture else ""
        )
    return html_table(headings, rows) + picture


def _ratio(fit: StudyFit) -> str:
    return fit.inference.family.ratio if fit.inference else ""


def _goodness(fit: StudyFit, kind: str) -> str:
    if fit.inference is None or fit.inference.sums is None:
        return ""
    headings = ["term", "test", "statistic", "df", "p", "variance inflation"]
    rows = []
    for test in fit.term_tests(kind):
        inflation = "-" if math.isnan(test.inflation) else f"{test.inflation:.2f}"
        statistic, p_value = statistic_text(test.statistic), p_text(test.p_value) or "-"
        rows.append([test.term, test.test, statistic, str(test.df), p_value, inflation])
    terms = "<h3>Wald tests of terms</h3>" + html_table(headings, rows, {0, 1}) if rows else ""
    return pairs(goodness_pairs(fit.goodness)) + terms


def _baseline(fit: StudyFit) -> str:
    if not fit.baseline:
        return ""
    rows = [
        [site, f"{time:g}", f"{hazard:.4g}", f"{math.exp(-hazard):.4f}"]
        for site, told in fit.baseline.items()
        for time, hazard in zip(told.times, told.hazards, strict=True)
    ]
    note = paragraph("Of a row with its site's mean margin. Times with few events since the last are left out.")
    return html_table(["site", "time", "cumulative hazard", "without an event"], rows) + note


def _notes(fit: StudyFit, kind: str) -> str:
    remarks = fit.remarks if fit.inference is None else tuple(fit.inference.remarks(kind))
    return bullets((*remarks, *fit.caveats, *fit.notes, *fit.prediction_notes))


def _sites(fit: StudyFit) -> str:
    headings = ["site", "rows", "used"] + (["events", "non-events"] if fit.study.has_events else [])
    rows = []
    for site in fit.sites:
        counts = [site.rows, site.used] + ([site.events, site.non_events] if fit.study.has_events else [])
        rows.append([site.site, *("few" if count == HIDDEN else str(count) for count in counts)])
    return html_table(headings, rows)


def _differences(fit: StudyFit) -> str:
    """Cochran's tests, and folded away below them what every site says by itself."""
    if fit.inference is None or fit.inference.sums is None or len(fit.sites) < 2:
        return ""
    rows = [
        [one.name, str(one.sites), f"{one.q:.2f}", p_text(one.p_value), f"{100 * one.i_squared:.0f} %"]
        for one in fit.heterogeneity
        if not fit.agreed.design.is_intercept(one.name)
    ]
    exact = "" if fit.study.family == "gaussian" else " It is one Newton step from the joint estimate, on that site's rows."
    note = paragraph(f"Cochran's Q and I² over what each site says alone.{exact} Nothing more was asked for it.")
    table = html_table(["name", "sites", "Q", "p", "I²"], rows) if rows else "<p>No coefficient is known to two sites.</p>"
    return table + note + "".join(_site_forest(fit, name) for name in fit.names if not fit.agreed.design.is_intercept(name))


def _site_forest(fit: StudyFit, name: str) -> str:
    place, own = fit.names.index(name), fit.site_estimates
    joint = fit.rows()[place]
    if joint.left_out:
        return ""
    lines = [
        Estimate(site, value, value - _95 * error, value + _95 * error)
        for site, value, error in zip(own.sites, own.coefficients[:, place], own.standard_errors[:, place], strict=True)
    ]
    picture = forest(
        [*lines, Estimate("all sites", joint.coefficient, joint.low, joint.high, joint=True)], ratio=_ratio(fit)
    )
    left = [
        f"{site} {value:.4g}" for site, value in zip(own.sites, own.without[:, place], strict=True) if math.isfinite(value)
    ]
    how = "fitted anew" if fit.without is not None and fit.without.refitted else "one Newton step from the joint estimate"
    without = paragraph(f"Coefficient without a site, {how}: {', '.join(left)}.") if left else ""
    return folded(picture + without, name)


def _rounds(fit: StudyFit) -> str:
    rows = [
        [
            str(r.round),
            f"{r.objective:.10g}",
            f"{r.gradient_norm:.2e}",
            bytes_text(r.uplink_bytes),
            bytes_text(r.downlink_bytes),
        ]
        for r in fit.history.records
    ]
    return html_table(["round", "objective", "gradient norm", "sent by sites", "sent to sites"], rows, set())


def _ledger(fit: StudyFit) -> str:
    sent = [entry for entry in fit.ledger if entry.direction == "uplink"]
    rows = traffic_rows(((entry.kind, ", ".join(entry.fields)), entry.messages, entry.bytes) for entry in sent)
    note = '<p class="notes">In plain words, for every site: <a href="what-left.html">what-left.html</a>.</p>'
    return html_table(["message", "fields", "messages", "bytes"], rows, text_columns={0, 1}) + note


def _coding(fit: StudyFit) -> str:
    agreement = fit.agreed.design.agreement
    first = {name: f"reference: {level}; levels " for name, level in fit.agreed.design.references.items()}
    rows = [[name, "category", first.get(name, "levels ") + ", ".join(levels)] for name, levels in agreement.levels.items()]
    for name, (centre, scale) in agreement.centres.items():
        if name in fit.study.parsed.columns and name not in agreement.levels:
            unit = fit.study.rule(name).unit
            rows.append([name, f"number{f', {unit}' if unit else ''}", f"mean {centre:.5g}, standard deviation {scale:.4g}"])
    numbered = [factor for factor in fit.study.parsed.factors if factor.transform.numbered]
    described = {factor.text: factor.transform.described(agreement.known(factor)) for factor in numbered}
    rows += [[name, *words] for name, words in described.items() if words]
    rows += [[name, "missing", f"replaced by {value:.5g}, with an indicator"] for name, value in agreement.fills.items()]
    return html_table(["column", "kind", "coding"], rows, text_columns={0, 1, 2})


def _settings(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += _settings(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return found
