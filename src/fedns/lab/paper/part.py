"""The parts of the reproduction, and what became of the claims in them, decided from measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

from fedns.reports.charts import Chart

Outcome = Literal["holds", "holds if", "does not hold"]
Findings = Mapping[str, float]


@dataclass(frozen=True)
class ClaimVerdict:
    """One claim of the paper, what became of it, and the figures that decided."""

    claim: str  # number and place, such as "Fig. 1, claim 2"
    says: str  # the paper's sentence, in other words
    outcome: Outcome
    condition: str  # under which it holds; empty unless the outcome is "holds if"
    evidence: str  # the measured figures


class Check(NamedTuple):
    """One place where a claim was looked at; without a place there are only words."""

    place: str
    holds: bool
    measured: str = ""  # the figures


class Looked(NamedTuple):
    """What a look at a claim found, where it decides more than whether the claim holds at each place."""

    checks: Iterable[Check]
    evidence: str = "{measured}"
    if_some: str = ""  # what the places where it holds have in common, in words
    names_places: bool = True  # beside if_some


@dataclass(frozen=True)
class Claim:
    """A claim that is looked at place by place; called with what was measured it gives the verdict, None without a place."""

    name: str
    says: str
    evidence: str
    look: Callable[..., Iterable[Check] | Looked]

    def __call__(self, *measured: Any) -> ClaimVerdict | None:
        found = self.look(*measured)
        return judge(self.name, self.says, found if isinstance(found, Looked) else Looked(found, self.evidence))


def claim(name: str, says: str, evidence: str = "{measured}") -> Callable[[Callable[..., Iterable[Check] | Looked]], Claim]:
    """Make a claim of the function that looks at it."""
    return partial(Claim, name, says, evidence)


def claim_by_numbers(
    name: str,
    says: str,
    holds: Callable[[Findings], bool],
    evidence: str,
    holds_if: Callable[[Findings], bool] = lambda findings: False,
    condition: str = "",
) -> Claim:
    """A claim that a few numbers decide; evidence and condition have their names in braces."""

    def look(findings: Findings) -> Looked:
        as_stated = holds(findings)
        checks = [Check("as stated", as_stated), Check("on a condition", as_stated or holds_if(findings))]
        return Looked(checks, evidence.format_map(findings), condition.format_map(findings), names_places=False)

    return Claim(name, says, "", look)


def judge(name: str, says: str, looked: Looked) -> ClaimVerdict | None:
    """A claim that should hold in several places: in all, in none, or in those that are named as the condition."""
    found = list(looked.checks)
    text = looked.evidence.format(measured="; ".join(check.measured for check in found if check.measured))
    places = {check.place: all(c.holds for c in found if c.place == check.place) for check in found if check.place}
    if not places:
        return None
    good, bad = ([place for place, holds in places.items() if holds is wanted] for wanted in (True, False))
    if not (good and bad):
        return ClaimVerdict(name, says, "holds" if good else "does not hold", "", text)
    where = f"one looks at {gathered(good)}; not at {gathered(bad)}"
    named = f"{text}; {where}" if looked.if_some and looked.names_places else text
    return ClaimVerdict(name, says, "holds if", looked.if_some or where, named)


def verdicts_on(claims: Iterable[Claim], *measured: Any) -> list[ClaimVerdict]:
    """Verdicts on claims, without those that nothing was measured for."""
    return [verdict for one in claims if (verdict := one(*measured)) is not None]


def gathered(places: Iterable[str]) -> str:
    """`a on x, a on y, b on x` as `a on x and y, b on x`."""
    groups: dict[str, list[str]] = {}
    for place in places:
        who, on, where = place.rpartition(" on ")
        groups.setdefault(who + on, []).append(where)
    return ", ".join(f"{who}{' and '.join(found) if who else ', '.join(found)}" for who, found in groups.items())


def in_order(verdicts: Iterable[ClaimVerdict]) -> list[ClaimVerdict]:
    """Figures, tables, theorems, each by number."""
    kinds = ("Fig", "Table", "Theorem")
    return sorted(
        verdicts, key=lambda v: (next((i for i, k in enumerate(kinds) if v.claim.startswith(k)), len(kinds)), _place(v))
    )


def _place(verdict: ClaimVerdict) -> str:
    # The rows of a table keep the order of the table.
    return verdict.claim.split(",")[0] if verdict.claim.startswith("Table") else verdict.claim


Table = tuple[str, list[str], list[list[str]]]  # title, headings, rows


@dataclass(frozen=True)
class Part:
    """A part of the report: all that it shows, and what it decides."""

    title: str
    words: list[str] = field(default_factory=list)  # paragraphs
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    findings: dict[str, float] = field(default_factory=dict)
    verdicts: list[ClaimVerdict] = field(default_factory=list)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Part:
        """The part that `asdict` took apart."""
        charts, verdicts = (
            map(Chart.from_dict, values["charts"]),
            (ClaimVerdict(**verdict) for verdict in values["verdicts"]),
        )
        tables = (tuple(table) for table in values["tables"])
        return cls(**values | {"charts": list(charts), "verdicts": list(verdicts), "tables": list(tables)})


def table_of_rows(title: str, rows: Iterable[Mapping[str, str]]) -> Table:
    """A table whose rows are cells by heading, all with the same headings."""
    listed = list(rows)
    return title, list(listed[0]) if listed else [], [list(row.values()) for row in listed]
