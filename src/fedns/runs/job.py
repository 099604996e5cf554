"""The description of a run that travels: what coordinator and sites must agree on."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, fields
from typing import Any

from fedns.core.errors import MessageError


@dataclass(frozen=True)
class Job:
    """What a run is about: all that a site needs to know to answer for it."""

    method: str  # as on the command line, parameters behind a colon
    sketch: str
    sketch_size: int
    loss: str
    strength: float
    intercept: bool
    seed: int
    wire: str
    rounds: int
    sites: tuple[str, ...]  # in order: a site's number is its place here

    def to_json(self) -> bytes:
        return json.dumps(vars(self), separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """By which the owner of a site's rows can agree to this run and no other."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @classmethod
    def from_json(cls, data: bytes) -> Job:
        try:
            values: Any = json.loads(data)
        except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
            raise MessageError("the description of the run is not JSON") from None
        if not isinstance(values, dict) or set(values) != {field.name for field in fields(cls)}:
            raise MessageError("the description of the run does not have the fields that this version knows")
        kinds = {"method": str, "sketch": str, "sketch_size": int, "loss": str, "strength": float, "intercept": bool}
        kinds |= {"seed": int, "wire": str, "rounds": int, "sites": list}
        for name, kind in kinds.items():
            if type(values[name]) is not kind:
                raise MessageError(f"the description of the run has {name} = {values[name]!r}, not a {kind.__name__}")
        if not math.isfinite(values["strength"]):
            raise MessageError(f"the description of the run has strength = {values['strength']}, not a finite number")
        if not all(isinstance(site, str) for site in values["sites"]):
            raise MessageError("the description of the run names sites that are not texts")
        return cls(**values | {"sites": tuple(values["sites"])})
