"""What a site's guard costs: the time of rounds with its defaults against the time with every rule switched off.

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

from fedns.algorithms.curvature import Model
from fedns.algorithms.searches import Ray
from fedns.core.messages import WIRE_PRECISIONS, Envelope, Message, encode
from fedns.core.shards import Shards
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, Packet
from fedns.federation.site.permissions import Permissions
from fedns.federation.site.service import SiteService
from fedns.problems.evaluation import EvaluationPoint
from fedns.runs.builder import at_site
from fedns.runs.spec import Spec

ROUNDS = 12
GUARDED = Permissions(requests_per_minute=2**31)
# Secret seeds and the ledger stay: they cost the same whatever is permitted.
UNGUARDED = replace(
    GUARDED, smallest_level=0, smallest_effective_rows=0.0, effective_rows_per_coefficient=0.0, largest_record_share=1.0,
    smallest_mean_curvature=0.0, largest_released_fraction=float("inf"), largest_sketched_fraction=float("inf"),
)  # fmt: skip


def seconds_of_rounds(shards: Shards, method: str, sketch: str, permissions: Permissions, searched: bool) -> float:
    """The median time of a round: curvature, a search where the method has one, and the evaluation of the next point."""
    spec = Spec(sites=("site",), methods=(method,), sketch=sketch, sketch_size=20, loss="logistic", rounds=ROUNDS)
    random, run = np.random.default_rng(0), secrets.token_bytes(16)
    with tempfile.TemporaryDirectory() as folder:
        service = SiteService("site", lambda: shards, at_site, permissions, Path(folder))
        exchange = 0

        def send(kind: int, body: bytes, round: int) -> None:
            nonlocal exchange
            exchange += 1
            reply = Packet.decode(service.answer(Packet(kind, run, 0, exchange, 0, round, body).encode()))
            if reply.kind != ANSWER:
                raise RuntimeError(reply.body.decode())

        def ask(handler: str, request: Message, round: int) -> None:
            send(ASK, encode(request, Envelope(round, handler=handler), WIRE_PRECISIONS["float64"]), round)

        send(OPEN, spec.agreed(), 0)
        w = np.zeros(shards.num_columns)
        ask("evaluate_locally", EvaluationPoint(w), 0)
        times = []
        for round in range(1, ROUNDS + 1):
            step = 0.02 * random.normal(size=w.size)
            started = time.perf_counter()
            ask("curvature", Model(w), round)
            if searched:
                ask("losses_along", Ray(w, step, np.float64(-1.0)), round)
            w = w + step
            ask("evaluate_locally", EvaluationPoint(w), round)
            times.append(time.perf_counter() - started)
    return statistics.median(times[2:])


def main() -> None:
    logging.disable(logging.ERROR)
    print("| rows | method | guard off, ms | defaults, ms | costs |\n|---|---|---|---|---|", flush=True)
    for rows, columns in ((20_000, 54), (581_012, 54), (5_000_000, 18)):
        random = np.random.default_rng(1)
        features = random.standard_normal((rows, columns))
        targets = np.where(features[:, 0] + random.standard_normal(rows) > 0, 1.0, -1.0)
        shards = Shards.from_arrays(features, targets, [rows])
        cases = [("fedns", "srht"), ("fedns", "sjlt"), ("fednewton", "srht"), ("fedns:line_search=aggregate", "srht")]
        for method, sketch in cases:
            searched = ":" in method
            off, on = (
                min(seconds_of_rounds(shards, method, sketch, p, searched) for _ in range(2)) for p in (UNGUARDED, GUARDED)
            )
            name = f"{method.partition(':')[0]}, {sketch}{', line search' if searched else ''}"
            print(
                f"| {rows:,} x {columns} | {name} | {1e3 * off:.1f} | {1e3 * on:.1f} | {100 * (on / off - 1):+.1f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
