"""Flower as an engine: a SuperLink under the coordinator, and sites that speak its Fleet API."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedns.federation.protocol.transport import Engine, Transport
from fedns.federation.reachable import Contact


def _provision(folder: Path, sites: Sequence[str], host: str, port: int) -> tuple[Path, Mapping[str, Path]]:
    from fedns.federation.transports.flower.credentials import provision

    provision(folder, sites, f"{host}:{port}")
    return folder / "coordinator", {site: folder / "sites" / site for site in sites}


def _serve(credentials: Path, service: str, config: Path) -> None:
    from fedns.federation.processes import load_service
    from fedns.federation.transports.flower.client import serve
    from fedns.federation.transports.flower.credentials import SiteCredentials

    serve(SiteCredentials.load(credentials), load_service(service, config))


@contextmanager
def _open(credentials: Path, listen: str, logs: Path) -> Iterator[Transport]:
    from fedns.federation.transports.flower.credentials import CoordinatorCredentials
    from fedns.federation.transports.flower.server import open_transport

    host, _, port = listen.rpartition(":")
    with open_transport(CoordinatorCredentials.load(credentials), logs, int(port), host=host) as transport:
        yield transport


def _contact(credentials: Path) -> Contact:
    from fedns.federation.transports.flower.credentials import contact

    return contact(credentials)


def _admits(credentials: Path) -> str:
    from fedns.federation.transports.flower.client import why_not_admitted
    from fedns.federation.transports.flower.credentials import SiteCredentials

    return why_not_admitted(SiteCredentials.load(credentials))


def _forget(folder: Path, site: str | None) -> None:
    """The authority stays, so that nothing changes for anybody else."""
    if site is None:
        (folder / "coordinator" / "server.crt").unlink(missing_ok=True)
        return
    (folder / "coordinator" / "sites" / f"{site}.pub").unlink(missing_ok=True)
    shutil.rmtree(folder / "sites" / site, ignore_errors=True)


FLOWER = Engine("flower", "flwr", _provision, _serve, _open, _contact, _admits, _forget)
