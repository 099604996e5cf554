"""Where a run over sites stands: fresh at its start, saved after every round, loaded to go on to the same bits."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedns.core.algorithm import State
from fedns.core.cohort import Session
from fedns.core.errors import ConfigError, DataError, FednsError
from fedns.core.files import disk_trouble, write_whole
from fedns.core.history import Observer, Record
from fedns.core.messages import WIRE_PRECISIONS, Message
from fedns.core.messages.encoding import Envelope, decode, encode
from fedns.core.messages.ledger import LedgerEntry, Meter
from fedns.core.run import Progress
from fedns.core.types import FloatArray
from fedns.federation.coordinator.influence import Evidence
from fedns.models.problem import Problem
from fedns.runs.builder import problem_of
from fedns.runs.over_sites import SiteRun, read_agreed

FORMAT = 3  # 2 was that of 0.1, whose sites speak otherwise
CHECKPOINT_FILE, EPOCH_FILE = "checkpoint", "epoch"


class DiskError(FednsError):
    """The coordinator's own disk, once a run is under way: what was written is whole, and the run can go on from there."""

    exit_status: ClassVar[int] = 8


@contextlib.contextmanager
def needing_disk(folder: Path) -> Iterator[None]:
    """Trouble with the disk ends the run of this folder in a sentence that says how to go on, once there is a checkpoint."""
    try:
        yield
    except OSError as error:
        trouble = disk_trouble(error)
        if not trouble or not (folder / CHECKPOINT_FILE).exists():
            raise
        raise DiskError(
            f"the disk of this coordinator cannot be used ('{error.filename or folder}': {trouble}): "
            "make room there, or mend it, then go on with --resume"
        ) from error


@dataclass
class RunState(Observer):
    """All that a coordinator has to remember of a run. As an observer of the run it is saved after every round."""

    spec: SiteRun
    folder: Path
    run: bytes  # 16 bytes that no other run has
    session: Session  # the round, the meter and the number of features
    epoch: int = 0  # grows when a round is repeated
    exchange: int = 0  # grows with every request
    committed_rounds: list[int] = field(default_factory=list)  # by client: what it did in rounds before this one was used
    total_weights: FloatArray = field(default_factory=lambda: np.zeros(0))  # by client; empty until all have registered
    rows: FloatArray = field(default_factory=lambda: np.zeros(0))  # by client, however they are weighted
    records: list[Record] = field(default_factory=list)
    method_state: State | None = None  # of the method, after the round of the last record
    # Not saved: all are asked again.
    away: set[int] = field(default_factory=set)  # clients that are not asked in this round
    last: dict[tuple[str, int], Message] = field(default_factory=dict)  # replies to fall back on, by handler and client
    evidence: Evidence = field(default_factory=Evidence)  # of what each site does to the model

    @classmethod
    def open(cls, spec: SiteRun, folder: Path, problem: Problem | None = None, *, resume: bool) -> RunState:
        """The run that begins in this folder, or that was interrupted there. problem: unless it is the one of the spec."""
        if not resume and (folder / CHECKPOINT_FILE).exists():
            raise ConfigError(f"{folder} holds a run already: go on with --resume, or give another 'out' in the experiment")
        if not resume:
            return cls.fresh(spec, folder, problem)
        state = cls.load(spec, folder, problem)
        state.new_epoch()  # no site may take what is sent now for something older
        return state

    @classmethod
    def fresh(cls, spec: SiteRun, folder: Path, problem: Problem | None = None) -> RunState:
        """The state of a run that nobody has heard of yet."""
        session = Session(problem or problem_of(spec), spec.seed, spec.wire)
        return cls(spec, folder, secrets.token_bytes(16), session, committed_rounds=[0] * len(spec.sites))

    @classmethod
    def load(cls, spec: SiteRun, folder: Path, problem: Problem | None = None) -> RunState:
        """Read back, to the last bit, the run that this folder holds, or say what is wrong with its file."""
        path, epoch = checkpoint_in(folder), folder / EPOCH_FILE
        check, _, body = path.read_bytes().partition(b"\n")
        if check != f"{zlib.crc32(body):08x}".encode():
            raise DataError(f"'{path}' is damaged: its checksum does not match; restore it from a copy, or start anew")
        try:
            values = json.loads(body)
            agreed = read_agreed(values["agreed"].encode()).agreed()
            state = cls._from_values(spec, folder, problem or problem_of(spec), values)
        except (ValueError, TypeError, KeyError, AttributeError):  # a MessageError is a ValueError
            raise DataError(f"'{path}' was written by another version of fedns: finish the run with that one") from None
        if agreed != spec.agreed():
            raise ConfigError(
                f"what was agreed with the sites has changed since the run in {folder} began: start anew in another folder"
            )
        # A round may have been repeated since the checkpoint.
        state.epoch = max(state.epoch, int(epoch.read_text()) if epoch.exists() else 0)
        return state

    @property
    def progress(self) -> Progress | None:
        """Where the round loop goes on; None where it has not begun."""
        return Progress(self.method_state, self.records) if self.method_state is not None else None

    def new_epoch(self) -> None:
        """What sites did in this round is over: they go back to where it began."""
        self.epoch += 1
        write_whole(self.folder / EPOCH_FILE, str(self.epoch).encode())  # before a packet with it leaves

    def on_round(self, record: Record, state: Any) -> None:
        self.records.append(record)
        self.method_state = state
        self.save()

    def save(self) -> None:
        """Write it whole; there is no pickle in it."""
        assert self.method_state is not None  # a round has been made
        state = encode(self.method_state, Envelope(self.records[-1].round), WIRE_PRECISIONS["float64"])
        meter = self.session.meter
        values: dict[str, Any] = {
            "fedns_checkpoint": FORMAT,
            "agreed": self.spec.agreed().decode(),
            "run": self.run.hex(),
            "epoch": self.epoch,
            "exchange": self.exchange,
            "committed_rounds": self.committed_rounds,
            "num_features": self.session.num_features,
            "total_weights": self.total_weights.tolist(),
            "rows": self.rows.tolist(),
            "meter": {**vars(meter), "ledger": [entry.total() for entry in meter.ledger]},
            "records": [record.as_dict() for record in self.records],
            "state_kind": _full_name(type(self.method_state)),
            "state": base64.b64encode(state).decode(),
        }
        body = json.dumps(values).encode()
        write_whole(self.folder / CHECKPOINT_FILE, f"{zlib.crc32(body):08x}\n".encode() + body)

    @classmethod
    def _from_values(cls, spec: SiteRun, folder: Path, problem: Problem, values: Any) -> RunState:
        kinds = {_full_name(kind): kind for kind in _all_kinds(State)}
        if values["fedns_checkpoint"] != FORMAT:
            raise ValueError(values["fedns_checkpoint"])
        meter = values["meter"]
        meter["ledger"] = [LedgerEntry.of_total(entry) for entry in meter["ledger"]]
        records = [Record.from_dict(record) for record in values["records"]]
        where = {"round": records[-1].round, "num_features": values["num_features"]}
        return cls(
            spec,
            folder,
            bytes.fromhex(values["run"]),
            Session(problem, spec.seed, spec.wire, Meter(**meter), **where),
            values["epoch"],
            values["exchange"],
            values["committed_rounds"],
            np.array(values["total_weights"]),
            np.array(values["rows"]),
            records,
            decode(kinds[values["state_kind"]], base64.b64decode(values["state"]))[0],
        )


def checkpoint_in(folder: Path) -> Path:
    """The file that a run goes on from."""
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        raise DataError(f"there is no checkpoint at '{path}': nothing to resume, start without --resume")
    return path


def _full_name(kind: type[State]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _all_kinds(kind: type[State]) -> Iterator[type[State]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _all_kinds(child)
