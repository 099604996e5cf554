"""How bytes get to sites and back: what an engine is to the coordinator."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fedns.core.errors import ConfigError
from fedns.federation.reachable import Contact


def not_connected(turned_away: str = "") -> str:
    """The failure of a site that cannot be asked; turned_away: of a visitor who may have been that site."""
    return (
        f"it is not connected, and {turned_away}: its credentials are not of this federation"
        if turned_away
        else "it is not connected"
    )


def too_late(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


def failed_with(kind: str) -> str:
    """kind: the class of what went wrong; its text may hold data, and stays at the site."""
    return f"its service failed with {kind}"


@dataclass(frozen=True)
class Arrival:
    """What came of asking one site: its answer, or why there is none."""

    site: str
    payload: bytes = b""
    failure: str = ""  # one sentence about the site, the same over every engine; empty where there is an answer
    envelope_bytes: int = 0  # what the engine added around request and answer, where it can tell


@dataclass
class Presence:
    """Whether the coordinator is there, as the engine of this process finds."""

    connected: bool = False
    heard: float = 0.0  # in seconds since 1970

    def note(self, connected: bool) -> None:
        self.connected = connected
        if connected:
            self.heard = time.time()


COORDINATOR = Presence()  # a site is one process


class Transport(ABC):
    """Carries opaque bytes between the coordinator and sites known by name. Knows nothing of learning."""

    @abstractmethod
    def connected(self) -> list[str]:
        """The sites that could be asked now, by name."""

    @abstractmethod
    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        """Send each site its request; yield every site once, in order of arrival, failures included.

        Ends within the timeout whatever the sites do: a site that has not answered by then is yielded as a failure,
        and its late answer, should it still come, is dropped.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what the transport holds."""


class Provisioned(NamedTuple):
    """Folders of credentials: the coordinator's, and each site's by its name."""

    coordinator: Path
    sites: Mapping[str, Path]


@dataclass(frozen=True)
class Engine:
    """One way to carry bytes, as an entry of the registry of transports: all that the rest of the package knows of it."""

    name: str
    package: str  # that it needs
    provision: Callable[[Path, Sequence[str], str, int], Provisioned]
    """(folder, sites, host, port): make or keep keys there."""
    serve: Callable[[Path, Callable[[Path], Callable[[bytes], bytes]], Path], None]
    """(credentials, service, config): answer with `service(config)` until stopped. A process of its own finds the function
    service by its name, and that of its module."""
    open: Callable[[Path, str, Path], AbstractContextManager[Transport]]
    """(credentials, host:port to listen on, folder for logs): the transport, for as long as the block lasts."""

    contact: Callable[[Path], Contact] | None = None
    """(credentials): where the coordinator is and by what both ends are known; None where an engine cannot tell."""

    admits: Callable[[Path], str] | None = None
    """(credentials): why the coordinator does not take this site in, nothing where it does; None where none can tell."""

    forget: Callable[[Path, str | None], None] | None = None
    """(folder of `provision`, site): drop the site's key, or for None what ends, so that `provision` makes new ones."""

    @property
    def needs_more(self) -> bool:
        """Whether it needs a package beside this one, which an extra of its name installs."""
        return self.package != __package__.partition(".")[0]

    def require(self) -> Engine:
        """This engine, if it is installed."""
        if find_spec(self.package) is None:
            raise ConfigError(f"the engine {self.name} is not installed: pip install 'fedns[{self.name}]'")
        return self
