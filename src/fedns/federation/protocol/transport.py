"""How bytes get to sites and back: what an engine is to the coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Arrival:
    """What came of asking one site: its answer, or why there is none."""

    site: str
    payload: bytes = b""
    failure: str = ""  # one sentence, empty where there is an answer
    envelope_bytes: int = 0  # what the engine added around request and answer, where it can tell


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
