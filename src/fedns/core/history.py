"""The record of a run, and who watches it being made."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fedns.core.errors import DataError
from fedns.core.files import write_whole
from fedns.core.messages.ledger import LedgerEntry
from fedns.core.termination import Ending
from fedns.core.types import Array, FloatArray

_VERSION = 2  # of the saved form


@dataclass(frozen=True)
class Record:
    """One round. Seconds, exchanges and bytes are cumulative; bytes are summed over all clients.

    - round: from 0, the start.
    - exchanges: requests to clients and their answers.
    - seconds: of rounds, without evaluation.
    - uplink_bytes: sent by clients.
    - downlink_bytes: sent to clients.
    - objective: F(w).
    - suboptimality: F(w) - F*; None where the optimum is not known.
    - gradient_norm: |grad F(w)|.
    - diagnostics: the method's own numbers.
    - evaluation_bytes: sent both ways to evaluate, which no method needs.
    - note: what the method chose in this round and why, where it chooses.
    """

    round: int
    exchanges: int
    seconds: float
    uplink_bytes: int
    downlink_bytes: int
    objective: float
    suboptimality: float | None  # None where the optimum is not known
    gradient_norm: float
    diagnostics: dict[str, float] = field(default_factory=dict)
    evaluation_bytes: int = 0  # what asking sites for objective and gradient cost, both ways; no part of the other two
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Flat, ready for JSON, the method's own diagnostics last."""
        note = {"note": self.note} if self.note else {}
        return {name: getattr(self, name) for name in MEASURES} | note | self.diagnostics

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        own = {name: values[name] for name in MEASURES} | {"note": values.get("note", "")}
        return cls(**own, diagnostics={k: v for k, v in values.items() if k not in own})


MEASURES = tuple(one.name for one in fields(Record) if one.name not in ("diagnostics", "note"))


class _Measure:
    """A number of every record as an array, (rounds,); NaN where it is not known."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, history: History, owner: type) -> Array:
        values = [getattr(record, self._name) for record in history.records]
        return np.array([np.nan if value is None else value for value in values])


@dataclass
class History:
    """A run: one record per round from round 0, the start, and the result.

    - method: its name.
    - records: one fedns.Record per round.
    - coefficients: (features,), the intercept's last.
    - ending: why the run ended, a fedns.Ending.
    - stop_reason: the same in a sentence with numbers.
    - ledger: every exchange, with its messages and bytes.
    """

    method: str
    records: list[Record]
    coefficients: FloatArray
    ending: Ending
    stop_reason: str  # the same in one sentence, with its numbers
    ledger: list[LedgerEntry] = field(default_factory=list)

    @property
    def converged(self) -> bool:
        return self.ending.converged

    round = _Measure()
    exchanges = _Measure()
    seconds = _Measure()
    uplink_bytes = _Measure()
    downlink_bytes = _Measure()
    evaluation_bytes = _Measure()
    objective = _Measure()
    suboptimality = _Measure()
    gradient_norm = _Measure()

    def first_round_below(self, gap: float) -> Record | None:
        """The first record whose suboptimality is at most `gap`."""
        return next((r for r in self.records if r.suboptimality is not None and r.suboptimality <= gap), None)

    def to_frame(self) -> Any:
        """The records as a pandas frame, a row for each round."""
        try:
            import pandas as pd
        except ImportError:
            raise DataError("to_frame needs pandas: install it, or use the arrays of the history") from None
        return pd.DataFrame([record.as_dict() for record in self.records]).set_index("round")

    def _repr_html_(self) -> str:
        """The last records for a notebook."""
        rows = "".join(
            f"<tr><td>{r.round}</td><td>{r.objective:.10g}</td><td>{r.gradient_norm:.2e}</td><td>{r.uplink_bytes}</td></tr>"
            for r in self.records[-20:]
        )
        head = "<tr><th>round</th><th>objective</th><th>gradient norm</th><th>uplink bytes</th></tr>"
        return f"<p>{escape(self.method)}: {escape(self.stop_reason)}</p><table>{head}{rows}</table>"

    def save(self, path: str | Path) -> None:
        """Write the run as JSON lines: a line about the run, then a line per round."""
        head = {
            "fedns_history": _VERSION,
            "method": self.method,
            "ending": self.ending.key,
            "stop_reason": self.stop_reason,
            "coefficients": self.coefficients.tolist(),
            "ledger": [entry.total() for entry in self.ledger],
        }
        lines = [json.dumps(head)] + [json.dumps(record.as_dict()) for record in self.records]
        write_whole(Path(path), "\n".join(lines) + "\n", durable=False)

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Read back what `save` wrote, to the last bit."""
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        head = json.loads(lines[0]) if lines else {}
        if not isinstance(head, dict) or "fedns_history" not in head:
            raise DataError(f"{path} is not a saved history: write one with history.save(path)")
        if head["fedns_history"] != _VERSION:
            raise DataError(
                f"{path} is a history of version {head['fedns_history']}, not {_VERSION} as here: make the run again"
            )
        return cls(
            method=head["method"],
            records=[Record.from_dict(json.loads(line)) for line in lines[1:]],
            coefficients=np.array(head["coefficients"], dtype=np.float64),
            ending=Ending.of(head["ending"]),
            stop_reason=head["stop_reason"],
            ledger=[LedgerEntry.of_total(entry) for entry in head["ledger"]],
        )


class Observer:
    """Watches a run with the clock stopped, and may end it; does nothing unless overridden."""

    def on_round(self, record: Record, state: Any) -> str | None:
        """After every round, and once for round 0. A reason, as text, ends the run after this round; None lets it go on."""
        return None

    def on_end(self, history: History) -> None:
        """After the last round."""
