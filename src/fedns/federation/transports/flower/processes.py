"""Starting and ending the processes Flower needs, each in a group of its own, so that nothing outlives us.

fedns coordinate ── SuperLink (child; TLS, sites known by their keys)      fedns site (one process)
      │  HTTPS, loopback        │  HTTPS, the only open port                    │
      └─────────────────────────┴───────────────────────────────────────────────┘
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedns.federation.processes import (
    FRUGAL,
    LARGEST_MESSAGE,
    LOOPBACK,
    EngineError,
    EngineLost,
    end_group,
    refuse_taken_port,
)
from fedns.federation.reachable import Contact, DistrustError, Visitors, why_not_there

GRACE_SECONDS = 3.0
START_SECONDS = 180.0  # until it listens
LOG_LINES = 8  # of a dead process's log, in the error


@dataclass(frozen=True)
class Child:
    """A process started by us, with its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    visitors: Visitors

    def check(self) -> None:
        """Raise when it has ended, with the end of its log."""
        if (code := self.process.poll()) is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            raise EngineLost(f"{self.name} ended with code {code}; the end of {self.log}:\n" + "\n".join(lines))


@dataclass(frozen=True)
class SuperLink:
    """A running SuperLink: where the coordinator reaches it, and the secret it listens to."""

    child: Child
    address: str  # host:port
    authority: Path
    secret: str


@contextlib.contextmanager
def start_superlink(
    credentials: Contact,
    folder: Path,
    port: int,
    *,
    host: str = LOOPBACK,
    largest_message: int = LARGEST_MESSAGE,
) -> Iterator[SuperLink]:
    """Run a SuperLink until the block ends; logs and this session's secret are written to the folder.

    host: the interface to listen on; sites on other machines need 0.0.0.0 or the address of a network card.
    """
    folder.mkdir(parents=True, exist_ok=True)
    secret, secret_file = secrets.token_hex(32), folder / "superlink.secret"
    secret_file.unlink(missing_ok=True)
    secret_file.touch(mode=0o600)
    secret_file.write_text(secret)
    command = [sys.executable, "-m", "fedns.federation.transports.flower.superlink", str(largest_message)]
    command += ["--host", host, "--port", str(port), "--ssl-ca-certfile", str(credentials.authority)]
    command += ["--ssl-certfile", str(credentials.certificates[0]), "--ssl-keyfile", str(credentials.key)]
    command += ["--isolation", "process", "--superexec-auth-secret-file", str(secret_file)]
    command += ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    local = LOOPBACK if host in ("0.0.0.0", LOOPBACK) else host
    refuse_taken_port(port, local)
    with _child("SuperLink", command, folder / "superlink.log", folder) as child:
        link = SuperLink(child, f"{local}:{port}", credentials.authority, secret)
        try:
            _await_answer(link)
            yield link
        finally:
            secret_file.unlink(missing_ok=True)


@contextlib.contextmanager
def _child(name: str, command: Sequence[str], log: Path, home: Path) -> Iterator[Child]:
    environment = os.environ | FRUGAL
    # Flower finds its other commands on the path and keeps what it unpacks at home.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment["FLWR_HOME"] = str(home.resolve() / "flower")
    environment["PYTHONUNBUFFERED"] = "1"
    with log.open("ab") as output:
        output.write(f"$ {shlex.join(command)}\n".encode())
        output.flush()
        visitors = Visitors(log, output.tell())
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        yield Child(name, process, log, visitors)
    finally:
        end_group(process, GRACE_SECONDS)


def _await_answer(link: SuperLink) -> None:
    """Return once it answers; it listens when it is ready."""
    host, _, port = link.address.rpartition(":")
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            link.child.check()
            if not why_not_there(Contact(host.strip("[]"), int(port), link.authority), 2.0):
                return
        except EngineLost as lost:  # which starting it again would not help
            raise EngineError(str(lost)) from None
        except DistrustError as error:
            raise EngineError(f"SuperLink's certificate does not do: {error}") from None
        if time.monotonic() > deadline:
            raise EngineError(f"SuperLink did not answer on {link.address} within {START_SECONDS:g} s; see {link.child.log}")
        time.sleep(0.05)
