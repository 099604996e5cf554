"""The runs of a comparison as they are written, round by round, and read back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from fedns.core.checked import checked
from fedns.core.errors import DataError
from fedns.core.files import write_whole
from fedns.core.history import History, Observer, Record
from fedns.core.termination import Ending
from fedns.reports.charts import grouped

ROUNDS_FILE, RUNS_FILE = "rounds.jsonl", "runs.jsonl"


@dataclass(frozen=True)
class LedgerLine:
    """All messages of one kind in one run: what left each site, or reached it."""

    direction: str  # "uplink" or "downlink"
    kind: str
    fields: tuple[str, ...]
    at_start: bool  # in round 0, before the first model update
    messages: int  # over all clients
    bytes: int


@dataclass(frozen=True)
class TrialRun:
    """One method in one trial."""

    method: str
    trial: int
    records: list[Record]
    ending: Ending
    stop_reason: str  # the same in one sentence, with its numbers
    ledger: list[LedgerLine]
    coefficients: list[float] = field(default_factory=list)  # in the order of the columns, as scaled; none while it runs

    @property
    def converged(self) -> bool:
        return self.ending.converged

    @property
    def last(self) -> Record:
        return self.records[-1]

    def first_below(self, gap: float) -> Record | None:
        """The first record whose suboptimality is at most `gap`."""
        return next((r for r in self.records if r.suboptimality is not None and r.suboptimality <= gap), None)


class RoundsWriter(Observer):
    """Writes each round the moment it is known, and a line about the run when it ends."""

    def __init__(self, rounds: TextIO, runs: TextIO, method: str, trial: int) -> None:
        self._rounds, self._runs = rounds, runs
        self._of = {"method": method, "trial": trial}

    def on_round(self, record: Record, state: Any) -> None:
        _write_line(self._rounds, self._of | record.as_dict())

    def on_end(self, history: History) -> None:
        every = (LedgerLine(e.direction, e.kind, tuple(e.fields), e.round == 0, e.messages, e.bytes) for e in history.ledger)
        ledger = [asdict(line) for line in add_up(every)]
        ending = {"ending": history.ending.key, "stop_reason": history.stop_reason, "converged": history.converged}
        _write_line(self._runs, self._of | ending | {"ledger": ledger, "coefficients": history.coefficients.tolist()})


def add_up(lines: Iterable[LedgerLine]) -> list[LedgerLine]:
    """Lines of the same messages as one, in the order in which they first appear."""
    groups = grouped(lines, lambda line: (line.direction, line.kind, line.fields, line.at_start))
    return [LedgerLine(*key, sum(e.messages for e in own), sum(e.bytes for e in own)) for key, own in groups.items()]


@checked
def read_runs(folder: str | Path) -> list[TrialRun]:
    """Every run in a folder, finished or not, in the order in which they ran.

    - folder: where `fedns compare` or `fedns.compare` wrote its results.
    """
    folder = Path(folder)
    records: dict[tuple[str, int], list[Record]] = {}
    for line in _read_lines(folder / ROUNDS_FILE):
        records.setdefault((line.pop("method"), line.pop("trial")), []).append(Record.from_dict(line))
    endings = {(line["method"], line["trial"]): line for line in _read_lines(folder / RUNS_FILE)}
    return [_run(*key, rounds, endings.get(key)) for key, rounds in records.items()]


def keep_finished(folder: Path) -> set[tuple[str, int]]:
    """Cut a folder's results down to the runs that have ended; which ones those are, by method and trial."""
    if not (folder / ROUNDS_FILE).is_file() or not (folder / RUNS_FILE).is_file():
        return set()
    endings = _read_lines(folder / RUNS_FILE)
    ended = {(line["method"], line["trial"]) for line in endings}
    rounds = [line for line in _read_lines(folder / ROUNDS_FILE) if (line["method"], line["trial"]) in ended]
    # Rounds first: a run whose ending is there has all its rounds, whenever this process is killed.
    write_whole(folder / ROUNDS_FILE, "".join(json.dumps(line) + "\n" for line in rounds))
    write_whole(folder / RUNS_FILE, "".join(json.dumps(line) + "\n" for line in endings))
    return ended


def _run(method: str, trial: int, records: list[Record], ending: dict[str, Any] | None) -> TrialRun:
    if ending is None:
        return TrialRun(method, trial, records, Ending.INTERRUPTED, Ending.INTERRUPTED.label, [])
    ledger = [LedgerLine(**{**line, "fields": tuple(line["fields"])}) for line in ending["ledger"]]
    return TrialRun(
        method, trial, records, Ending.of(ending["ending"]), ending["stop_reason"], ledger, ending.get("coefficients", [])
    )


def _write_line(file: TextIO, values: dict[str, Any]) -> None:
    # JSON has no word for a number that is not finite.
    plain = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}
    file.write(json.dumps(plain) + "\n")
    file.flush()


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; a last line that was cut off in mid-write is not there yet."""
    if not path.is_file():
        raise DataError(f"there is no {path.name} in '{path.parent}': it is not a folder of results")
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines()]
