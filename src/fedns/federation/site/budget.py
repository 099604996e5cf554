"""What has left a site about its rows, over all runs, on disk before it leaves: a crash never gives any of it back.

A line survives the death of its process as soon as it is written; to survive a power cut it would have to wait for the disk.
So some of the budget is reserved on the disk ahead of its use, and all of that counts as spent once the machine was down.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import threading
import time
import weakref
from bisect import bisect_right, insort
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedns.core.files import locked
from fedns.core.shards import Shards
from fedns.numerics.rows import NARROW_TYPES, written_out

BUDGET_FOLDER = "budget"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CHUNK = 1 << 20
MINUTE, HOUR = 60.0, 3600.0  # seconds
_UNKNOWN = -1


def fingerprint(shards: Shards) -> str:
    """Tells these rows from any others: a hash of all their numbers, whatever type they are stored in."""
    found = hashlib.sha256(f"{shards.num_samples} x {shards.num_columns}".encode())
    for array in (shards.targets, shards.sample_weights, *written_out(shards.rows)):
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
    refused: bool = False  # a run that was not opened: that tells of the rows, too


class Amounts(NamedTuple):
    """So much of a budget."""

    points: int
    numbers: int
    sketched: int

    def covers(self, other: Amounts) -> bool:
        return self.points >= other.points and self.numbers >= other.numbers and self.sketched >= other.sketched

    def plus(self, other: Amounts, times: float) -> Amounts:
        points, numbers, sketched = other
        return Amounts(
            self.points + int(times * points), self.numbers + int(times * numbers), self.sketched + int(times * sketched)
        )


NO_MORE = Amounts(0, 0, 0)


@dataclass(frozen=True)
class Reserved:
    """Up to where a budget may have been spent while the machine was up, whatever else has reached the disk."""

    boot: str  # tells the machine's being up from any other time; empty where there is no telling
    reserved: list[int]  # totals, as `Amounts`

    @property
    def amounts(self) -> Amounts:
        return Amounts(*self.reserved)


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
    refusals: list[float] = field(default_factory=list)  # times of the runs of the last hour that were not opened, in order
    forgotten: int = 0  # points that were reserved, and perhaps asked about, when the machine went down
    reserved: Reserved | None = None

    @property
    def amounts(self) -> Amounts:
        return Amounts(len(self.points) + self.forgotten, self.numbers, self.sketched)

    def points_with(self, others: list[str]) -> int:
        """How many distinct points there would be with these."""
        return self.forgotten + len(self.points) + len(set(others) - self.points)

    def add(self, line: Line) -> None:
        self.points.update(line.points)
        if line.answer and line.answer not in self.answers:  # the same bytes again tell nothing new
            self.answers.add(line.answer)
            self.numbers, self.sketched = self.numbers + line.numbers, self.sketched + line.sketched
        self.tables += [table for table in line.tables if table not in self.tables]
        self.asked[line.run, line.round] = self.asked.get((line.run, line.round), 0) + 1
        times, seconds = (self.refusals, HOUR) if line.refused else (self.times, MINUTE)
        del times[: bisect_right(times, line.time - seconds)]
        insort(times, line.time)

    def reserve(self, reserved: Reserved) -> None:
        self.before_boot(reserved.boot)
        self.reserved = reserved

    def before_boot(self, boot: str) -> None:
        """What another time of the machine's reserved is spent: lines about it may not have reached the disk."""
        if self.reserved is not None and self.reserved.boot != boot:
            points, numbers, sketched = self.reserved.amounts
            self.forgotten += max(0, points - self.amounts.points)
            self.numbers, self.sketched = max(self.numbers, numbers), max(self.sketched, sketched)
            self.reserved = None

    def asked_since(self, moment: float) -> int:
        """How many requests came after that, at most a minute ago."""
        return len(self.times) - bisect_right(self.times, moment)

    def refused_since(self, moment: float) -> int:
        """Count how many runs were not opened after that, at most an hour ago."""
        return len(self.refusals) - bisect_right(self.refusals, moment)


class Budget:
    """A file of lines, one for every request that was worked on; several processes may share it."""

    def __init__(self, folder: Path, mark: str) -> None:
        self._path = folder / BUDGET_FOLDER / f"{mark}.jsonl"
        self._spent, self._read, self._inode = Spent(), 0, 0
        self._file, self._file_inode, self._turn = -1, _UNKNOWN, threading.Lock()  # open since it was first held
        self._disk = ThreadPoolExecutor(1, "fedns-budget")
        self._settling: tuple[Future[None], Amounts] | None = None
        self._on_disk = NO_MORE  # reserved, and known to have reached the disk
        self._must_wait = False

    @contextlib.contextmanager
    def held(self) -> Iterator[Spent]:
        """What has been spent so far; nobody else spends while the block lasts."""
        with self._turn:
            while True:
                with locked(self._opened()):
                    spent = self.spent()
                    if self._inode == self._file_inode:
                        yield spent
                        return
                self.close()  # the owner has put another in its place

    def close(self) -> None:
        """Let go of the file; it is opened again when it is held."""
        if self._file >= 0:
            self._close()
            self._file = -1

    def _opened(self) -> int:
        if self._file < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            self._file_inode = os.fstat(self._file).st_ino
            self._close = weakref.finalize(self, os.close, self._file)
        return self._file

    def spent(self) -> Spent:
        """Only what other processes have added since the last look is read."""
        try:
            file_now = self._path.stat()
            size, inode = file_now.st_size, file_now.st_ino
        except FileNotFoundError:
            size, inode = 0, 0
        if size < self._read or inode != self._inode:  # the owner has reset it
            self._spent, self._read, self._inode = Spent(), 0, inode
            self._settling, self._on_disk = None, NO_MORE
        if size > self._read:
            with self._path.open("rb") as file:
                file.seek(self._read)
                for line in file.read().splitlines():
                    with contextlib.suppress(ValueError, TypeError):  # torn by a crash, before its answer had left
                        self._take(json.loads(line))
                self._read = file.tell()
            self._spent.before_boot(_boot())
        return self._spent

    def _take(self, entry: dict[str, Any]) -> None:
        if "boot" in entry:
            self._spent.reserve(Reserved(**entry))
        else:
            self._spent.add(Line(**entry))

    def spend(self, line: Line, ahead: Amounts | None = None) -> None:
        """Write a line; to be called while the budget is held, when what was spent is known.

        ahead: it survives a power cut too, from when `settle` returns, and so much more is reserved for what comes next.
        """
        spent, new = self._spent, self._read == 0
        self._inode = _UNKNOWN  # read anew where writing fails
        spent.add(line)
        entries, reserved, amounts = [vars(line)], spent.reserved, spent.amounts
        if reserved is None or (ahead is not None and not reserved.amounts.covers(amounts.plus(ahead, 0.5))):
            # Half of what is reserved is left: what comes next need not wait for the disk.
            reserved = Reserved(_boot(), list(amounts.plus(ahead or NO_MORE, 1.0 if _boot() else 0.0)))
            spent.reserve(reserved)
            entries.insert(0, vars(reserved))
        # A line of its own even after one that was torn.
        text = "".join(f"\n{json.dumps(entry)}\n" for entry in entries).encode()
        if os.write(self._file, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._read, self._inode = self._read + len(text), self._file_inode
        self._must_wait = ahead is not None and (bool(line.tables) or not self._on_disk.covers(amounts))
        if self._must_wait or (ahead is not None and len(entries) > 1):
            folder = [os.open(self._path.parent, os.O_RDONLY)] if new else []  # which has the file's name
            self._settling = self._disk.submit(_to_disk, os.dup(self._file), *folder), reserved.amounts

    def settle(self) -> None:
        """Wait until what was spent is on the disk, or within what is reserved there: the answer leaves afterwards."""
        if self._settling is not None and (self._must_wait or self._settling[0].done()):
            (writing, amounts), self._settling = self._settling, None
            writing.result()
            self._on_disk = amounts


@cache
def _boot() -> str:
    """Another one whenever the machine has been down; nothing where that is not told, and then nothing is reserved ahead."""
    return _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""


def _to_disk(*files: int) -> None:
    try:
        for file in files:
            os.fsync(file)
    finally:
        for file in files:
            os.close(file)


def reset_budgets(folder: Path) -> int:
    """Begin anew, as the owner decides; the old lines are kept aside. Returns how many budgets there were."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    files = sorted((folder / BUDGET_FOLDER).glob("*.jsonl"))
    for path in files:
        with path.open("rb") as file, locked(file.fileno()):
            path.rename(path.with_suffix(f".{stamp}.reset"))
    return len([path for path in files if not path.stem.endswith(".rows")])
