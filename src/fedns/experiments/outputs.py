"""Everything that a comparison leaves in its folder beside the rounds themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fedns.core.errors import ConfigError
from fedns.experiments import plots, tables
from fedns.experiments.compare import Comparison
from fedns.experiments.report import render
from fedns.experiments.summary import Summary, summarise, write_summary

SUMMARY_FILE, REPORT_FILE = "summary.csv", "report.html"


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
    figures: dict[str, str] = {}
    try:
        figures = draw_figures(comparison)
    except ConfigError as error:  # without matplotlib all else is still worth having
        outputs.warnings.append(str(error))
    outputs.report.write_text(render(comparison, figures, notes), encoding="utf-8")
    return outputs


def draw_figures(comparison: Comparison) -> dict[str, str]:
    """PNG and SVG files in the folder; the SVG texts by what they are against."""
    groups: dict[str, list[plots.HasRecords]] = {}
    for run in comparison.runs:
        groups.setdefault(run.method, []).append(run)
    figures = {}
    for against in plots.AXES:
        if against == "bytes" and all(run.last.uplink_bytes == 0 for run in comparison.runs):
            continue
        figure = plots.plot_histories(
            groups,
            against,
            clients=comparison.num_clients,
            title=f"{comparison.spec.dataset}, {comparison.num_clients} clients",
            tol=comparison.spec.tol,
        )
        figures[against] = plots.save_figure(figure, comparison.folder / f"gap_{against}")
    return figures
