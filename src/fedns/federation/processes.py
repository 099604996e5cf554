"""What every engine needs of the operating system: ends that unwind, and ports; a site's service; the longest message."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import ClassVar

from fedns.core.errors import ConfigError, FednsError
from fedns.core.files import locked
from fedns.core.termination import Ending

LOOPBACK = "127.0.0.1"
# The environment of a process that carries messages: glibc then gives large blocks back as soon as they are free. Otherwise
# it stops doing so after the first, and keeps a heap for every thread: hundreds of megabytes that nobody uses.
FRUGAL = {"MALLOC_MMAP_THRESHOLD_": str(128 << 10), "MALLOC_ARENA_MAX": "2"}
LARGEST_MESSAGE = 512 << 20  # bytes of one question or answer: a full Hessian of 8000 coefficients


class EngineError(FednsError):
    """A process or connection of the engine that cannot be had."""


class EngineLost(EngineError):
    """A process of the engine that has ended while it was needed; the sentence has its last words."""

    ending: ClassVar[Ending] = Ending.ENGINE_LOST
    exit_status: ClassVar[int] = 6


class RunningError(EngineError):
    """A site that runs on this machine already."""


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack like Ctrl-C does, so that whoever started processes ends them."""

    def unwind(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # only that one can handle signals
        yield
        return
    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_group(process: subprocess.Popen[bytes], seconds: float) -> None:
    """End a process that leads a group of its own, and all it started: politely, then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # The group may have members after its leader is gone, so it is signalled either way.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)  # a stopped process cannot end
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


@contextlib.contextmanager
def only_process(credentials: Path, site: str) -> Iterator[None]:
    """Hold a site's place on this machine, or refuse: two processes of one site would take each other's requests."""
    with contextlib.ExitStack() as held:
        if sys.platform != "win32" and credentials.is_dir():  # the engine says what is missing
            folder = os.open(credentials, os.O_RDONLY)  # itself: nothing need be written beside keys
            held.callback(os.close, folder)
            try:
                held.enter_context(locked(folder, wait=False))
            except BlockingIOError:
                raise RunningError(f"another process on this machine is site {site} already; end it first") from None
        yield


Service = Callable[[bytes], bytes]  # takes a request and returns an answer


def load_service(reference: str, config: Path) -> Service:
    """Return what the function named as `package.module:function` makes of the path of its configuration.

    An engine that starts a process of its own for a site tells it by this name which function it was given.
    """
    module, _, name = reference.partition(":")
    try:
        service: Callable[[Path], Service] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"the service must be given as package.module:factory, got {reference!r}: {error}") from error
    return service(config)


def free_port() -> int:
    """A loopback port that nobody listens on now.

    It has had a connection, so that the system gives it to nobody who does not name it for a minute: others who look for a
    free port meanwhile get another one.
    """
    with socket.create_server((LOOPBACK, 0)) as listener, socket.create_connection(listener.getsockname()) as visitor:
        listener.accept()[0].close()  # who closes first is the one who keeps the port
        visitor.recv(1)
        return int(listener.getsockname()[1])


def listening(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host.strip("[]"), port)) == 0


def refuse_taken_port(port: int, host: str = LOOPBACK) -> None:
    """Raise where somebody listens on this port already."""
    if listening(host, port):
        raise EngineError(f"port {port} of {host} is taken: another coordinator may be running; choose another port")
