"""A coordinator and its sites, each a process of its own, killed while they work: folder, method, kills as `who:step`.

Each is started anew after every kill, the coordinator with its checkpoint, a site with its folder. Prints the coefficients.
"""

import contextlib
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of, services

from fedns.core import files
from fedns.federation.site import budget, memory, service
from fedns.federation.transports.loopback import Loopback, listen
from fedns.runs.over_sites import Policy

SHARDS, COORDINATOR = make_shards(sizes=(90, 60, 150)), "coordinator"


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
    tick, answer = dying_at(step), services(SHARDS, folder)[name].answer
    die_while_writing(tick)

    def dying(request: bytes) -> bytes:
        reply = answer(request)
        if tick():  # once it is written down, and before it leaves
            die()
        return reply

    listen(folder / "sockets" / name, dying)


def coordinator_process(folder: Path, method: str, step: int) -> None:
    federation = Federation(SHARDS, folder, run_of(method, rounds=6), Policy(patience_seconds=120.0))
    federation.transport = Loopback(folder / "sockets", federation.spec.sites)
    die_while_writing(dying_at(step))
    history = federation.start(resume=federation.checkpoint.exists())
    print(history.coefficients.tobytes().hex(), flush=True)


def main() -> None:
    folder, method = Path(sys.argv[1]), sys.argv[2]
    (folder / "sockets").mkdir(parents=True)
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
