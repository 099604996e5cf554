"""A coordinator that asks one site for what suits it, and what it makes of the answers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
from tests.federation.in_process import OPEN_HANDED, Given, run_of

from fedns.core.clients import Handler, messages_of
from fedns.core.messages import WIRE_PRECISIONS, Message
from fedns.core.messages.encoding import Envelope, decode, encode
from fedns.core.shards import Shards
from fedns.federation.permissions import Permissions
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, Packet
from fedns.federation.site.service import SiteService
from fedns.methods.curvature import Iterate
from fedns.methods.newton import Curvature
from fedns.models.evaluation import EvaluationPoint, LocalEvaluation, evaluate_locally
from fedns.models.problem import Problem
from fedns.numerics.linalg import symmetric_of
from fedns.runs.builder import at_site
from fedns.runs.over_sites import ColumnRun

GUARD_OFF, DEFAULTS = OPEN_HANDED, Permissions()


class Refused(Exception):
    """The site did not answer."""


class Attacker:
    """Knows the job, which it wrote, and nothing of the rows."""

    def __init__(
        self,
        shards: Shards,
        folder: Path,
        permissions: Permissions,
        method: str,
        extra: tuple[Handler, ...] = (),
        rehearses: bool = False,
        **changes: Any,
    ) -> None:
        def build(description: ColumnRun) -> tuple[Problem, Mapping[str, Handler]]:
            problem, handlers = at_site(description)
            return problem, {**handlers, **{handler.__name__: handler for handler in extra}}

        self.spec = run_of(method, 1, **{"rounds": 30, **changes})
        table = Given(shards, build, compiling=rehearses)  # a real site compiles when a run is opened
        self.service = SiteService("site-0", table, permissions, folder)
        self.num_rows = shards.num_samples
        self.num_features = shards.num_columns + int(self.spec.intercept)
        self._handlers = build(self.spec)[1]
        self.begin()

    def begin(self, **changes: Any) -> None:
        """A new run."""
        self.spec = replace(self.spec, **changes)
        self.run, self.exchange = secrets.token_bytes(16), 1
        self._send(OPEN, self.spec.agreed())

    def ask(self, handler: str, request: Message, round: int = 1, epoch: int = 0) -> Any:
        self.exchange += 1
        frame = encode(request, Envelope(round, handler=handler), WIRE_PRECISIONS["float64"])
        reply = messages_of(self._handlers[handler])[1]
        return decode(reply, self._send(ASK, frame, epoch, round))[0]

    def evaluate(self, w: np.ndarray, round: int = 1) -> LocalEvaluation:
        """Mean loss and gradient, which any method's coordinator may ask for."""
        return self.ask(evaluate_locally.__name__, EvaluationPoint(w), round)

    def curvature(self, w: np.ndarray, round: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """FedNewton's gradient and Hessian."""
        found: Curvature = self.ask("curvature", Iterate(w), round)
        return found.gradient, symmetric_of(found.hessian_triangle, len(w))

    def _send(self, kind: int, body: bytes, epoch: int = 0, committed: int = 0) -> bytes:
        packet = Packet(kind, self.run, epoch, self.exchange, 0, committed, body)
        reply = Packet.decode(self.service.answer(packet.encode()))
        if reply.kind != ANSWER:
            raise Refused(reply.body.decode())
        return reply.body


def recovered(found: np.ndarray, rows: np.ndarray, tolerance: float = 1e-3) -> float:
    """The share of the rows that some found row matches in every column, to within a share of the columns' spread."""
    spread = rows.std(axis=0) + 1e-12
    hits = [bool((np.abs(found - row) <= tolerance * spread).all(axis=1).any()) for row in rows] if len(found) else [False]
    return float(np.mean(hits))


def error(found: np.ndarray, rows: np.ndarray) -> float:
    """Root mean square error in units of the columns' spread; guessing every column's mean has 1."""
    return float(np.sqrt(np.mean(((found - rows) / (rows.std(axis=0) + 1e-12)) ** 2)))


def binary_by_linear_programming(sketch: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The column of zeros and ones with the fewest ones whose sketch comes closest to the one seen."""
    k, n = sketch.shape
    # Variables: the column in [0, 1], and how far each sketched entry is off, up and down, which costs far more.
    cost = np.concatenate([np.full(n, 1e-3), np.ones(2 * k)])
    equal = np.hstack([sketch, np.eye(k), -np.eye(k)])
    bounds = [(0, 1)] * n + [(0, None)] * (2 * k)
    result = scipy.optimize.linprog(cost, A_eq=equal, b_eq=seen, bounds=bounds, method="highs")
    return np.rint(result.x[:n])


Attack = Callable[[Path, Permissions], Any]
