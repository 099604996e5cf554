"""A look at one table through a study, at its site: nothing leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedns.core.messages.encoding import Envelope, encode
from fedns.core.numbers import bytes_text
from fedns.federation.permissions import Permissions
from fedns.federation.site.explain import meaning
from fedns.numerics.backend import triangle_size
from fedns.runs.methods import parse_method
from fedns.studies.design.columns import Design
from fedns.studies.design.rows import design_shards
from fedns.studies.design.site_table import SiteTable
from fedns.studies.fitting.estimate import method_text
from fedns.studies.handshake.conflicts import conflicts
from fedns.studies.handshake.description import describe, message_of
from fedns.studies.handshake.handshake import first_agreement
from fedns.studies.handshake.table_summary import summary_of
from fedns.studies.handshake.terms import asks_more, learn
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import Frame


@dataclass(frozen=True)
class TableCheck:
    """The findings: lines under headings, and every reason not to take part."""

    sections: dict[str, list[str]]
    reasons: list[str]


def check_table(study: Study, frame: Frame, permissions: Permissions | None = None) -> TableCheck:
    """Rows, columns, levels, what would leave, what the owner's limits say to that, and what stands in the way."""
    table = SiteTable.of(study, frame, permissions) if permissions else SiteTable(study, frame, Permissions().smallest_level)
    summary = summary_of(study, frame.source, describe(table))
    reasons = conflicts(study, [summary])
    size = len(encode(message_of(table), Envelope(0, 0), np.dtype("<f8")))
    sections: dict[str, list[str]] = {"rows": _rows(table), "columns": _columns(table), "what would leave": []}
    leaving = sections["what would leave"]
    leaving.append(
        f"handshake, once: names of columns and levels, counts, means and standard deviations ({bytes_text(size)})"
    )
    leaving.append(f"groups of fewer than {table.smallest_count} rows are neither named nor counted in it")
    if not reasons:
        agreement = first_agreement(study, [summary])
        design = Design(study, agreement if asks_more(study) else learn(study, agreement, []))
        leaving += _rounds(study, design)
        method = method_text(study, len(design.names), 1)
        sections["to agree to this study with this method, and to no other, in [permit] of site.toml"] = [
            f'digests = ["{study.digest}+{method}"]',
            *(
                ["the method is chosen by the number of columns that all sites agree on: the site's log has it in the end"]
                if study.method == "default"
                else []
            ),
        ]
        if permissions is not None and not asks_more(study):  # else rows are not known before all sites have told more
            rows = design_shards(design, {frame.source: table})
            sections["what your limits say"] = meaning(
                permissions, rows, intercept=design.appended_intercept, outputs=design.outputs
            )
    return TableCheck(sections, reasons)


def _rows(table: SiteTable) -> list[str]:
    study, frame = table.study, table.frame
    used = int(table.used.sum())
    lines = [*frame.notes, f"{frame.num_rows} rows, {used} of them used"]
    for name, column in table.columns.items():
        missing = int(column.missing.sum())
        if missing:
            what = {"refuse": "the study refuses that", "complete": "those rows are left out"}.get(
                study.missing, "the mean is filled in, with an indicator"
            )
            lines.append(f"'{name}' is missing in {missing} rows: {what}")
    outcome = table.columns.get(study.event_column)
    if study.has_events and outcome is not None:
        labels = outcome.rows(table.used).counts()
        events, others = (sum(labels[label] for label in which) for which in (study.event, study.non_event))
        lines.append(f"{events} events, {others} non-events")
    return lines


def _columns(table: SiteTable) -> list[str]:
    study = table.study
    lines = []
    for name in study.needed:
        if name not in table.columns:
            lines.append(f"'{name}' is not there")
            continue
        column = table.columns[name]
        if table.is_category(name):
            counts = column.counts()
            shown = ", ".join(f"{level} ({count})" for level, count in sorted(counts.items())[:12])
            more = f" and {len(counts) - 12} more" if len(counts) > 12 else ""
            lines.append(f"'{name}' category: {shown}{more}")
        elif column.numeric and not column.missing.all():
            values = column.present
            unit = f" {study.rule(name).unit}" if study.rule(name).unit else ""
            low, middle, high = values.min(), values.mean(), values.max()
            lines.append(f"'{name}' number: {low:.5g} to {high:.5g}{unit}, mean {middle:.5g}")
        else:
            lines.append(f"'{name}' {column.kind}")
    ignored = [f"'{name}'" for name in table.frame.columns if name not in study.needed]
    if ignored:
        lines.append(f"ignored: {', '.join(ignored[:20])}{', ...' if len(ignored) > 20 else ''}")
    return lines


def _rounds(study: Study, design: Design) -> list[str]:
    """Sentences on what training would send, as far as one site's table can tell."""
    features = len(design.names)
    algorithm = parse_method(method_text(study, features, 1)).algorithm
    entries = triangle_size(features) + features
    return [
        f"each round, at most {study.rounds}: what {algorithm.name} sends, {algorithm.uplink} numbers for M = {features} "
        "coefficients",
        f"before and after: gradient and Hessian, for rank and separation ({bytes_text(8 * entries)} each)",
    ]
