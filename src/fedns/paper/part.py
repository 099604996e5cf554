"""One figure, table or theorem of the paper, as it turned out here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fedns.paper.verdict import Verdict
from fedns.reporting.charts import Chart

Table = tuple[str, list[str], list[list[str]]]  # title, headings, rows


@dataclass(frozen=True)
class Part:
    """What a part of the report shows, and what it decides."""

    title: str
    words: list[str] = field(default_factory=list)  # paragraphs
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    findings: dict[str, float] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)


def table_of(title: str, rows: Iterable[Mapping[str, str]]) -> Table:
    """A table whose rows are cells by heading, all with the same headings."""
    listed = list(rows)
    return title, list(listed[0]) if listed else [], [list(row.values()) for row in listed]
