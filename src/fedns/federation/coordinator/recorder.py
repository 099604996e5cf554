"""What a coordinator writes down while it runs: events, messages, rounds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from fedns.core.files import append_line
from fedns.core.history import Observer, Record

LOG_FILE, LEDGER_FILE, ROUNDS_FILE = "log.jsonl", "ledger.jsonl", "rounds.jsonl"
RECORDS = (LOG_FILE, LEDGER_FILE, ROUNDS_FILE)


class Recorder(Observer):
    """Appends a line to a file for every event, message and round, the moment it happens."""

    def __init__(self, folder: Path, records: list[Record], method: str, *, resumed: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log, self._ledger, self._rounds = (folder / name for name in (LOG_FILE, LEDGER_FILE, ROUNDS_FILE))
        # Rounds that the checkpoint does not have are repeated: their lines go.
        begun_anew = (self._rounds,) if records or resumed else (self._rounds, self._log, self._ledger)
        for path in begun_anew:
            path.write_bytes(b"")
        self._method = method
        for record in records:
            self.on_round(record, None)

    def event(self, event: str, **facts: Any) -> None:
        append_line(self._log, json.dumps({"time": _now(), "event": event, **facts}))

    def message(self, **facts: Any) -> None:
        append_line(self._ledger, json.dumps({"time": _now(), **facts}))

    def on_round(self, record: Record, state: Any) -> None:
        append_line(self._rounds, json.dumps({"method": self._method, "trial": 0, **record.as_dict()}))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
