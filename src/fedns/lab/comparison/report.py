"""The files of a comparison beside its rounds: a summary, figures, and one HTML page with everything in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from fedns.core.errors import ConfigError
from fedns.core.numbers import bytes_text, gap_text, rounds_text, seconds_text
from fedns.lab.comparison.compare import REPORT_FILE, SUMMARY_FILE, Comparison
from fedns.lab.comparison.summary import (
    HEADINGS,
    Summary,
    Traffic,
    cells,
    ending_text,
    notes_on_table,
    summarise,
    traffic,
    write_summary,
)
from fedns.reports import plots
from fedns.reports.charts import Chart, grouped
from fedns.reports.gap_charts import gap_chart
from fedns.reports.interactive import figure_html
from fedns.reports.page import html_table, pairs, paragraph, report_page, versions


@dataclass
class Outputs:
    """The files that were written, and what to say about them."""

    summaries: list[Summary]
    notes: list[str]
    report: Path
    warnings: list[str] = field(default_factory=list)


def write_outputs(comparison: Comparison) -> Outputs:
    """The summary, the figures and the report."""
    folder = comparison.folder
    summaries = summarise(comparison.runs, comparison.num_clients)
    notes = notes_on_table(summaries, comparison.spec.tol) + comparison.notes
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


_EXPLAINED = (
    "Means over trials, with the range in parentheses where trials differ; seconds are of whole runs. Bytes are the "
    "summed lengths of the encoded messages that left a site, averaged over clients."
)


def render(comparison: Comparison, figures: str, notes: Sequence[str]) -> str:
    """The page about a comparison; `figures` is HTML that `figure_html` made, `notes` stand under the table."""
    spec = comparison.spec
    summaries = summarise(comparison.runs, comparison.num_clients)
    title = f"{spec.dataset}: {_named([summary.method for summary in summaries])}"
    in_force = {"clients": spec.num_clients or "the natural sites", "out": str(spec.folder)}  # where they were left open
    sent = traffic(comparison.runs, comparison.num_clients)
    table = html_table(HEADINGS, map(cells, summaries), {0, len(HEADINGS) - 1})
    sections = [
        ("In words", _sentences(summaries, comparison)),
        ("Rounds, bytes and seconds", table + "".join(map(paragraph, (_EXPLAINED, *notes)))),
        ("Figures", f'<div class="figures">{figures}</div>' if figures else ""),
        ("What left each site", _traffic_table(line for line in sent if line.line.direction == "uplink")),
        ("What reached each site", _traffic_table(line for line in sent if line.line.direction == "downlink")),
        ("Data", pairs(comparison.facts.items())),
        ("Settings", pairs((key, _shown(value)) for key, value in (spec.as_dict() | in_force).items())),
        ("To run it again", f"<pre><code>{escape(spec.to_command())}</code></pre>"),
        ("Versions", pairs(versions().items())),
    ]
    return report_page(title, _head(comparison), sections)


def sentence(summary: Summary, num_clients: int) -> str:
    """Say in one plain sentence what a method did."""
    of = f"all {summary.trials} trials" if summary.trials > 1 else "its one trial"
    if summary.converged == summary.trials:
        total = summary.total
        rounds = f"{rounds_text(total['rounds'].mean)} rounds"
        if total["rounds"].low != total["rounds"].high:
            rounds += f" on average ({total['rounds'].low:g} to {total['rounds'].high:g})"
        sent = f"with {bytes_text(total['uplink_bytes_per_client'].mean)} sent by each of {num_clients} clients"
        sent = "on the pooled data, sending nothing" if summary.sends_nothing else sent
        return f"converged in {of}: {rounds}, {sent}, {seconds_text(total['seconds'].mean)} seconds."
    if summary.trials == 1:
        return f"did not converge: {summary.stop_reason}."
    how_many = f"converged in {summary.converged} of" if summary.converged else "did not converge in any of"
    return (
        f"{how_many} {summary.trials} trials ({ending_text(summary)}); the median gap at the end is "
        f"{gap_text(summary.final_gap)}. The first trial: {summary.stop_reason}."
    )


def _named(methods: Sequence[str]) -> str:
    listed = ", ".join(methods)
    return listed if len(listed) <= 60 else f"{len(methods)} methods"


def _head(comparison: Comparison) -> list[str]:
    spec = comparison.spec
    text = (
        f"{comparison.facts.get('rows and columns', '')} (rows x columns), {comparison.num_clients} clients, "
        f"split {spec.split}, ridge strength {spec.strength:g}, {spec.trials} trial{'s' if spec.trials > 1 else ''}."
    )
    interrupted = "This run was interrupted: what follows is what was finished before that."
    return [paragraph(text, "lead"), *([paragraph(interrupted, "warning")] if comparison.interrupted else [])]


def _sentences(summaries: Sequence[Summary], comparison: Comparison) -> str:
    items = [
        f"<li><strong>{escape(summary.method)}</strong> {escape(sentence(summary, comparison.num_clients))}</li>"
        for summary in summaries
    ]
    return "<ul>" + "".join(items) + "</ul>"


def _traffic_table(lines: Iterable[Traffic]) -> str:
    rows = [
        (
            sent.method,
            sent.line.kind,
            ", ".join(sent.line.fields),
            f"{sent.messages:.3g} {'at the start' if sent.line.at_start else 'a round'}",
            bytes_text(sent.bytes_per_message),
            bytes_text(sent.bytes_per_client),
        )
        for sent in lines
    ]
    headings = ("method", "message", "what it holds", "messages per client", "bytes of each", "bytes per client and run")
    return html_table(headings, rows, text_columns={0, 1, 2}) if rows else "<p>Nothing.</p>"


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    return ", ".join(value) if isinstance(value, list) else str(value)
