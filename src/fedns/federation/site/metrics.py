"""What a site's owner can watch: whether the coordinator is there, and what it asked, was given and was refused."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedns.federation.metrics import family, serve_text
from fedns.federation.protocol.packets import ANSWER, kind_of
from fedns.federation.protocol.transport import COORDINATOR

_FAMILIES = {
    "connected": ("gauge", "1 while the site is connected to the coordinator"),
    "heard": ("gauge", "when the coordinator was last there, in seconds since 1970"),
    "waiting_seconds": ("gauge", "for how long no request has come; 0 while one is answered"),
    "answer_seconds": ("gauge", "how long the last answer took"),
    "round_trip_seconds": (
        "gauge",
        "from the answer before to the last request: the network, the coordinator and the slowest site",
    ),
    "requests_answered": ("counter", "requests answered"),
    "requests_refused": ("counter", "requests refused"),
    "request_bytes": ("counter", "bytes of requests"),
    "answer_bytes": ("counter", "bytes of answers, refusals included"),
}


class Counted:
    """A site's service that counts what it is asked and gives."""

    def __init__(self, site: str, answer: Callable[[bytes], bytes]) -> None:
        self._site, self._answer = site, answer
        self._idle_since: float | None = time.monotonic()
        self.answer_seconds = self.round_trip_seconds = 0.0
        self.requests_answered = self.requests_refused = self.request_bytes = self.answer_bytes = 0

    def __call__(self, request: bytes) -> bytes:
        began = time.monotonic()
        if self._idle_since is not None and self.request_bytes:  # the first one was waited for
            self.round_trip_seconds = began - self._idle_since
        self._idle_since = None
        self.request_bytes += len(request)
        try:
            answer = self._answer(request)
        finally:
            self._idle_since = time.monotonic()
            self.answer_seconds = self._idle_since - began
        self.answer_bytes += len(answer)
        if kind_of(answer) == ANSWER:
            self.requests_answered += 1
        else:
            self.requests_refused += 1
        return answer

    @property
    def waiting_seconds(self) -> float:
        return time.monotonic() - self._idle_since if self._idle_since is not None else 0.0

    def text(self) -> str:
        values = vars(self) | vars(COORDINATOR) | {"waiting_seconds": self.waiting_seconds}
        return "".join(family(f"fedns_{name}", *about, {self._site: values[name]}) for name, about in _FAMILIES.items())


def watched(site: str, answer: Callable[[bytes], bytes], port: int | None) -> Callable[[bytes], bytes]:
    """The same service, with its numbers on this loopback port if there is one, for as long as the process lives."""
    if port is None:
        return answer
    counted = Counted(site, answer)
    serve_text(counted.text, port)
    return counted
