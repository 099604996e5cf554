"""What a coordinator writes down while it runs: events, messages, rounds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO, Any

from fedns.core.history import Observer, Record

LOG_FILE, LEDGER_FILE, ROUNDS_FILE = "log.jsonl", "ledger.jsonl", "rounds.jsonl"
RECORDS = (LOG_FILE, LEDGER_FILE, ROUNDS_FILE)


class Recorder(Observer):
    """Appends a line to a file for every event, message and round, the moment it happens."""

    def __init__(self, folder: Path, records: list[Record], method: str, *, resumed: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        mode = "a" if records or resumed else "w"
        self._log, self._ledger = ((folder / name).open(mode, encoding="utf-8") for name in (LOG_FILE, LEDGER_FILE))
        # Rounds that the checkpoint does not have are repeated: their lines go.
        self._rounds = (folder / ROUNDS_FILE).open("w", encoding="utf-8")
        self._method = method
        for record in records:
            self.on_round(record, None)

    def event(self, event: str, **facts: Any) -> None:
        _line(self._log, {"time": _now(), "event": event, **facts})

    def message(self, **facts: Any) -> None:
        _line(self._ledger, {"time": _now(), **facts})

    def on_round(self, record: Record, state: Any) -> None:
        _line(self._rounds, {"method": self._method, "trial": 0, **record.as_dict()})

    def close(self) -> None:
        for file in (self._log, self._ledger, self._rounds):
            file.close()


def _line(file: IO[str], values: dict[str, Any]) -> None:
    file.write(json.dumps(values) + "\n")
    file.flush()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
