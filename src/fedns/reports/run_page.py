"""The report of a run over real sites: the result, how it was reached, who took part, and what left each site."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from html import escape
from pathlib import Path

from fedns.core.files import write_whole
from fedns.core.history import History
from fedns.core.numbers import bytes_text
from fedns.federation.coordinator.session import COEFFICIENTS_FILE, LEDGER_FILE, LOG_FILE, REPORT_FILE, Result
from fedns.reports.charts import Chart, Curve, Scale
from fedns.reports.influence_part import apart_sentence, deciding_sentence, influence_table, write_left_out
from fedns.reports.interactive import figure_html
from fedns.reports.page import bullets, html_table, pairs, paragraph, report_page, traffic_rows, versions
from fedns.runs.over_sites import WORDS, ColumnRun
from fedns.runs.results import coefficients_csv

_TROUBLE = ("decides", "blanked", "away", "rejected", "refused", "suspicious", "round_lost")


def write_report(spec: ColumnRun, result: Result) -> Path:
    """The page and the coefficients, beside what the run wrote itself."""
    folder, history = spec.folder, result.history
    values = history.coefficients.tolist()
    names = [f"x{column}" for column in range(len(values) - spec.intercept)] + ["Intercept"] * spec.intercept
    lines = [{"name": name, "term": name, "coefficient": value} for name, value in zip(names, values, strict=True)]
    write_whole(folder / COEFFICIENTS_FILE, coefficients_csv(lines, converged=history.converged), durable=False)
    write_left_out(folder, dict(zip(names, values, strict=True)), result.influences)
    title = f"{spec.method} over {len(spec.sites)} sites"
    doubts = [*map(deciding_sentence, result.deciding), apart_sentence(result.influences)]
    head = [paragraph(text, "lead", strong=True) for text in doubts if text]
    sections = [
        ("What was optimised", f"<p>{escape(_objective(spec, history))}</p>"),
        ("Progress", figure_html(_chart(history))),
        ("Rounds", _rounds(history)),
        ("Sites", _sites(result)),
        ("What each site does to the model", influence_table(result.influences)),
        ("What left each site", _ledger(folder)),
        ("What went wrong", _trouble(folder)),
        ("Settings", pairs((name, str(value)) for name, value in _settings(spec))),
        ("Versions", pairs(versions().items())),
    ]
    path = folder / REPORT_FILE
    path.write_text(report_page(title, [*head, paragraph(_lead(spec, history), "lead")], sections), encoding="utf-8")
    return path


def _lead(spec: ColumnRun, history: History) -> str:
    last = history.records[-1]
    return (
        f"{'Converged' if history.converged else 'Ended'} after {last.round} rounds on {spec.engine}: "
        f"{history.stop_reason}. All sites together sent {bytes_text(last.uplink_bytes)}."
    )


def _objective(spec: ColumnRun, history: History) -> str:
    partial = [r.round for r in history.records if "sites_present" in r.diagnostics]
    if not partial:
        return f"The objective over all {len(spec.sites)} sites: {WORDS['wait']}."
    shown = ", ".join(map(str, partial[:12])) + (", ..." if len(partial) > 12 else "")
    return (
        f"Sites were missing in {len(partial)} of {history.records[-1].round} rounds ({shown}). "
        f"By the policy '{spec.policy.absent}', {WORDS[spec.policy.absent]}."
    )


def _chart(history: History) -> Chart:
    rounds = [float(r.round) for r in history.records]
    x = {
        "rounds": rounds,
        "bytes": [float(r.uplink_bytes) for r in history.records],
        "seconds": [r.seconds for r in history.records],
    }
    scales = {
        "rounds": Scale("communication rounds"),
        "bytes": Scale("bytes sent by all sites", unit="bytes"),
        "seconds": Scale("seconds in rounds, waiting included"),
    }
    line = Curve(history.method, x, [max(r.gradient_norm, 1e-16) for r in history.records])
    return Chart(
        "gradient", "Gradient norm", "How far the run was from the optimum.", scales, Scale("gradient norm", True), [line]
    )


def _rounds(history: History) -> str:
    headings = ["round", "objective", "gradient norm", "sent", "received", "for watching", "seconds", "sites"]
    rows = [
        [
            str(r.round),
            f"{r.objective:.12g}",
            f"{r.gradient_norm:.2e}",
            bytes_text(r.uplink_bytes),
            bytes_text(r.downlink_bytes),
            bytes_text(r.evaluation_bytes),
            f"{r.seconds:.2f}",
            f"{r.diagnostics['sites_present']:g}" if "sites_present" in r.diagnostics else "all",
        ]
        for r in history.records
    ]
    note = paragraph("For watching: objective and gradient after every round, asked of the sites, both ways.")
    return html_table(headings, rows) + note + _choices(history)


def _choices(history: History) -> str:
    """The choices of the method in each round, with the reason, where it states them."""
    chosen = [f"round {r.round}: {r.note}" for r in history.records if r.note]
    return f"<p>What {escape(history.method)} chose:</p>{bullets(chosen)}" if chosen else ""


def _sites(result: Result) -> str:
    headings = ["site", "answers", "rejected", "sent", "received", "added by packets and engine", "columns changed", "runs"]
    rows = [
        [s.name, str(s.answers), str(s.rejected)]
        + [bytes_text(n) for n in (s.uplink_bytes, s.downlink_bytes, s.envelope_bytes)]
        + [str(s.blanked_columns), s.runs or "not told"]
        for s in result.statuses
    ]
    note = paragraph("Retries are counted here, not under Rounds; so is watching, there in a column of its own.")
    changed = "".join(f"<p>{escape(s.note)}</p>" for s in result.statuses if s.note)
    return changed + html_table(headings, rows, text_columns={0, 7}) + note


def _ledger(folder: Path) -> str:
    sent = [line for line in _lines(folder / LEDGER_FILE) if line["direction"] == "uplink"]
    keyed = (((line["site"], line["purpose"], line["kind"], ", ".join(line["fields"])), 1, line["bytes"]) for line in sent)
    rows = sorted(traffic_rows(keyed))
    headings = ["site", "asked for", "message", "fields", "times", "bytes"]
    note = paragraph(f"Every single message, both ways, is a line of {LEDGER_FILE}.")
    return html_table(headings, rows, text_columns={0, 1, 2, 3}) + note


def _trouble(folder: Path) -> str:
    rows = [
        [line["time"], line["event"], line.get("site", ""), line.get("reason") or "; ".join(line.get("reasons", []))]
        for line in _lines(folder / LOG_FILE)
        if line["event"] in _TROUBLE
    ]
    if not rows:
        return "<p>Nothing: every request was answered, and every answer was admitted.</p>"
    more = paragraph(f"{len(rows) - 200} more lines are in {LOG_FILE}.") if len(rows) > 200 else ""
    return html_table(["time", "event", "site", "reason"], rows[:200], text_columns={0, 1, 2, 3}) + more


def _lines(path: Path) -> Iterable[dict]:  # type: ignore[type-arg]
    return (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def _settings(spec: ColumnRun) -> list[tuple[str, object]]:
    values = spec.as_dict()
    del values["policy"]
    return [*values.items(), *((f"policy: {key}", value) for key, value in asdict(spec.policy).items())]
