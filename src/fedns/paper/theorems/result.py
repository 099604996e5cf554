"""What measuring a theorem gives."""

from __future__ import annotations

from dataclasses import dataclass

from fedns.paper.verdict import Verdict
from fedns.reporting.charts import Chart


@dataclass(frozen=True)
class TheoremResult:
    """Figures, tables (title, headings, rows), the numbers that decide, and what they decide."""

    charts: list[Chart]
    tables: list[tuple[str, list[str], list[list[str]]]]
    findings: dict[str, float]
    verdicts: list[Verdict]
