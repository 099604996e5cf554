"""One HTML file about a comparison, with everything in it: nothing is fetched when it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedns.core.numbers import bytes_text, gap_text, rounds_text, seconds_text
from fedns.lab.comparison.compare import Comparison
from fedns.lab.comparison.summary import Summary, Traffic, summarise, traffic
from fedns.lab.comparison.tables import HEADINGS, cells, ending_text
from fedns.reports.page import html_table, page, pairs, section, versions


def render(comparison: Comparison, figures: str, notes: Sequence[str]) -> str:
    """The page about a comparison; `figures` is HTML that `figure_html` made, `notes` stand under the table."""
    spec = comparison.spec
    summaries = summarise(comparison.runs, comparison.num_clients)
    title = f"{spec.dataset}: {_named([summary.method for summary in summaries])}"
    in_force = {"clients": spec.num_clients or "the natural sites", "out": str(spec.folder)}  # where they were left open
    body = [
        f"<h1>{escape(title)}</h1>",
        _lead(comparison),
        section("In words", _sentences(summaries, comparison)),
        section(
            "Rounds, bytes and seconds", html_table(HEADINGS, map(cells, summaries), {0, len(HEADINGS) - 1}) + _notes(notes)
        ),
        section("Figures", f'<div class="figures">{figures}</div>') if figures else "",
        *_traffic_sections(traffic(comparison.runs, comparison.num_clients)),
        section("Data", pairs(comparison.facts.items())),
        section("Settings", pairs((key, _shown(value)) for key, value in (spec.as_dict() | in_force).items())),
        section("To run it again", f"<pre><code>{escape(spec.to_command())}</code></pre>"),
        section("Versions", pairs(versions().items())),
    ]
    return page(title, "\n".join(filter(None, body)))


def sentence(summary: Summary, num_clients: int) -> str:
    """What a method did, in one plain sentence."""
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


def _lead(comparison: Comparison) -> str:
    spec = comparison.spec
    text = (
        f"{comparison.facts.get('rows and columns', '')} (rows x columns), {comparison.num_clients} clients, "
        f"split {spec.split}, ridge strength {spec.strength:g}, {spec.trials} trial{'s' if spec.trials > 1 else ''}."
    )
    lead = f'<p class="lead">{escape(text)}</p>'
    if comparison.interrupted:
        lead += '<p class="warning">This run was interrupted: what follows is what was finished before that.</p>'
    return lead


def _sentences(summaries: Sequence[Summary], comparison: Comparison) -> str:
    items = [
        f"<li><strong>{escape(summary.method)}</strong> {escape(sentence(summary, comparison.num_clients))}</li>"
        for summary in summaries
    ]
    return "<ul>" + "".join(items) + "</ul>"


def _notes(notes: Sequence[str]) -> str:
    explained = (
        "Means over trials, with the range in parentheses where trials differ; seconds are of whole runs. Bytes are the "
        "summed lengths of the encoded messages that left a site, averaged over clients."
    )
    return "".join(f'<p class="notes">{escape(note)}</p>' for note in (explained, *notes))


def _traffic_sections(lines: Sequence[Traffic]) -> list[str]:
    headings = {"uplink": "What left each site", "downlink": "What reached each site"}
    return [
        section(heading, _traffic_table([sent for sent in lines if sent.line.direction == direction]))
        for direction, heading in headings.items()
    ]


def _traffic_table(lines: Sequence[Traffic]) -> str:
    if not lines:
        return "<p>Nothing.</p>"
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
    return html_table(headings, rows, text_columns={0, 1, 2})


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    return ", ".join(value) if isinstance(value, list) else str(value)
