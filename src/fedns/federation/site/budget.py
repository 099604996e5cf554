"""What has left a site about its rows, over all runs, on disk before it leaves: a crash never gives any of it back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from bisect import bisect_right, insort
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedns.core.files import alone_in
from fedns.core.shards import Shards
from fedns.numerics.rows import NARROW_TYPES

BUDGET_FOLDER = "budget"
_CHUNK = 1 << 20


def fingerprint(shards: Shards) -> str:
    """Tells these rows from any others: a hash of all their numbers, whatever type they are stored in."""
    found = hashlib.sha256(f"{shards.num_samples} x {shards.num_columns}".encode())
    for array in (shards.targets, shards.sample_weights, *shards.rows):
        if isinstance(array, np.ndarray):
            kind = np.dtype(np.float64) if array.dtype in NARROW_TYPES else array.dtype
            found.update(kind.str.encode())
            for start in range(0, array.size, _CHUNK):
                found.update(array[start : start + _CHUNK].astype(kind, copy=False).data)
    return found.hexdigest()[:32]


@dataclass(frozen=True)
class Line:
    """One request that was worked on."""

    points: list[str]  # hashes of the coefficients that it was about
    answer: str  # a hash of what left
    numbers: int  # that left
    sketched: int  # numbers of sketches that left, whose matrix only the site knows
    run: str
    round: int
    time: float
    tables: list[list[int]] = field(default_factory=list)  # of scores that left, with every cell


@dataclass
class Spent:
    """What the lines of a budget add up to."""

    points: set[str] = field(default_factory=set)
    answers: set[str] = field(default_factory=set)
    numbers: int = 0
    sketched: int = 0
    asked: dict[tuple[str, int], int] = field(default_factory=dict)  # by run and round
    tables: list[list[int]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # of the requests of the last minute, in order

    def add(self, line: Line) -> None:
        self.points |= set(line.points)
        if line.answer and line.answer not in self.answers:  # the same bytes again tell nothing new
            self.answers.add(line.answer)
            self.numbers, self.sketched = self.numbers + line.numbers, self.sketched + line.sketched
        self.tables += [table for table in line.tables if table not in self.tables]
        self.asked[line.run, line.round] = self.asked.get((line.run, line.round), 0) + 1
        del self.times[: bisect_right(self.times, line.time - 60.0)]
        insort(self.times, line.time)

    def asked_since(self, moment: float) -> int:
        """How many requests came after that, at most a minute ago."""
        return len(self.times) - bisect_right(self.times, moment)


class Budget:
    """A file of lines, one for every request that was worked on; several processes may share it."""

    def __init__(self, folder: Path, mark: str) -> None:
        self._path = folder / BUDGET_FOLDER / f"{mark}.jsonl"
        self._spent, self._read, self._inode = Spent(), 0, 0
        self._disk = ThreadPoolExecutor(1, "fedns-budget")
        self._settling: Future[None] | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[Spent]:
        """What has been spent so far; nobody else spends while the block lasts."""
        with alone_in(self._path.parent):
            yield self.spent()

    def spent(self) -> Spent:
        """Only what other processes have added since the last look is read."""
        file_now = self._path.stat() if self._path.exists() else None
        size, inode = (file_now.st_size, file_now.st_ino) if file_now else (0, 0)
        if size < self._read or inode != self._inode:  # the owner has reset it
            self._spent, self._read, self._inode = Spent(), 0, inode
        if size > self._read:
            with self._path.open("rb") as file:
                file.seek(self._read)
                for line in file.read().splitlines():
                    with contextlib.suppress(ValueError, TypeError):  # torn by a crash, before its answer had left
                        self._spent.add(Line(**json.loads(line)))
                self._read = file.tell()
        return self._spent

    def spend(self, line: Line, *, durable: bool = True) -> None:
        """Write a line; to be called while the budget is held.

        durable: it survives a power cut too, from when `settle` returns.
        """
        with self._path.open("ab") as file:
            file.write(f"\n{json.dumps(vars(line))}\n".encode())  # a line of its own even after one that was torn
            file.flush()
            if durable:
                self._settling = self._disk.submit(_to_disk, os.dup(file.fileno()))

    def settle(self) -> None:
        """Wait until what was spent is on the disk: the answer is put together meanwhile, and leaves afterwards."""
        if self._settling is not None:
            settling, self._settling = self._settling, None
            settling.result()


def _to_disk(file: int) -> None:
    try:
        os.fsync(file)
    finally:
        os.close(file)


def reset_budgets(folder: Path) -> int:
    """Begin anew, as the owner decides; the old lines are kept aside. Returns how many budgets there were."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    files = sorted((folder / BUDGET_FOLDER).glob("*.jsonl"))
    with alone_in(folder / BUDGET_FOLDER):
        for path in files:
            path.rename(path.with_suffix(f".{stamp}.reset"))
    return len(files)
