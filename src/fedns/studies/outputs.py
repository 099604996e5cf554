"""What a fit leaves behind: coefficients with their names, the model with where it came from, and a page to read."""

from __future__ import annotations

import csv
import io
import json
import math
from html import escape
from pathlib import Path
from typing import Any

from fedns.core.files import write_whole
from fedns.reporting.numbers import bytes_text
from fedns.reporting.page import html_table, page, pairs, section, versions
from fedns.studies.model.estimate import StudyFit
from fedns.studies.schema.site_table import HIDDEN

COEFFICIENTS_FILE, MODEL_FILE, REPORT_FILE = "coefficients.csv", "model.json", "report.html"
MODEL_FORMAT = 1


def write_fit(fit: StudyFit, folder: Path) -> Path:
    """The three files; the path of the page."""
    write_whole(folder / COEFFICIENTS_FILE, coefficients_csv(fit), durable=False)
    write_whole(folder / MODEL_FILE, json.dumps(model(fit), indent=1, ensure_ascii=False) + "\n", durable=False)
    write_whole(folder / REPORT_FILE, report(fit), durable=False)
    return folder / REPORT_FILE


def coefficients_csv(fit: StudyFit) -> str:
    """One line for each coefficient, empty where a column was left out."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["name", "term", "level", "coefficient"])
    columns = {column.name: column for column in fit.agreed.design.columns}
    for name, value in zip(fit.names, fit.coefficients.tolist(), strict=True):
        column = columns.get(name)
        levels = [part.level for part in column.parts if part.level is not None] if column else []
        lines.writerow([name, column.term if column else name, ":".join(levels), "" if math.isnan(value) else repr(value)])
    return text.getvalue()


def model(fit: StudyFit) -> dict[str, Any]:
    """Everything that predicting, and checking where a model came from, needs."""
    last = fit.history.records[-1]
    return {
        "fedns_model": MODEL_FORMAT,
        "study": fit.study.as_dict(),
        "study_digest": fit.study.digest,
        "schema": json.loads(fit.agreed.design.agreement.to_json()),
        "schema_digest": fit.agreed.design.agreement.digest,
        "coefficients": {
            name: None if math.isnan(value) else value
            for name, value in zip(fit.names, fit.coefficients.tolist(), strict=True)
        },
        "left_out": [str(alias) for alias in fit.aliased],
        "ending": fit.ending.key,
        "reason": fit.reason,
        "newton_decrement": fit.newton_decrement,
        "notes": list(fit.notes),
        "provenance": {
            "method": fit.method,
            "rounds": last.round,
            "exchanges": last.exchanges,
            "uplink_bytes": fit.uplink_bytes,
            "downlink_bytes": fit.downlink_bytes,
            "objective": last.objective,
            "sites": [{"name": site.site, "rows": _told(site.used)} for site in fit.sites],
            "versions": versions(),
        },
    }


def report(fit: StudyFit) -> str:
    """The page."""
    study = fit.study
    title = study.title or study.formula
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_lead(fit))}</p>',
        section("Coefficients", _coefficients(fit)),
        section("What to know", _notes(fit)),
        section("Sites", _sites(fit)),
        section("What left the sites", _ledger(fit)),
        section("How columns were coded", _coding(fit)),
        section("Study", pairs([("digest", study.digest), *_settings(study.as_dict())])),
        section("Versions", pairs(versions().items())),
    ]
    return page(title, "\n".join(body))


def _lead(fit: StudyFit) -> str:
    return (
        f"{'Converged' if fit.converged else 'Not converged'}: {fit.reason}. {fit.study.family.capitalize()} model on "
        f"{fit.num_rows} rows of {len(fit.sites)} sites, with {fit.method}; all sites together sent "
        f"{bytes_text(fit.uplink_bytes)}."
    )


def _coefficients(fit: StudyFit) -> str:
    rows = [
        [name, "left out" if math.isnan(value) else f"{value:.8g}"]
        for name, value in zip(fit.names, fit.coefficients.tolist(), strict=True)
    ]
    note = "<p class='notes'>On the original scale of every column. All digits are in coefficients.csv.</p>"
    return html_table(["name", "coefficient"], rows) + note


def _notes(fit: StudyFit) -> str:
    if not fit.notes:
        return "<p>Nothing: every table fitted the study as it was.</p>"
    return "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in fit.notes) + "</ul>"


def _sites(fit: StudyFit) -> str:
    headings = ["site", "rows", "used"] + (["events", "non-events"] if fit.study.has_events else [])
    rows = []
    for site in fit.sites:
        counts = [site.rows, site.used] + ([site.events, site.non_events] if fit.study.has_events else [])
        rows.append([site.site, *("few" if count == HIDDEN else str(count) for count in counts)])
    return html_table(headings, rows)


def _ledger(fit: StudyFit) -> str:
    totals: dict[tuple[str, str], list[int]] = {}
    for entry in fit.ledger:
        if entry.direction == "uplink":
            total = totals.setdefault((entry.kind, ", ".join(entry.fields)), [0, 0])
            total[0] += entry.messages
            total[1] += entry.bytes
    rows = [[*key, str(count), bytes_text(size)] for key, (count, size) in totals.items()]
    return html_table(["message", "fields", "messages", "bytes"], rows, text_columns={0, 1})


def _coding(fit: StudyFit) -> str:
    agreement = fit.agreed.design.agreement
    rows = [
        [name, "category", f"reference {levels[0]}; {', '.join(levels[1:])}"] for name, levels in agreement.levels.items()
    ]
    for name, (centre, scale) in agreement.centres.items():
        if name in fit.study.parsed.columns and name not in agreement.levels:
            unit = fit.study.rule(name).unit
            rows.append([name, f"number{f', {unit}' if unit else ''}", f"mean {centre:.5g}, standard deviation {scale:.4g}"])
    rows += [
        [name, "spline", f"knots {', '.join(f'{knot:g}' for knot in knots)}"] for name, knots in agreement.knots.items()
    ]
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


def _told(count: int) -> int | str:
    return "few" if count == HIDDEN else count
