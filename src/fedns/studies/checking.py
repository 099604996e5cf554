"""A look at one table through a study, at its site: nothing leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedns.core.messages.encoding import Envelope, encode
from fedns.core.numbers import bytes_text
from fedns.federation.site.explain import meaning
from fedns.federation.site.permissions import Permissions
from fedns.numerics.linalg import packed_size
from fedns.runs.methods import parse_method
from fedns.studies.fit import coded_shards
from fedns.studies.fitting.estimate import method_text
from fedns.studies.handshake.agreement import first_agreement
from fedns.studies.handshake.conflicts import conflicts
from fedns.studies.handshake.handshake import TableDescription
from fedns.studies.handshake.site_table import SiteTable
from fedns.studies.handshake.summary import packed, summary_of
from fedns.studies.study import Study
from fedns.studies.tables.design import Design
from fedns.studies.tables.files.frames import Frame


@dataclass(frozen=True)
class Check:
    """What was found: lines under headings, and every reason not to take part."""

    sections: dict[str, list[str]]
    reasons: list[str]


def check_table(study: Study, frame: Frame, permissions: Permissions | None = None) -> Check:
    """Rows, columns, levels, what would leave, what the owner's limits say to that, and what stands in the way."""
    smallest_count = max(1, (permissions or Permissions()).smallest_level)
    table = SiteTable(study, frame, smallest_count, permissions is not None and permissions.rare_levels == "blank")
    told = table.describe()
    summary = summary_of(study, frame.source, told)
    reasons = conflicts(study, [summary])
    message = TableDescription(schema=packed(told.schema), counts=told.counts, moments=told.moments)
    size = len(encode(message, Envelope(0, 0), np.dtype("<f8")))
    sections: dict[str, list[str]] = {"rows": _rows(table), "columns": _columns(table), "what would leave": []}
    leaving = sections["what would leave"]
    leaving.append(
        f"handshake, once: names of columns and levels, counts, means and standard deviations ({bytes_text(size)})"
    )
    leaving.append(f"groups of fewer than {smallest_count} rows are neither named nor counted in it")
    if not reasons:
        design = Design(study, first_agreement(study, [summary]))
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
        known = all(factor.function not in ("bs", "poly") for factor in study.parsed.factors)
        known &= study.feature_map is None or not study.feature_map.asks
        if permissions is not None and known:  # knots, powers, widths are not, before all sites have told theirs
            coded = coded_shards(design, {frame.source: table})
            sections["what your limits say"] = meaning(
                permissions, coded, intercept=design.appended_intercept, outputs=design.outputs
            )
    return Check(sections, reasons)


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
        if table.as_category(name):
            counts = column.counts()
            shown = ", ".join(f"{level} ({count})" for level, count in sorted(counts.items())[:12])
            more = f" and {len(counts) - 12} more" if len(counts) > 12 else ""
            lines.append(f"'{name}' category: {shown}{more}")
        elif column.numeric and not column.missing.all():
            values = np.asarray(column.values, dtype=np.float64)
            unit = f" {study.rule(name).unit}" if study.rule(name).unit else ""
            low, middle, high = np.nanmin(values), np.nanmean(values), np.nanmax(values)
            lines.append(f"'{name}' number: {low:.5g} to {high:.5g}{unit}, mean {middle:.5g}")
        else:
            lines.append(f"'{name}' {column.kind}")
    ignored = [f"'{name}'" for name in table.frame.columns if name not in study.needed]
    if ignored:
        lines.append(f"ignored: {', '.join(ignored[:20])}{', ...' if len(ignored) > 20 else ''}")
    return lines


def _rounds(study: Study, design: Design) -> list[str]:
    """What training would send, as far as one site's table can tell."""
    features = len(design.names)
    algorithm = parse_method(method_text(study, features, 1)).algorithm
    entries = packed_size(features) + features
    return [
        f"each round, at most {study.rounds}: what {algorithm.name} sends, {algorithm.uplink} numbers for M = {features} "
        "coefficients",
        f"before and after: gradient and Hessian, for rank and separation ({bytes_text(8 * entries)} each)",
    ]
