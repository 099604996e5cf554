"""A coordinator that kills itself: run as a script with a folder, a method and the steps at which to die.

Every start is a process of its own, forked from one that has imported everything; all but the last die by SIGKILL, each at
one of the steps, in the middle of an exchange or of writing a file, and the next one resumes. Prints the coefficients.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of

from fedns.core import files
from fedns.federation.site import memory


def die_at(step: int, federation: Federation) -> None:
    """Arrange for this process to be killed at the given step, counting exchanges with single sites and file writes."""
    count = 0

    def tick() -> bool:
        nonlocal count
        count += 1
        return count == step

    def before(site: str, exchange: int) -> str:
        if tick():
            os.kill(os.getpid(), signal.SIGKILL)
        return ""

    def after(site: str, payload: bytes) -> bytes:
        if tick():
            os.kill(os.getpid(), signal.SIGKILL)
        return payload

    @contextlib.contextmanager
    def write(path: Path, data: bytes, *, durable: bool = True) -> Iterator[None]:
        if tick():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(f"{path.name}.{os.getpid()}.partial").write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        with beside(path, data, durable=durable):
            yield

    beside = files.written_beside
    federation.transport.before, federation.transport.after = before, after
    files.written_beside = memory.written_beside = write  # type: ignore[assignment]


def train(folder: Path, method: str, step: int, resume: bool) -> None:
    federation = Federation(make_shards(sizes=(90, 60, 150)), folder, run_of(method, rounds=6))
    if step:
        die_at(step, federation)
    history = federation.start(resume=resume and federation.checkpoint.exists())
    print(history.coefficients.tobytes().hex(), history.uplink_bytes[-1], history.exchanges[-1], flush=True)


def main() -> None:
    folder, method = Path(sys.argv[1]), sys.argv[2]
    steps = [int(text) for text in sys.argv[3:]]
    for number, step in enumerate([*steps, 0]):
        child = os.fork()
        if child == 0:
            train(folder, method, step, resume=number > 0)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))  # it finished before its step came
        assert os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    main()
