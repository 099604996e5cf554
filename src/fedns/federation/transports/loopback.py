"""Sites as processes of one machine and one account, without an engine to install: for a first look, and for tests.

Every site listens at a socket in a folder that this account alone can enter. There are no keys, and nothing is encrypted:
who may enter the folder could read the rows' files as well.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Listener
from pathlib import Path

from fedns.core.errors import ConfigError
from fedns.core.files import checked_name
from fedns.federation.processes import LARGEST_MESSAGE, EngineError, Service
from fedns.federation.protocol.transport import (
    COORDINATOR,
    Arrival,
    Provisioned,
    Transport,
    failed_with,
    not_connected,
    too_late,
)

CREDENTIALS = "loopback.json"
HERE = ("localhost", "127.0.0.1", "[::1]")
ANSWERED, FAILED = b"\0", b"\1"  # before an answer, and before the class of what went wrong
log = logging.getLogger("fedns.site")


class Loopback(Transport):
    """Asks each site in a thread and over a connection of its own; a site that ends, or is started, is met at the next."""

    def __init__(self, folder: Path, sites: Sequence[str]) -> None:
        self._folder, self._sites = folder, sites

    def connected(self) -> list[str]:
        return [site for site in self._sites if not self._ask(site, None, 0.0).failure]

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        arrivals, deadline = queue.SimpleQueue[Arrival](), time.monotonic() + timeout_seconds

        def ask(site: str, request: bytes) -> None:
            arrivals.put(self._ask(site, request, timeout_seconds))

        for each in requests.items():
            threading.Thread(target=ask, args=each, daemon=True).start()
        waiting = dict.fromkeys(requests)
        with suppress(queue.Empty):
            while waiting:
                arrival = arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
                del waiting[arrival.site]
                yield arrival
        for site in waiting:
            yield Arrival(site, failure=too_late(timeout_seconds))

    def close(self) -> None:
        """Nothing is held."""

    def _ask(self, site: str, request: bytes | None, seconds: float) -> Arrival:
        """What a site answers; where there is no request, whether it listens."""
        try:
            with Client(str(self._folder / site)) as line:
                if request is None:
                    return Arrival(site)
                line.send_bytes(request)
                if not line.poll(seconds):
                    return Arrival(site, failure=too_late(seconds))
                answer = line.recv_bytes(1 + LARGEST_MESSAGE)
        except (FileNotFoundError, ConnectionRefusedError):
            return Arrival(site, failure=not_connected())
        except (OSError, EOFError):
            return Arrival(site, failure="the connection to it was lost")
        if answer[:1] == ANSWERED:
            return Arrival(site, answer[1:])
        return Arrival(site, failure=failed_with(answer[1:].decode(errors="replace")))


def listen(place: Path, answer: Callable[[bytes], bytes]) -> None:
    """Answer one request after the other at this socket, for as long as the process lives."""
    place.unlink(missing_ok=True)
    with Listener(str(place)) as listener:
        while True:
            with suppress(OSError, EOFError), listener.accept() as line:  # whoever asked has gone, or only looked
                request = line.recv_bytes(LARGEST_MESSAGE)
                COORDINATOR.note(True)
                try:
                    reply = ANSWERED + answer(request)
                except Exception as error:  # the text may hold data: it stays here, in the log
                    log.exception("the service failed")
                    reply = FAILED + type(error).__name__.encode()
                line.send_bytes(reply)


def provision(folder: Path, sites: Sequence[str], host: str, port: int) -> Provisioned:
    """Write where sites listen; the port is not used, and the folder stays the one that it was."""
    if host not in HERE:
        raise ConfigError(f"loopback carries nothing to other machines: give localhost:{port} as the server, not {host}")
    before = folder / "coordinator" / CREDENTIALS
    place = json.loads(before.read_text())["folder"] if before.exists() else tempfile.mkdtemp(prefix="fedns-")
    names = [checked_name("a site's name", site) for site in sites]
    made = Provisioned(folder / "coordinator", {site: folder / "sites" / site for site in names})
    for owner, own in ((made.coordinator, names), *((made.sites[site], [site]) for site in names)):
        owner.mkdir(parents=True, exist_ok=True)
        (owner / CREDENTIALS).write_text(json.dumps({"folder": place, "sites": own}), encoding="utf-8")
    return made


def serve_rows(credentials: Path, service: Callable[[Path], Service], config: Path) -> None:
    """Answer with what service makes of the configuration until the process is told to end."""
    folder, (site,) = _place(credentials)
    answer = service(config)
    log.info("%s waits for a coordinator in %s", site, folder)
    listen(folder / site, answer)


@contextmanager
def open_engine(credentials: Path, listen: str, logs: Path) -> Iterator[Transport]:
    """The transport to the sites of these credentials; nothing is started for it."""
    yield Loopback(*_place(credentials))


def _place(credentials: Path) -> tuple[Path, list[str]]:
    """The folder of sockets, made anew where it was swept away, and the sites; refuses one that others can enter."""
    if not (credentials / CREDENTIALS).is_file():
        raise ConfigError(f"{credentials} holds no credentials: it has no {CREDENTIALS}; `fedns init-federation` makes one")
    values = json.loads((credentials / CREDENTIALS).read_text(encoding="utf-8"))
    folder = Path(values["folder"])
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or folder.is_symlink():
        raise EngineError(f"others can enter {folder}, by which sites are known: remove it, or chmod 700 {folder}")
    return folder, values["sites"]
