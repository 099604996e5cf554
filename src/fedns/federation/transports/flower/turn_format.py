"""What a site and the door put into a turn. Sites load this, not SuperLink's own modules, which take half a second."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from flwr.proto.message_pb2 import ObjectTree

TURN_PATH = "/v1/fleet/fedns-turn"
HOLD_SECONDS = 3.0  # how long a turn without a question lasts
AFTERLIFE_SECONDS = 5.0  # a message outlives its exchange by this: asking for one that has expired is an error at SuperLink
_LENGTH = struct.Struct(">Q")


def pack_parts(parts: Sequence[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def unpack_parts(data: bytes, count: int) -> list[bytes]:
    """So many parts or more; raises ValueError where the bytes hold anything else."""
    parts: list[bytes] = []
    start = 0
    while start < len(data) or len(parts) < count:
        if start + _LENGTH.size > len(data):
            raise ValueError("parts are missing")
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size
        parts.append(data[start : start + length])
        start += length
    if start != len(data):
        raise ValueError("the lengths of the parts do not add up")
    return parts


def leaf(tree: ObjectTree) -> str:
    """The one part of a message that holds something: the record, or the message itself if it is an error."""
    while tree.children:
        tree = tree.children[0]
    return tree.object_id
