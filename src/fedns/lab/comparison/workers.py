"""Tasks on several processes: what they say while they work, what they give, and how they end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from fedns.core.errors import FednsError
from fedns.numerics import parallel
from fedns.simulation.cluster import spread

Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """work(*arguments, say), where `say` takes a word on how far it is; all of it can be sent to another process."""

    label: str
    work: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


def run_tasks(
    tasks: Sequence[Task], heard: Callable[[Task, str], None], processes: int | None = None, cluster: str | None = None
) -> Iterator[tuple[Task, Any]]:
    """Each task with what it gave, as they finish; they are begun in order, and a single one stays in this process.

    The cores are shared out evenly; where a Dask cluster is given, its workers take the tasks and say nothing. Leaving the
    iterator early, as Ctrl-C does, ends what is still running.
    """
    if cluster is not None:
        for at, value in spread(cluster, [partial(task.work, *task.arguments, say_nothing) for task in tasks]):
            yield tasks[at], value
        return
    cores = os.cpu_count() or 1
    count = min(processes or cores, len(tasks))
    if count <= 1:
        for task in tasks:
            yield task, task.work(*task.arguments, partial(heard, task))
        return
    # Started afresh: threads of compiled code do not survive a fork.
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(count):
            here, there = context.Pipe()
            started = context.Process(target=_serve, args=(there, max(1, cores // count)), daemon=True)
            with _ctrl_c_withheld():
                started.start()
            there.close()
            workers[here] = started
        yield from _share_out(tasks, heard, workers)
    finally:
        for connection, process in workers.items():
            process.terminate()
            process.join()
            connection.close()


@contextlib.contextmanager
def _ctrl_c_withheld() -> Iterator[None]:
    """Let a process that is started meanwhile never hear of Ctrl-C, which would meet it in its imports; ours comes later."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # which takes the block away where it is started later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def say_nothing(text: str) -> None:
    """For tasks whose words nobody hears."""


def _share_out(
    tasks: Sequence[Task], heard: Callable[[Task, str], None], connections: Iterable[Connection]
) -> Iterator[tuple[Task, Any]]:
    waiting = list(reversed(tasks))
    busy: dict[Connection, Task] = {}

    def hand_on(connection: Connection) -> None:
        if waiting:
            busy[connection] = waiting.pop()
            connection.send(busy[connection])

    for connection in connections:
        hand_on(connection)
    while busy:
        for ready in wait(list(busy)):
            assert isinstance(ready, Connection)
            task = busy[ready]
            try:
                kind, value = ready.recv()
            except EOFError:
                raise FednsError(
                    f"{task.label}: the process that worked on it was ended, perhaps for want of memory"
                ) from None
            if kind == "said":
                heard(task, value)
                continue
            del busy[ready]
            if kind == "failed":
                raise value
            hand_on(ready)
            yield task, value


def _serve(connection: Connection, threads: int) -> None:
    """Work until the other end of the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process, but is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with parallel.threads(threads):
        while True:
            try:
                task: Task = connection.recv()
            except EOFError:
                return
            try:
                answer = ("done", task.work(*task.arguments, lambda text: connection.send(("said", text))))
            except FednsError as error:
                answer = ("failed", type(error)(f"{task.label}: {error}"))
            except Exception:
                answer = ("failed", RuntimeError(f"{task.label} failed:\n{traceback.format_exc()}"))
            connection.send(answer)


def _end_with_parent() -> None:
    """A process whose parent was killed would otherwise work on, beside the one that is started next."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
