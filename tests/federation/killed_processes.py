"""A coordinator and its sites, each a process of its own, killed while they work: folder, method, kills as `who:step`.

Each is started anew after every kill, the coordinator with its checkpoint, a site with its folder. Prints the coefficients.
"""

import contextlib
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Client, Listener
from pathlib import Path

from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of, services

from fedns.core import files
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.federation.site import budget, memory, service
from fedns.runs.over_sites import Policy

SHARDS, COORDINATOR = make_shards(sizes=(90, 60, 150)), "coordinator"


class Sockets(Transport):
    """Sites behind sockets in a folder."""

    def __init__(self, folder: Path, sites: list[str]) -> None:
        self._folder, self._sites = folder, sites

    def connected(self) -> list[str]:
        return [site for site in self._sites if self._asked(site, b"") is not None]

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        for site, request in requests.items():
            answer = self._asked(site, request)
            yield Arrival(site, failure="it is gone") if answer is None else Arrival(site, answer)

    def _asked(self, site: str, request: bytes) -> bytes | None:
        with contextlib.suppress(OSError, EOFError), Client(str(self._folder / f"{site}.socket")) as connection:
            connection.send_bytes(request)
            return connection.recv_bytes()
        return None

    def close(self) -> None:
        """Nothing is held."""


def dying_at(step: int) -> Callable[[], bool]:
    """To be called at every point where the process may be killed; true at the one where it is to be."""
    count = 0

    def tick() -> bool:
        nonlocal count
        count += 1
        return count == step

    return tick


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_writing(tick: Callable[[], bool]) -> None:
    """Whole files, lines of the budget and of the ledger may be cut in the middle."""
    beside, spend, note = files.written_beside, budget.Budget.spend, service.SiteService._note

    @contextlib.contextmanager
    def write(path: Path, data: bytes, *, durable: bool = True) -> Iterator[None]:
        if tick():
            path.with_name(f"{path.name}.{os.getpid()}.partial").write_bytes(data[: len(data) // 2])
            die()
        with beside(path, data, durable=durable):
            yield

    def torn(path: Path) -> None:
        with path.open("ab") as file:
            file.write(b'\n{"points": ["0a')
        die()

    def spending(self: budget.Budget, line: budget.Line, ahead: budget.Amounts | None = None) -> None:
        torn(self._path) if tick() else spend(self, line, ahead)

    def noting(self: service.SiteService, *given: object, **named: object) -> None:
        torn(self._folder / service.LEDGER_FILE) if tick() else note(self, *given, **named)

    files.written_beside = memory.written_beside = write  # type: ignore[assignment]
    budget.Budget.spend, service.SiteService._note = spending, noting  # type: ignore[method-assign]


def site_process(folder: Path, name: str, step: int) -> None:
    path, tick = folder / f"{name}.socket", dying_at(step)
    path.unlink(missing_ok=True)
    answer = services(SHARDS, folder)[name].answer
    die_while_writing(tick)
    with Listener(str(path)) as listener:
        while True:
            with contextlib.suppress(OSError, EOFError), listener.accept() as connection:
                request = connection.recv_bytes()
                reply = answer(request) if request else b""
                if request and tick():  # once it is written down, and before it leaves
                    die()
                connection.send_bytes(reply)


def coordinator_process(folder: Path, method: str, step: int) -> None:
    federation = Federation(SHARDS, folder, run_of(method, rounds=6), Policy(patience_seconds=120.0))
    federation.transport = Sockets(folder, list(federation.spec.sites))
    die_while_writing(dying_at(step))
    history = federation.start(resume=federation.checkpoint.exists())
    print(history.coefficients.tobytes().hex(), flush=True)


def main() -> None:
    folder, method = Path(sys.argv[1]), sys.argv[2]
    folder.mkdir(parents=True)
    kills = defaultdict(list)
    for text in sys.argv[3:]:
        who, _, step = text.partition(":")
        kills[who].append(int(step))
    running: dict[int, str] = {}

    def start(who: str) -> None:
        step = kills[who].pop() if kills[who] else 0
        child = os.fork()
        if child == 0:
            coordinator_process(folder, method, step) if who == COORDINATOR else site_process(folder, who, step)
            os._exit(0)
        running[child] = who

    for who in (*run_of(method).sites, COORDINATOR):
        start(who)
    killed, deadline = [], time.monotonic() + 240.0
    while time.monotonic() < deadline:
        child, status = os.wait()
        who = running.pop(child)
        if os.WIFEXITED(status):
            break
        killed.append(who)
        start(who)
    for child in running:
        os.kill(child, signal.SIGKILL)
    print(len(killed), file=sys.stderr)
    sys.exit(who != COORDINATOR or os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
