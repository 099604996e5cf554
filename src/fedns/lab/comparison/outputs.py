"""Everything that a comparison leaves in its folder beside the rounds themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fedns.core.errors import ConfigError
from fedns.lab.comparison import tables
from fedns.lab.comparison.compare import REPORT_FILE, SUMMARY_FILE, Comparison
from fedns.lab.comparison.report import render
from fedns.lab.comparison.summary import Summary, summarise, write_summary
from fedns.reports import plots
from fedns.reports.charts import Chart
from fedns.reports.gap_charts import gap_chart
from fedns.reports.grouping import grouped
from fedns.reports.interactive import figure_html


@dataclass
class Outputs:
    """What was written, and what to say about it."""

    summaries: list[Summary]
    notes: list[str]
    report: Path
    warnings: list[str] = field(default_factory=list)


def write_outputs(comparison: Comparison) -> Outputs:
    """The summary, the figures and the report."""
    folder = comparison.folder
    summaries = summarise(comparison.runs, comparison.num_clients)
    notes = tables.notes(summaries, comparison.spec.tol) + comparison.notes
    outputs = Outputs(summaries, notes, folder / REPORT_FILE)
    write_summary(folder / SUMMARY_FILE, summaries)
    outputs.report.write_text(render(comparison, _figure(comparison, outputs), notes), encoding="utf-8")
    return outputs


def comparison_chart(comparison: Comparison) -> Chart:
    """The gap of every method against rounds, bytes and seconds."""
    groups = grouped(comparison.runs, lambda run: run.method)
    title = f"{comparison.spec.dataset}, {comparison.num_clients} clients"
    return gap_chart(groups, comparison.num_clients, title, comparison.spec.tol)


def _figure(comparison: Comparison, outputs: Outputs) -> str:
    """Write the figure's files and give it for the page; what cannot be had is said in a warning."""
    if not comparison.runs:
        return ""
    chart, pictures = comparison_chart(comparison), {}
    try:
        pictures = plots.save_chart(chart, comparison.folder)
    except ConfigError as error:  # without matplotlib all else is still worth having
        outputs.warnings.append(str(error))
    return figure_html(chart, next(iter(pictures.values()), ""))
