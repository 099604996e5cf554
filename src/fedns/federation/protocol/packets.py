"""What travels between coordinator and sites: a fedns message inside a packet that says which run and exchange it is of."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from fedns import __version__
from fedns.core.errors import MessageError
from fedns.runs.over_sites import LARGEST_BYTES

MAGIC, VERSION = 0xFD, 2
OPEN, ASK, ANSWER, REFUSAL, OVERFLOW, UNABLE = 1, 2, 3, 4, 5, 6  # unable: now, and the same request may be answered later
KINDS = {OPEN: "open", ASK: "ask", ANSWER: "answer", REFUSAL: "refusal", OVERFLOW: "overflow", UNABLE: "inability"}
_HEAD = struct.Struct("<BBB16sIIIIQ")


class VersionError(MessageError):
    """A packet of another version of the protocol: asking again would not help."""


@dataclass(frozen=True)
class Packet:
    """One request to one site, or its answer."""

    kind: int
    run: bytes  # 16 bytes that no other run has
    epoch: int  # grows when a round is repeated; an older one is over
    exchange: int  # grows with every request; asking again for the same one repeats the same answer
    site: int  # the site's number in this run
    committed_rounds: int = 0  # what the site did in rounds before this one has been used; the rest it has to take back
    body: bytes = b""

    def encode(self) -> bytes:
        numbers = self.epoch, self.exchange, self.site, self.committed_rounds, len(self.body)
        return _HEAD.pack(MAGIC, VERSION, self.kind, self.run, *numbers) + self.body

    def reply(self, kind: int, body: bytes) -> Packet:
        return replace(self, kind=kind, body=body)

    @classmethod
    def decode(cls, data: bytes, largest_bytes: int = LARGEST_BYTES) -> Packet:
        """The packet in these bytes; refuses what is too large before looking at it."""
        if len(data) > largest_bytes:
            raise MessageError(f"a packet of {len(data)} bytes is over the limit of {largest_bytes}")
        if len(data) < _HEAD.size:
            raise MessageError(f"a packet of {len(data)} bytes is cut short")
        magic, version, kind, run, epoch, exchange, site, committed_rounds, length = _HEAD.unpack_from(data)
        if magic == MAGIC and version != VERSION:
            raise VersionError(
                f"the other end speaks packets of version {version}, this one, fedns {__version__}, of version {VERSION}: "
                "install the same version at both ends"
            )
        if magic != MAGIC or kind not in KINDS:
            raise MessageError(f"not a fedns packet of version {VERSION}: it starts with {bytes(data[:3]).hex()}")
        if length != len(data) - _HEAD.size:
            raise MessageError(f"a packet of {length} bytes arrived with {len(data) - _HEAD.size}")
        return cls(kind, run, epoch, exchange, site, committed_rounds, bytes(data[_HEAD.size :]))


def kind_of(data: bytes) -> int:
    """The kind of a packet that this end has encoded."""
    return data[2]
