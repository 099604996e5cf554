"""What a site's guard costs: rounds with its defaults against rounds with every rule switched off, taken in turns.

python benchmarks/guard_cost.py
"""

from __future__ import annotations

import logging
import secrets
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedns.algorithms.curvature import Model
from fedns.algorithms.searches import Ray
from fedns.core.encoding import Envelope, encode
from fedns.core.messages import WIRE_PRECISIONS, Message
from fedns.core.shards import Shards
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, Packet
from fedns.federation.site.permissions import Permissions
from fedns.federation.site.service import SiteService
from fedns.problems.evaluation import EvaluationPoint
from fedns.runs.builder import at_site
from fedns.runs.spec import Spec

ROUNDS, WARM_UP = 40, 4
GUARDED = Permissions(requests_per_minute=2**31, points=2**31)
# Secret seeds and the ledger stay: they cost the same whatever is permitted.
UNGUARDED = replace(
    GUARDED, smallest_level=0, smallest_effective_rows=0.0, effective_rows_per_coefficient=0.0, largest_record_share=1.0,
    smallest_mean_curvature=0.0, largest_released_fraction=float("inf"), largest_sketched_fraction=float("inf"),
)  # fmt: skip
SHAPES = ((20_000, 54), (581_012, 54), (5_000_000, 18))
# method, sketch, loss
CASES = (
    ("fedns", "srht", "logistic"),
    ("fedns", "sjlt", "logistic"),
    ("fednewton", "srht", "logistic"),
    ("fedns:line_search=aggregate", "srht", "logistic"),
    ("fedns:line_search=aggregate", "srht", "poisson"),
)


class Site:
    """A site that is asked as a coordinator would ask it, without a network."""

    def __init__(self, shards: Shards, spec: Spec, permissions: Permissions, folder: Path) -> None:
        self._service = SiteService("site", lambda spec: shards, at_site, permissions, folder)
        self._run, self._exchange = secrets.token_bytes(16), 0
        self._send(OPEN, spec.agreed(), 0)

    def _send(self, kind: int, body: bytes, round: int) -> None:
        self._exchange += 1
        packet = Packet(kind, self._run, 0, self._exchange, 0, round, body)
        reply = Packet.decode(self._service.answer(packet.encode()))
        if reply.kind != ANSWER:
            raise RuntimeError(reply.body.decode())

    def ask(self, handler: str, request: Message, round: int) -> None:
        self._send(ASK, encode(request, Envelope(round, handler=handler), WIRE_PRECISIONS["float64"]), round)

    def seconds_of_round(self, w: NDArray[np.float64], step: NDArray[np.float64], round: int, *, searched: bool) -> float:
        """Curvature, a search where the method has one, and the evaluation of the next point."""
        started = time.perf_counter()
        self.ask("curvature", Model(w), round)
        if searched:
            self.ask("losses_along", Ray(w, step, np.float64(-1.0)), round)
        self.ask("evaluate_locally", EvaluationPoint(w + step), round)
        return time.perf_counter() - started


def seconds_of_rounds(shards: Shards, method: str, sketch: str, loss: str) -> tuple[float, float]:
    """The median time of a round, guard off and on; the two take turns, so that both meet the same neighbours."""
    spec = Spec(sites=("site",), methods=(method,), sketch=sketch, sketch_size=20, loss=loss, rounds=ROUNDS)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        settings = enumerate((UNGUARDED, GUARDED))
        sites = [Site(shards, spec, permissions, Path(folder, str(number))) for number, permissions in settings]
        times: list[list[float]] = [[], []]
        w = np.zeros(shards.num_columns)
        for site in sites:
            site.ask("evaluate_locally", EvaluationPoint(w), 0)
        for round in range(1, ROUNDS + 1):
            step = 0.01 * random.normal(size=w.size)
            for taken, site in zip(times, sites, strict=True):
                taken.append(site.seconds_of_round(w, step, round, searched=":" in method))
            w = w + step
    off, on = (statistics.median(taken[WARM_UP:]) for taken in times)
    return off, on


def main() -> None:
    logging.disable(logging.ERROR)
    print("| rows | method | guard off, ms | defaults, ms | costs |\n|---|---|---|---|---|", flush=True)
    for rows, columns in SHAPES:
        random = np.random.default_rng(1)
        features = random.standard_normal((rows, columns))
        signs = np.where(features[:, 0] + random.standard_normal(rows) > 0, 1.0, -1.0)
        for method, sketch, loss in CASES:
            targets = signs if loss == "logistic" else signs + 1.0
            off, on = seconds_of_rounds(Shards.from_arrays(features, targets, [rows]), method, sketch, loss)
            name = f"{method.partition(':')[0]}, {sketch}{', line search' if ':' in method else ''}, {loss}"
            times = f"{1e3 * off:.1f} | {1e3 * on:.1f} | {100 * (on / off - 1):+.1f} %"
            print(f"| {rows:,} x {columns} | {name} | {times} |", flush=True)


if __name__ == "__main__":
    main()
