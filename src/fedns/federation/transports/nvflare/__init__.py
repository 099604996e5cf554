"""NVFlare as an engine: its server under the coordinator, its client under every site, and no jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from fedns.federation.processes import refuse_taken_port
from fedns.federation.protocol.transport import Engine, Transport
from fedns.federation.reachable import Contact


def _provision(folder: Path, sites: Sequence[str], host: str, port: int) -> tuple[Path, Mapping[str, Path]]:
    from fedns.federation.transports.nvflare.processes import provision

    made = provision(folder, sites, host, port)
    return made.server, made.sites


def _serve(credentials: Path, service: str, config: Path) -> None:
    from fedns.federation.transports.nvflare.processes import keep_site_running

    keep_site_running(credentials, service, config)


@contextmanager
def _open(credentials: Path, listen: str, logs: Path) -> Iterator[Transport]:
    from fedns.federation.transports.nvflare.server import NVFlareTransport

    host, _, port = listen.rpartition(":")
    refuse_taken_port(int(port))  # NVFlare would only say so in its log
    with closing(NVFlareTransport(credentials, host=host)) as transport:
        yield transport


def _contact(credentials: Path) -> Contact:
    from fedns.federation.transports.nvflare.processes import contact

    return contact(credentials)


def _forget(folder: Path, site: str | None) -> None:
    """All of it: NVFlare lets in whoever its authority has signed, so a key is taken back by a new authority alone."""
    number = 1
    while (old := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    folder.rename(old)


NVFLARE = Engine("nvflare", "nvflare", _provision, _serve, _open, _contact, forget=_forget)
