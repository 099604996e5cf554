"""The page that a reproduction ends in, with every figure also as a file for print."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path

from fedns.core.errors import ConfigError
from fedns.core.files import write_csv
from fedns.lab.comparison.workers import Say, Task, run_tasks
from fedns.lab.paper.part import ClaimVerdict, Outcome, Part, Table, in_order
from fedns.reports import plots
from fedns.reports.charts import Chart
from fedns.reports.interactive import figure_html
from fedns.reports.page import Tile, board, folded, html_table, pairs, paragraph, report_page, versions

_SHOWN: dict[Outcome, tuple[str, str, str]] = {  # its colour, of one claim, of several
    "holds": ("good", "\u2713 holds", "hold"),
    "holds if": ("partly", "\u25d0 holds in part", "hold in part"),
    "does not hold": ("bad", "\u2717 does not hold", "do not hold"),
}
_LONG_TEXT, _LONG_TABLE = 240, 12  # characters, rows: what is longer is folded
REPORT_FILE, VERDICT_FILE, FINDINGS_FILE, FIGURES_FOLDER = "report.html", "verdict.csv", "findings.json", "figures"


def write_paper_report(
    folder: Path, parts: Sequence[Part], quick: bool, left_out: Sequence[str], processes: int | None = None
) -> Path:
    """The page, the figures, the verdicts and the numbers behind them."""
    verdicts = in_order(verdict for part in parts for verdict in part.verdicts)
    pictures = draw([chart for part in parts for chart in part.charts], folder / FIGURES_FOLDER, processes)
    sections = [*((part.title, _content(part, pictures)) for part in parts), ("Versions", folded(pairs(versions().items())))]
    head = [paragraph(_lead(verdicts, quick), "lead"), *(paragraph(one, "warning") for one in left_out)]
    path = folder / REPORT_FILE
    text = report_page("The paper, reproduced", [*head, _scoreboard(verdicts)], sections)
    path.write_text(text, encoding="utf-8")
    headings = [part.name for part in fields(ClaimVerdict)]
    write_csv(folder / VERDICT_FILE, [headings, *([getattr(v, name) for name in headings] for v in verdicts)])
    findings = {part.title: part.findings for part in parts}
    (folder / FINDINGS_FILE).write_text(json.dumps(findings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _scoreboard(verdicts: Sequence[ClaimVerdict]) -> str:
    """The number of claims that hold, then a line for each that leads to the figures behind it."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    tiles = [Tile(f"{counts[outcome]} of {len(verdicts)}", text, tone) for outcome, (tone, _, text) in _SHOWN.items()]
    lines = [
        f'<li>{_mark(v)} <a href="#{_anchor(v)}">{escape(v.claim)}</a><span>{escape(v.says)}</span></li>' for v in verdicts
    ]
    return board(tiles) + f'<ul class="claims">{"".join(lines)}</ul>'


def verdict_html(verdict: ClaimVerdict) -> str:
    """A claim, what became of it, and the figures behind it."""
    said = f"<p>{_mark(verdict)} <b>{escape(verdict.claim)}</b>: {escape(verdict.says)}</p>"
    condition = f"<p>It holds if {escape(verdict.condition)}.</p>" if verdict.condition else ""
    evidence = paragraph(verdict.evidence)
    figures = folded(evidence, "figures behind it") if len(verdict.evidence) > _LONG_TEXT else evidence
    return f'<div class="verdict" id="{_anchor(verdict)}">{said}{condition}{figures}</div>'


def _mark(verdict: ClaimVerdict) -> str:
    tone, text, _ = _SHOWN[verdict.outcome]
    return f'<span class="mark {tone}">{text}</span>'


def _anchor(verdict: ClaimVerdict) -> str:
    return re.sub(r"[^a-z0-9]+", "-", verdict.claim.lower()).strip("-")


def _lead(verdicts: Sequence[ClaimVerdict], quick: bool) -> str:
    size = "Few trials and rounds (--quick)." if quick else "All trials and rounds."
    return f"{len(verdicts)} claims. {size} Every outcome is computed from the runs."


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
    tables = "".join(map(_table, part.tables))
    figures = f'<div class="figures">{drawn}</div>' if drawn else ""
    follows = "<h3>What follows</h3>" + "".join(map(verdict_html, part.verdicts)) if part.verdicts else ""
    return words + figures + tables + follows


def _table(table: Table) -> str:
    title, headings, rows = table
    drawn = html_table(headings, rows)
    return folded(drawn, f"{title}, {len(rows)} rows") if len(rows) > _LONG_TABLE else f"<h3>{escape(title)}</h3>{drawn}"
