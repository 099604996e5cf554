"""The page that a reproduction ends in, with every figure also as a file for print."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path

from fedns.comparison.workers import Say, Task, run_tasks
from fedns.core.errors import ConfigError
from fedns.core.files import write_csv
from fedns.paper.part import Outcome, Part, Verdict, in_order
from fedns.reporting import plots
from fedns.reporting.charts import Chart
from fedns.reporting.interactive import figure_html
from fedns.reporting.page import html_table, page, pairs, section, versions

REPORT_FILE, VERDICT_FILE, FINDINGS_FILE, FIGURES_FOLDER = "report.html", "verdict.csv", "findings.json", "figures"


def write_report(
    folder: Path, parts: Sequence[Part], quick: bool, left_out: Sequence[str], processes: int | None = None
) -> Path:
    """The page, the figures, the verdicts and the numbers behind them."""
    verdicts = in_order(verdict for part in parts for verdict in part.verdicts)
    pictures = draw([chart for part in parts for chart in part.charts], folder / FIGURES_FOLDER, processes)
    body = [
        "<h1>The paper, reproduced</h1>",
        _lead(verdicts, quick, left_out),
        *(section(part.title, _content(part, pictures)) for part in parts),
        section("Versions", pairs(versions().items())),
        section("The verdict", verdict_html(verdicts)),
    ]
    path = folder / REPORT_FILE
    path.write_text(page("The paper, reproduced", "\n".join(body)), encoding="utf-8")
    headings = [part.name for part in fields(Verdict)]
    write_csv(folder / VERDICT_FILE, [headings, *([getattr(v, name) for name in headings] for v in verdicts)])
    findings = {part.title: part.findings for part in parts}
    (folder / FINDINGS_FILE).write_text(json.dumps(findings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def verdict_html(verdicts: Sequence[Verdict]) -> str:
    """One row per claim."""
    headings = ("claim", "the paper says", "outcome", "figures behind it")
    rows = [(v.claim, v.says, f"{v.outcome} {v.condition}".strip(), v.evidence) for v in verdicts]
    return f'<div class="verdicts">{html_table(headings, rows, text_columns=set(range(len(headings))))}</div>'


def _lead(verdicts: Sequence[Verdict], quick: bool, left_out: Sequence[str]) -> str:
    counts = Counter(verdict.outcome for verdict in verdicts)
    words: dict[Outcome, str] = {"holds": "hold", "holds if": "hold under a condition", "does not hold": "do not hold"}
    counted = ", ".join(f"{counts[outcome]} {text}" for outcome, text in words.items())
    size = "Few trials and rounds (--quick)." if quick else "All trials and rounds."
    text = f"{len(verdicts)} claims: {counted}. {size} Every outcome is computed from the runs."
    lead = f'<p class="lead">{escape(text)}</p>'
    return lead + "".join(f'<p class="warning">{escape(sentence)}</p>' for sentence in left_out)


def draw(charts: Sequence[Chart], folder: Path, processes: int | None = None) -> dict[str, str]:
    """Every chart as files for print, on all cores, and the SVG of its first view for the page, by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = 2 * (processes or os.cpu_count() or 1)
    tasks = [Task("figures", _draw_some, (charts[i::batches], folder)) for i in range(min(batches, len(charts)))]
    try:
        drawn = [found for _, found in run_tasks(tasks, lambda task, text: None, processes)]
    except ConfigError:  # without matplotlib the page's script still draws
        return {}
    return {name: picture for found in drawn for name, picture in found.items()}


def _draw_some(charts: Sequence[Chart], folder: Path, say: Say) -> dict[str, str]:
    return {chart.name: next(iter(plots.save_chart(chart, folder).values())) for chart in charts}


def _content(part: Part, pictures: Mapping[str, str]) -> str:
    words = "".join(f"<p>{escape(text)}</p>" for text in part.words)
    drawn = "".join(figure_html(chart, pictures.get(chart.name, "")) for chart in part.charts)
    tables = "".join(f"<h3>{escape(title)}</h3>{html_table(headings, rows)}" for title, headings, rows in part.tables)
    figures = f'<div class="figures">{drawn}</div>' if drawn else ""
    return words + figures + tables + (f"<h3>What follows</h3>{verdict_html(part.verdicts)}" if part.verdicts else "")
