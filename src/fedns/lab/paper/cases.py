"""The runs of a case, and the questions that every figure and table asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from fedns.core.numbers import DASH, bytes_text, gap_text, rounds_text
from fedns.core.termination import Ending
from fedns.lab.comparison.results import TrialRun, read_runs
from fedns.lab.comparison.sweep import Sweep, clients_of, is_finished
from fedns.reports.charts import grouped
from fedns.runs.compare import Compare

GAPS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
FLOOR = 1e-14  # differences of objectives below are rounding errors


@dataclass(frozen=True)
class MethodRuns:
    """Several trials of one method."""

    method: str
    clients: int
    runs: Sequence[TrialRun]

    def rounds_to(self, gap: float) -> float | None:
        """The mean over trials, or None where not every trial got there."""
        hits = [run.first_below(gap) for run in self.runs]
        return None if None in hits else fmean(hit.round for hit in hits if hit is not None)

    def bytes_to(self, gap: float) -> float | None:
        """The bytes that a client sent on the way there."""
        hits = [run.first_below(gap) for run in self.runs]
        return None if None in hits else fmean(hit.uplink_bytes / self.clients for hit in hits if hit is not None)

    def gap_after(self, rounds: int) -> float:
        """The median over trials; a run that ended earlier keeps its last gap."""
        return median(self.gaps(run)[: rounds + 1][-1] for run in self.runs)

    @property
    def last_round(self) -> int:
        return max(run.last.round for run in self.runs)

    @property
    def final_gap(self) -> float:
        return median(self.gaps(run)[-1] for run in self.runs)

    @property
    def ending(self) -> Ending:
        """The ending of the first trial that did not converge, or else of the first one."""
        return next((run.ending for run in self.runs if not run.converged), self.runs[0].ending)

    @staticmethod
    def gaps(run: TrialRun) -> list[float]:
        return [max(FLOOR, record.suboptimality or 0.0) for record in run.records]


@dataclass(frozen=True)
class CaseRuns:
    """The runs of one case of a sweep, by method as typed."""

    label: str
    spec: Compare
    clients: int
    methods: dict[str, MethodRuns]

    def of(self, name: str) -> MethodRuns | None:
        """The method that was typed so, or else the first of that name."""
        if name in self.methods:
            return self.methods[name]
        return next((found for typed, found in self.methods.items() if typed.split(":")[0] == name), None)


def read_cases(sweep: Sweep) -> list[CaseRuns]:
    """Every finished case of a sweep."""
    found = []
    for case in sweep.cases:
        if is_finished(case.spec):
            clients = clients_of(case.spec.folder)
            groups = grouped(read_runs(case.spec.folder), lambda run: run.method)
            methods = {name: MethodRuns(name, clients, runs) for name, runs in groups.items()}
            found.append(CaseRuns(case.label, case.spec, clients, methods))
    return found


def as_in_the_paper(cases: Sequence[CaseRuns]) -> list[CaseRuns]:
    """Without the unscaled columns of a set that is there scaled too."""
    scaled = {case.spec.dataset for case in cases if case.spec.scale != "none"}
    return [case for case in cases if case.spec.scale != "none" or case.spec.dataset not in scaled]


def rounds_or_more(found: MethodRuns, gap: float) -> str:
    """Rounds to a gap in words, with a lower bound where the run was over before."""
    rounds = found.rounds_to(gap)
    return f"> {found.last_round}" if rounds is None else rounds_text(rounds)


def reached_text(found: MethodRuns | None, gap: float, *, how_it_ended: bool = False) -> str:
    """Rounds and bytes to a gap, or the gap at the end with how it ended or after how many rounds."""
    if found is None:
        return DASH
    rounds, sent = found.rounds_to(gap), found.bytes_to(gap)
    if rounds is not None and sent is not None:
        return f"{rounds:.1f} / {bytes_text(sent)}"
    final = gap_text(found.final_gap)
    return f"{found.ending.label} {final}" if how_it_ended else f"{final} after {found.last_round}"
