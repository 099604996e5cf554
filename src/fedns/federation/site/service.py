"""A site: answers requests about its own rows, within what its owner permits, and writes down all that leaves it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedns.core.clients import ClientMemory, Clients, Handler, messages_of
from fedns.core.errors import FednsError, MessageError, NonFiniteError
from fedns.core.files import append_line, disk_trouble, write_whole
from fedns.core.messages import WIRE_PRECISIONS, Message, refuse_non_finite, split_batch
from fedns.core.messages.encoding import Envelope, decode, encode, handler_named_in
from fedns.core.messages.ledger import LedgerEntry, Shape, shapes_of
from fedns.federation.permissions import Permissions
from fedns.federation.protocol.opening import introduction, read_opening
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, OVERFLOW, REFUSAL, UNABLE, Packet
from fedns.federation.rules.answers import no_handler
from fedns.federation.rules.refusal import Refusal
from fedns.federation.site.answering import Answering
from fedns.federation.site.budget import NO_MORE, Budget, Line
from fedns.federation.site.explain import level_of
from fedns.federation.site.guard import Guard, admit_description, admit_opening
from fedns.federation.site.memory import RunMemory
from fedns.federation.site.rehearsal import rehearse
from fedns.federation.site.secret_seed import SecretClients, site_secret
from fedns.federation.site.table_kind import TableKind
from fedns.models.problem import Problem
from fedns.numerics.linalg import single_threaded_blas
from fedns.runs.over_sites import Handshake, SiteRun

LEDGER_FILE = "ledger.jsonl"
_PROBE_BYTES = 1 << 16  # what there has to be room for before a run is opened on a disk that was in trouble
log = logging.getLogger("fedns.site")


class _Overflow(NonFiniteError):
    """An answer of this site's that is not finite: what a run that diverges comes to."""


class SiteService:
    """Answers one packet at a time. Its state is on disk, so that it may be a new object for every packet."""

    def __init__(
        self,
        name: str,
        table: TableKind,
        permissions: Permissions,
        folder: Path,
    ) -> None:
        self.name, self._table = name, table
        self._permissions, self._folder = permissions, folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # answers, the ledger and the secret of a site are its owner's alone
        self._guarding: tuple[tuple[str, ...], Guard] | None = None  # what was coded by what, and the rules over it
        self._marked: tuple[str, Budget] | None = None  # a table that studies code, and what has left about it
        self._built: tuple[SiteRun, Problem, Mapping[str, Handler]] | None = None
        self._latest: tuple[tuple[Any, ...], RunMemory] | None = None  # what a file holds, and how to tell it is that one
        self._troubled_since: float | None = None  # the disk

    def answer(self, frame: bytes) -> bytes:
        """The packet to send back; a request that cannot or may not be answered gets a refusal that says why."""
        packet = Packet(REFUSAL, bytes(16), 0, 0, 0)
        try:
            packet = Packet.decode(frame, self._permissions.largest_bytes)
            if packet.kind not in (OPEN, ASK):
                raise MessageError("a site answers requests only")
            if self._troubled_since is not None:
                self._look_for_room(packet)
            answer = self._open(packet) if packet.kind == OPEN else self._ask(packet)
            if self._troubled_since is not None:
                log.info("the disk is well again, after %.0f s", time.monotonic() - self._troubled_since)
                self._troubled_since = None
            return packet.reply(ANSWER, answer).encode()
        except _Overflow as error:
            return self._refuse(packet, str(error), OVERFLOW)
        except Refusal as error:
            log.warning("refused: %s %s", error, error.detail)
            return self._refuse(packet, str(error))
        except FednsError as error:
            return self._refuse(packet, str(error))
        except Exception as error:  # whatever it is, the coordinator gets a sentence and the owner a trace
            return self._unable(packet, error) if disk_trouble(error) else self._refuse(packet, str(self._withheld(error)))

    def _unable(self, packet: Packet, error: Exception) -> bytes:
        """The disk is in trouble: nothing has left, nothing is counted, and the same request is answered once it is well."""
        reason = f"its disk cannot be used: {disk_trouble(error)}"
        if self._troubled_since is None:
            log.error("the disk of %s cannot be used: %s; requests wait: make room there, or mend it", self._folder, error)
            self._troubled_since = time.monotonic()
        return packet.reply(UNABLE, reason.encode()).encode()

    def _look_for_room(self, packet: Packet) -> None:
        """Before anything is computed on a disk that was in trouble: what could not be kept would be computed in vain."""
        path, probe = self._path(packet.run), self._folder / "probe"
        write_whole(probe, bytes(path.stat().st_size if path.exists() else _PROBE_BYTES), durable=False)
        probe.unlink()

    def _open(self, packet: Packet) -> bytes:
        self._permissions.check_job_bytes(len(packet.body))
        spec, coordinator = read_opening(packet.body)
        if packet.site >= len(spec.sites) or spec.sites[packet.site] != self.name:
            raise MessageError(f"this is site '{self.name}', not site {packet.site} of the run")
        path = self._path(packet.run)
        if path.exists():
            if self._recall(packet.run).spec != spec:
                raise MessageError("the run has been opened before, with other settings")
        else:
            self._open_new(packet, spec).save(path)
        log.info("a run is opened: %s, digest %s", spec.title, " or ".join(spec.pins))
        purpose = f"opens a run, fedns {coordinator}" if coordinator else "opens a run"
        self._note(packet, "downlink", "Opening", {}, len(packet.body), purpose)
        return json.dumps(self._facts(spec)).encode()

    def _facts(self, spec: SiteRun) -> dict[str, Any]:
        """Say what a coordinator is told of a run that is opened; of the budget no more than which mark it has passed."""
        guard, (problem, handlers) = self._guard(spec), self._handlers(spec)
        found = guard.spending(guard.budget.spent())
        facts = {"site": self.name, "blanked_columns": guard.blanked_columns, "runs": introduction()}
        enough = guard.rounds_left(spec, handlers, problem) >= spec.rounds
        return facts | {"budget_spent": level_of(found), "budget_is_enough": enough}

    def _open_new(self, packet: Packet, spec: SiteRun) -> RunMemory:
        """A run that may begin; one that may not is counted, since whether rows suit a study is told by that, too."""
        admit_description(self._permissions, spec)
        problem, handlers = self._handlers(spec)
        budget, opening = self._budget(spec), spec.digest[:32]
        admit_opening(self._permissions, budget.spent(), opening, self._folder.glob("*.npz"))
        try:
            guard = self._guard(spec)
            with self._private():
                problem.loss.check(guard.shards)
            guard.admit_run(handlers, problem)
            if guard.rounds_left(spec, handlers, problem) < 1 and not self._opened_before(spec):
                raise self._permissions.no_round_left(spec.title)
        except Exception as error:
            if not disk_trouble(error):  # which tells of no rows
                with budget.held():
                    budget.spend(Line([opening], "", 0, 0, packet.run.hex(), 0, time.time(), refused=True), NO_MORE)
                budget.settle()
            raise
        if self._table.compiles() and not isinstance(spec, Handshake):  # which calls nothing that is compiled
            rehearse(spec, problem, guard)
        return RunMemory(spec, packet.site, guard.fingerprint)

    def _opened_before(self, spec: SiteRun) -> bool:
        """Whether a run has the same description as one that was opened: the same answers again cost nothing."""
        for path in self._folder.glob("*.npz"):
            with contextlib.suppress(MessageError, OSError):  # it may be damaged, or gone
                if RunMemory.load(path).spec == spec:
                    return True
        return False

    def _budget(self, spec: SiteRun) -> Budget:
        """The budget of the table that a run is about, known before a study has coded any of its rows."""
        with self._private():
            mark = self._table.mark
        if not mark:
            return self._guard(spec).budget
        if self._marked is None or self._marked[0] != mark:
            self._marked = mark, Budget(self._folder, mark)
        return self._marked[1]

    def _ask(self, packet: Packet) -> bytes:
        memory = self._recall(packet.run)
        if packet.site != memory.number:
            raise MessageError(f"this is site {memory.number} of the run, the request is for site {packet.site}")
        guard = self._guard(memory.spec)
        if memory.data != guard.fingerprint:
            raise MessageError("its rows have changed since the run began: start a new run")
        digest = hashlib.sha256(packet.body).hexdigest()
        if (packet.epoch, packet.exchange) == (memory.epoch, memory.exchange) and digest == memory.digest:
            self._note(packet, "downlink", "Repetition", {}, len(packet.body), "asks again", memory.round)
            self._note(packet, "uplink", "Repetition", {}, len(memory.answer), "the same answer again", memory.round)
            return memory.answer
        if packet.epoch == memory.epoch and packet.exchange <= memory.exchange:
            raise MessageError(f"exchange {packet.exchange} is over: a request cannot be replayed")
        problem, handlers = self._handlers(memory.spec)
        name, request, envelope = self._request(packet.body, problem, handlers, guard)
        about = {"run": packet.run, "round": envelope.round, "spec": memory.spec, "problem": problem}
        answering = self._admit(guard, handlers[name], request, **about)
        self._latest = None  # until it is on disk again, what is in memory may be half of a change
        memory.enter(packet.epoch, envelope.round, packet.committed_rounds)
        reply, drawn = self._reply(memory, problem, handlers[name], request, answering)
        answer = encode(reply, Envelope(envelope.round, memory.number), WIRE_PRECISIONS[memory.spec.wire])
        memory.exchange, memory.digest, memory.answer = packet.exchange, digest, answer
        # On disk first: once an answer has left, the same request must get it again, whatever happens to this process. The
        # budget is spent where there is room for the answer, or every try on a full disk would cost some of it.
        memory.save(self._path(packet.run), partial(self._spend, answering, reply, answer))
        self._latest = self._mark(packet.run), memory
        self._note(packet, "downlink", request.kind, shapes_of(request), len(packet.body), name, envelope.round)
        self._note(packet, "uplink", reply.kind, shapes_of(reply), len(answer), name, envelope.round, drawn)
        return answer

    def _spend(self, answering: Answering, reply: Message, answer: bytes) -> None:
        answering.spend(reply, answer)
        answering.settle()

    def _admit(self, guard: Guard, handler: Handler, request: Message, **about: Any) -> Answering:
        return Answering(guard, guard.admit_request(handler, request, **about))

    def _request(
        self, frame: bytes, problem: Problem, handlers: Mapping[str, Handler], guard: Guard
    ) -> tuple[str, Message, Envelope]:
        name = handler_named_in(frame)
        if name not in handlers:
            raise no_handler(name)
        # The kernels trust lengths: a vector that is too short would be read past its end.
        width = problem.num_features(guard.shards.num_columns)
        self._permissions.check_length(len(frame), width)
        known, most = {"features": width}, self._permissions.largest_bytes
        request, envelope = decode(messages_of(handlers[name])[0], frame, known, most)
        return name, request, envelope

    def _reply(
        self, memory: RunMemory, problem: Problem, handler: Handler, request: Message, answering: Answering
    ) -> tuple[Message, dict[str, str]]:
        """The reply, and a hash of the key of every random stream that it took."""
        ids = np.array([memory.number], dtype=np.int64)
        given = answering.guard.shards, ids, memory.spec.seed, memory.round, ClientMemory(ids, memory.arrays)
        clients = Clients(*given)
        if not self._permissions.job_seed:
            clients = SecretClients(*given, secret=site_secret(self._folder), run=answering.asked.run)
        try:
            with self._private(), single_threaded_blas():
                reply = split_batch(answering.reply(handler, problem, clients, request), 0)
            for name in reply.specs():
                refuse_non_finite(reply.kind, name, np.asarray(getattr(reply, name)))
        except (Refusal, NonFiniteError) as error:
            answering.spend(None, b"")  # that a point was refused, or that numbers overflow there, tells something, too
            answering.settle()
            raise error if isinstance(error, Refusal) else _Overflow(str(error)) from None
        return reply, clients.commitments if isinstance(clients, SecretClients) else {}

    @contextlib.contextmanager
    def _private(self) -> Iterator[None]:
        """R7: what goes wrong with the rows at hand is told to their owner, in the site's log, and to nobody else."""
        try:
            yield
        except Refusal:
            raise
        except Exception as error:
            if disk_trouble(error):  # of the rows kept on it, or of the budget
                raise
            raise self._withheld(error) from None

    def _withheld(self, error: Exception) -> Refusal:
        log.error("a request could not be answered", exc_info=error)
        return self._permissions.withheld(error)

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

    def _guard(self, spec: SiteRun) -> Guard:
        with self._private():
            mark = self._table.mark
        coded_by = (*spec.coded_by, mark)
        if self._guarding is None or self._guarding[0] != coded_by:
            with self._private():
                shards = self._table.rows(spec)
            if shards.num_clients != 1:
                raise MessageError(f"a site has the rows of one client, not of {shards.num_clients}")
            self._guarding = coded_by, Guard(self._permissions, self._folder, shards, mark)
        return self._guarding[1]

    def _handlers(self, spec: SiteRun) -> tuple[Problem, Mapping[str, Handler]]:
        if self._built is None or self._built[0] != spec:
            self._built = (spec, *self._table.build(spec))
        return self._built[1:]

    def _path(self, run: bytes) -> Path:
        return self._folder / f"{run.hex()}.npz"

    def _refuse(self, packet: Packet, reason: str, kind: int = REFUSAL) -> bytes:
        sentence = " ".join(reason.split())
        try:
            self._note(packet, "uplink", "Refusal", {}, len(sentence), sentence)
        except OSError as error:  # a refusal may leave without its line in the ledger, an answer may not
            log.error("the ledger cannot be written: %s", error)
        return packet.reply(kind, sentence.encode(errors="replace")).encode()

    def _note(
        self,
        packet: Packet,
        direction: str,
        kind: str,
        shapes: Mapping[str, Shape],
        length: int,
        purpose: str,
        round: int = 0,
        drawn: Mapping[str, str] | None = None,
    ) -> None:
        """A line in the site's own ledger."""
        entry = LedgerEntry(round, packet.exchange, direction, kind, shapes, 1, length, purpose)
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "run": packet.run.hex(), **entry.line()}
        append_line(self._folder / LEDGER_FILE, json.dumps(line | ({"seed_commitments": dict(drawn)} if drawn else {})))
