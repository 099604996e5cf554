"""One figure, table or theorem of the paper, as it turned out here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fedns.paper.verdict import Outcome, Verdict
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


def judge(claim: str, says: str, checks: Mapping[str, bool], evidence: str, *, if_some: str = "") -> Verdict | None:
    """A claim that should hold in several places: in all, in none, or in those that are named as the condition.

    `if_some` says in words what the places where it holds have in common. None where nothing was measured.
    """
    if not checks:
        return None
    good = [place for place, found in checks.items() if found]
    bad = [place for place, found in checks.items() if not found]
    outcome: Outcome = "holds if" if good and bad else "holds" if good else "does not hold"
    if outcome != "holds if":
        return Verdict(claim, says, outcome, "", evidence)
    where = f"one looks at {gathered(good)}; not at {gathered(bad)}"
    return Verdict(claim, says, outcome, if_some or where, f"{evidence}; {where}" if if_some else evidence)


def judged(*verdicts: Verdict | None) -> list[Verdict]:
    """Those that there was something to judge by."""
    return [verdict for verdict in verdicts if verdict is not None]


def gathered(places: Iterable[str]) -> str:
    """`a on x, a on y, b on x` as `a on x and y, b on x`."""
    groups: dict[str, list[str]] = {}
    for place in places:
        who, on, where = place.rpartition(" on ")
        groups.setdefault(who + on, []).append(where)
    return ", ".join(f"{who}{' and '.join(found) if who else ', '.join(found)}" for who, found in groups.items())


def in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Figures, tables, theorems, each by number."""
    kinds = ("Fig", "Table", "Theorem")
    return sorted(
        verdicts, key=lambda v: (next((i for i, k in enumerate(kinds) if v.claim.startswith(k)), len(kinds)), _place(v))
    )


def _place(verdict: Verdict) -> str:
    # The rows of a table keep the order of the table.
    return verdict.claim.split(",")[0] if verdict.claim.startswith("Table") else verdict.claim
