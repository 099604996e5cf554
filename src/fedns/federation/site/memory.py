"""What a site keeps of a run between requests, on disk: its process may be a new one for every message."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import MessageError
from fedns.core.files import written_beside
from fedns.runs.over_sites import SiteRun, read_agreed

Arrays = dict[str, NDArray[Any]]


@dataclass
class RunMemory:
    """How far a site is in a run, what its method remembers, and its last answer."""

    spec: SiteRun
    number: int  # the site's place in the run
    data: str  # what the site's rows looked like when the run began
    epoch: int = 0
    exchange: int = 0
    round: int = 0
    digest: str = ""  # of the last request, so that a repeated one gets the same answer
    answer: bytes = b""
    arrays: Arrays = field(default_factory=dict)  # as they are now
    before_round: Arrays = field(default_factory=dict)  # as they were when the round began

    def enter(self, epoch: int, round: int, committed_rounds: int) -> None:
        """Get ready for a request of this epoch and round: go on, or take back a round that was not used."""
        if epoch < self.epoch:
            raise MessageError(f"epoch {epoch} is over: this site is in epoch {self.epoch}")
        if round < self.round:
            raise MessageError(f"round {round} is over: this site is in round {self.round}")
        if (epoch, round) != (self.epoch, self.round):
            # The round is repeated; or it was, without this site, whose answers came late or not at all.
            kept = self.arrays if self.round < committed_rounds else self.before_round
            self.arrays, self.before_round = ({name: array.copy() for name, array in kept.items()} for _ in range(2))
        self.epoch, self.round = epoch, round

    def save(self, path: Path, settle: Callable[[], None] = lambda: None) -> None:
        """Write it whole; there is no pickle in it.

        settle: what has to be over before it takes effect, and does not happen where there is no room for it.
        """
        head = {
            "agreed": self.spec.agreed().decode(),
            "number": self.number,
            "data": self.data,
            "epoch": self.epoch,
            "exchange": self.exchange,
            "round": self.round,
            "digest": self.digest,
        }
        arrays: dict[str, Any] = {f"now.{name}": array for name, array in self.arrays.items()}
        arrays |= {f"before.{name}": array for name, array in self.before_round.items()}
        buffer = io.BytesIO()
        np.savez(buffer, head=_as_bytes(json.dumps(head).encode()), answer=_as_bytes(self.answer), **arrays)
        content = buffer.getvalue()
        with written_beside(path, f"{zlib.crc32(content):08x}\n".encode() + content, durable=False):
            settle()

    @classmethod
    def load(cls, path: Path) -> RunMemory:
        """Read it back; what the disk or anybody has changed since is not taken."""
        check, _, content = path.read_bytes().partition(b"\n")
        if check != f"{zlib.crc32(content):08x}".encode():
            raise MessageError("what this site remembers of the run is damaged: start a new run")
        try:
            found = cls._from_archive(io.BytesIO(content))
            found.check()
            return found
        except Exception:  # there is no end to what readers of archives, arrays and JSON raise
            raise MessageError("another version of fedns wrote what this site remembers: start a new run") from None

    def check(self) -> None:
        """Refuse what no site writes."""
        counts = (self.number, self.epoch, self.exchange, self.round)
        if not all(type(count) is int and count >= 0 for count in counts) or self.number >= len(self.spec.sites):
            raise MessageError("a count is no count")
        if not (isinstance(self.data, str) and isinstance(self.digest, str)):
            raise MessageError("a mark is no text")

    @classmethod
    def _from_archive(cls, content: io.BytesIO) -> RunMemory:
        with np.load(content, allow_pickle=False) as archive:
            head = json.loads(archive["head"].tobytes())
            by_time: dict[str, Arrays] = {"now": {}, "before": {}}
            for key in archive.files:
                when, _, name = key.partition(".")
                if when in by_time:
                    by_time[when][name] = archive[key]
            answer = archive["answer"].tobytes()
        spec = read_agreed(head.pop("agreed").encode())
        return cls(spec, answer=answer, arrays=by_time["now"], before_round=by_time["before"], **head)


def _as_bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)
