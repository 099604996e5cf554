"""A site: answers requests about its own rows, within what its owner permits, and writes down all that leaves it."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedns.core.clients import ClientMemory, Clients, Handler, messages_of
from fedns.core.errors import ConfigError, FednsError, MessageError
from fedns.core.files import write_whole
from fedns.core.messages import (
    WIRE_PRECISIONS,
    Envelope,
    Message,
    Ragged,
    decode,
    encode,
    handler_named_in,
    refuse_non_finite,
    split_batch,
)
from fedns.core.shards import Shards
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, REFUSAL, Packet
from fedns.federation.site.memory import RunMemory
from fedns.numerics.linalg import single_threaded_blas
from fedns.problems.problem import Problem
from fedns.runs.policy import LARGEST_BYTES
from fedns.runs.spec import Spec

LEDGER_FILE, SKETCHED_FILE = "ledger.jsonl", "sketched-rows"


@dataclass(frozen=True)
class Permissions:
    """What the owner of the data lets a coordinator ask for."""

    handlers: tuple[str, ...] | None = None  # None: any that the method has
    smallest_rows: int = 10  # with fewer rows the site takes no part
    largest_sketch_fraction: float = 1.0  # rows of a sketch, relative to the rows of the site
    wire: tuple[str, ...] = tuple(WIRE_PRECISIONS)
    rounds: int = 1000
    largest_bytes: int = LARGEST_BYTES
    largest_total_sketch_fraction: float = math.inf  # rows of all sketches ever sent: from 1 on, rows can be solved for

    def __post_init__(self) -> None:
        for name in ("largest_sketch_fraction", "largest_total_sketch_fraction"):
            if not getattr(self, name) >= 0:  # every comparison with nan is false: it would permit anything
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not set(self.wire) <= set(WIRE_PRECISIONS):
            raise ConfigError(f"wire must name {' or '.join(WIRE_PRECISIONS)}, got {list(self.wire)}")

    def check_run(self, spec: Spec, num_rows: int) -> None:
        if num_rows < self.smallest_rows:
            raise MessageError(f"it has {num_rows} rows and takes part only with {self.smallest_rows} or more")
        if spec.wire not in self.wire:
            raise MessageError(f"it sends numbers as {' or '.join(self.wire)}, not as {spec.wire}")
        if spec.rounds > self.rounds:
            raise MessageError(f"it permits {self.rounds} rounds, the run asks for {spec.rounds}")

    def check_request(self, handler: str, round: int) -> None:
        if self.handlers is not None and handler not in self.handlers:
            raise MessageError(f"it does not permit '{handler}', only {', '.join(self.handlers)}")
        if round > self.rounds:
            raise MessageError(f"it permits {self.rounds} rounds, this is round {round}")

    def check_sketch(self, rows: int, sent_before: int, num_rows: int) -> None:
        if rows > self.largest_sketch_fraction * num_rows:
            raise MessageError(
                f"a sketch of {rows} rows is more than {self.largest_sketch_fraction:g} of its {num_rows} rows"
            )
        if rows and sent_before + rows > self.largest_total_sketch_fraction * num_rows:
            raise MessageError(
                f"with {sent_before} sketched rows sent before, {rows} more would be over "
                f"{self.largest_total_sketch_fraction:g} of its {num_rows} rows"
            )


def sketch_rows(batch: Message) -> int:
    """The rows of the sketch in a reply; 0 where it has none."""
    sketches = [getattr(batch, name) for name, spec in batch.specs().items() if spec.dimensions[:1] == ("rows",)]
    return sum(int(value.counts[0]) for value in sketches if isinstance(value, Ragged))


class SiteService:
    """Answers one packet at a time. Its state is on disk, so that it may be a new object for every packet."""

    def __init__(
        self,
        name: str,
        shards: Callable[[], Shards],
        build: Callable[[Spec], tuple[Problem, Mapping[str, Handler]]],
        permissions: Permissions,
        folder: Path,
    ) -> None:
        self.name = name
        self._read = shards
        self._build = build
        self._permissions = permissions
        self._folder = folder
        self._shards: Shards | None = None
        self._built: tuple[Spec, Problem, Mapping[str, Handler]] | None = None
        self._latest: tuple[tuple[Any, ...], RunMemory] | None = None  # what a file holds, and how to tell it is that one

    def answer(self, frame: bytes) -> bytes:
        """The packet to send back; a request that cannot or may not be answered gets a refusal that says why."""
        packet = Packet(REFUSAL, bytes(16), 0, 0, 0)
        try:
            packet = Packet.decode(frame, self._permissions.largest_bytes)
            if packet.kind == OPEN:
                return packet.reply(ANSWER, self._open(packet)).encode()
            if packet.kind == ASK:
                return packet.reply(ANSWER, self._ask(packet)).encode()
            raise MessageError("a site answers requests only")
        except FednsError as error:
            return self._refuse(packet, str(error))
        except Exception as error:  # whatever it is, the coordinator gets a sentence and the owner a trace
            logging.getLogger("fedns.site").exception("a request could not be answered")
            return self._refuse(packet, f"{type(error).__name__}: {error}")

    def _open(self, packet: Packet) -> bytes:
        spec = Spec.from_agreed(packet.body)
        if packet.site >= len(spec.sites) or spec.sites[packet.site] != self.name:
            raise MessageError(f"this is site '{self.name}', not site {packet.site} of the run")
        path = self._path(packet.run)
        if path.exists():
            if self._recall(packet.run).spec != spec:
                raise MessageError("the run has been opened before, with other settings")
        else:
            shards = self._data()
            self._permissions.check_run(spec, shards.num_samples)
            problem, _ = self._handlers(spec)
            problem.loss.check_targets(shards)
            RunMemory(spec, packet.site, _fingerprint(shards)).save(path)
        self._note(packet, "downlink", "Opening", {}, len(packet.body), "opens a run")
        return json.dumps({"site": self.name}).encode()

    def _ask(self, packet: Packet) -> bytes:
        memory = self._recall(packet.run)
        if packet.site != memory.number:
            raise MessageError(f"this is site {memory.number} of the run, the request is for site {packet.site}")
        if memory.data != _fingerprint(self._data()):
            raise MessageError("its rows have changed since the run began: start a new run")
        digest = hashlib.sha256(packet.body).hexdigest()
        if (packet.epoch, packet.exchange) == (memory.epoch, memory.exchange) and digest == memory.digest:
            self._note(packet, "downlink", "Repetition", {}, len(packet.body), "asks again", memory.round)
            self._note(packet, "uplink", "Repetition", {}, len(memory.answer), "the same answer again", memory.round)
            return memory.answer
        if packet.epoch == memory.epoch and packet.exchange <= memory.exchange:
            raise MessageError(f"exchange {packet.exchange} is over: a request cannot be replayed")
        problem, handlers = self._handlers(memory.spec)
        name, request, envelope = self._request(packet.body, problem, handlers)
        memory.enter(packet.epoch, envelope.round, packet.committed_rounds)
        self._latest = None  # until it is on disk again, what is in memory may be half of a change
        reply = self._reply(memory, problem, handlers[name], request)
        shapes = {field: list(np.shape(getattr(reply, field))) for field in reply.specs()}
        answer = encode(reply, Envelope(envelope.round, memory.number), WIRE_PRECISIONS[memory.spec.wire])
        memory.exchange, memory.digest, memory.answer = packet.exchange, digest, answer
        # On disk first: once an answer has left, the same request must get it again, whatever happens to this process.
        memory.save(self._path(packet.run))
        self._latest = self._mark(packet.run), memory
        asked = {field: list(np.shape(getattr(request, field))) for field in request.specs()}
        self._note(packet, "downlink", request.kind, asked, len(packet.body), name, envelope.round)
        self._note(packet, "uplink", reply.kind, shapes, len(answer), name, envelope.round)
        return answer

    def _request(self, frame: bytes, problem: Problem, handlers: Mapping[str, Handler]) -> tuple[str, Message, Envelope]:
        name = handler_named_in(frame)
        if name not in handlers:
            raise MessageError(f"the request is for '{name}', which the method does not have")
        # The kernels trust lengths: a vector that is too short would be read past its end.
        known = {"features": problem.num_features(self._data().num_columns)}
        request, envelope = decode(messages_of(handlers[name])[0], frame, known)
        self._permissions.check_request(name, envelope.round)
        return name, request, envelope

    def _reply(self, memory: RunMemory, problem: Problem, handler: Handler, request: Message) -> Message:
        ids = np.array([memory.number], dtype=np.int64)
        shards = self._data()
        clients = Clients(shards, ids, memory.spec.seed, memory.round, ClientMemory(ids, memory.arrays))
        with single_threaded_blas():
            batch = handler(problem, clients, request)
        reply = split_batch(batch, 0)
        for name in reply.specs():
            refuse_non_finite(reply.kind, name, np.asarray(getattr(reply, name)))
        self._count_sketch(sketch_rows(batch), shards.num_samples)
        return reply

    def _count_sketch(self, rows: int, num_rows: int) -> None:
        """Add to the rows of all sketches ever sent, in any run, before this one is."""
        path = self._folder / SKETCHED_FILE
        before = int(path.read_text()) if path.exists() else 0
        self._permissions.check_sketch(rows, before, num_rows)
        if rows:
            write_whole(path, str(before + rows).encode(), durable=False)

    def _recall(self, run: bytes) -> RunMemory:
        mark = self._mark(run)
        if self._latest is None or self._latest[0] != mark:
            self._latest = mark, RunMemory.load(self._path(run))
        return self._latest[1]

    def _mark(self, run: bytes) -> tuple[Any, ...]:
        """Changes when the file of this run does: another process may have answered in the meantime."""
        path = self._path(run)
        if not path.exists():
            raise MessageError("the run has not been opened here")
        file = path.stat()
        return run, file.st_ino, file.st_mtime_ns, file.st_size

    def _data(self) -> Shards:
        if self._shards is None:
            self._shards = self._read()
            if self._shards.num_clients != 1:
                raise MessageError(f"a site has the rows of one client, not of {self._shards.num_clients}")
        return self._shards

    def _handlers(self, spec: Spec) -> tuple[Problem, Mapping[str, Handler]]:
        if self._built is None or self._built[0] != spec:
            self._built = (spec, *self._build(spec))
        return self._built[1:]

    def _path(self, run: bytes) -> Path:
        return self._folder / f"{run.hex()}.npz"

    def _refuse(self, packet: Packet, reason: str) -> bytes:
        sentence = " ".join(reason.split())
        self._note(packet, "uplink", "Refusal", {}, len(sentence), sentence)
        return packet.reply(REFUSAL, sentence.encode(errors="replace")).encode()

    def _note(
        self, packet: Packet, direction: str, kind: str, shapes: dict[str, Any], length: int, purpose: str, round: int = 0
    ) -> None:
        """A line in the site's own ledger."""
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "run": packet.run.hex(),
            "round": round,
            "exchange": packet.exchange,
            "direction": direction,
            "kind": kind,
            "fields": shapes,
            "bytes": length,
            "purpose": purpose,
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / LEDGER_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _fingerprint(shards: Shards) -> str:
    """Tells rows from other rows, as far as their number and their targets do."""
    return f"{shards.num_samples} x {shards.num_columns}, {zlib.crc32(shards.targets.tobytes()):08x}"
