"""Where a run stands after a round, on disk, so that a coordinator that died can go on to the same bits."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedns.core.errors import DataError
from fedns.core.files import write_whole
from fedns.core.history import Record
from fedns.core.messages import WIRE_PRECISIONS, Envelope, Message, decode, encode
from fedns.core.meter import LedgerEntry, Meter
from fedns.core.observers import Observer
from fedns.core.run import Progress
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.runs.job import Job

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """Everything that the coordinator needs to go on after the round of the last record."""

    job: Job
    run: bytes
    epoch: int
    exchange: int
    committed_rounds: list[int]  # by client, as the link has it
    num_features: int
    total_weights: list[float]
    meter: Meter
    records: list[Record]
    state: Message

    @property
    def progress(self) -> Progress:
        return Progress(self.state, self.records)

    def save(self, path: Path) -> None:
        state = encode(self.state, Envelope(self.records[-1].round), WIRE_PRECISIONS["float64"])
        values: dict[str, Any] = {
            "fedns_checkpoint": FORMAT,
            "job": self.job.to_json().decode(),
            "run": self.run.hex(),
            "epoch": self.epoch,
            "exchange": self.exchange,
            "committed_rounds": self.committed_rounds,
            "num_features": self.num_features,
            "total_weights": self.total_weights,
            "meter": {**vars(self.meter), "ledger": [vars(entry) for entry in self.meter.ledger]},
            "records": [record.as_dict() for record in self.records],
            "state_kind": _full_name(type(self.state)),
            "state": base64.b64encode(state).decode(),
        }
        body = json.dumps(values).encode()
        write_whole(path, f"{zlib.crc32(body):08x}\n".encode() + body)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read it back to the last bit, or say what is wrong with the file."""
        if not path.is_file():
            raise DataError(f"there is no checkpoint at '{path}': nothing to resume, start without --resume")
        check, _, body = path.read_bytes().partition(b"\n")
        if check != f"{zlib.crc32(body):08x}".encode():
            raise DataError(f"'{path}' is damaged: its checksum does not match; restore it from a copy, or start anew")
        try:
            return cls._from_values(json.loads(body))
        except (ValueError, TypeError, KeyError, AttributeError):  # a MessageError is a ValueError
            raise DataError(f"'{path}' was written by another version of fedns: finish the run with that one") from None

    @classmethod
    def _from_values(cls, values: Any) -> Checkpoint:
        kinds = {_full_name(kind): kind for kind in _all_kinds(Message)}
        if values["fedns_checkpoint"] != FORMAT:
            raise ValueError(values["fedns_checkpoint"])
        state, _ = decode(kinds[values["state_kind"]], base64.b64decode(values["state"]))
        meter = values["meter"]
        meter["ledger"] = [LedgerEntry(**{**entry, "fields": tuple(entry["fields"])}) for entry in meter["ledger"]]
        return cls(
            Job.from_json(values["job"].encode()),
            bytes.fromhex(values["run"]),
            values["epoch"],
            values["exchange"],
            values["committed_rounds"],
            values["num_features"],
            values["total_weights"],
            Meter(**meter),
            [Record.from_dict(record) for record in values["records"]],
            state,
        )


class Checkpointer(Observer):
    """Writes a checkpoint after every round."""

    def __init__(self, path: Path, cohort: NetworkedCohort, records: Sequence[Record] = ()) -> None:
        self._path, self._cohort = path, cohort
        self._records = list(records)

    def on_round(self, record: Record, state: Any) -> None:
        self._records.append(record)
        link, session = self._cohort.link, self._cohort.session
        Checkpoint(
            link.job,
            link.run,
            link.epoch,
            link.exchange,
            link.committed_rounds,
            session.num_features,
            np.asarray(self._cohort.total_weights).tolist(),
            session.meter,
            self._records,
            state,
        ).save(self._path)


def _full_name(kind: type[Message]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _all_kinds(kind: type[Message]) -> Iterator[type[Message]]:
    for child in kind.__subclasses__():
        yield child
        yield from _all_kinds(child)
