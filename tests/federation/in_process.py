"""Sites in this process, behind real packets: a federation without a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedns
from fedns.core.cohort import Session
from fedns.core.run import Evaluation, run
from fedns.core.shards import Shards
from fedns.core.termination import Stop
from fedns.federation.coordinator.checkpoint import Checkpoint, Checkpointer
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.link import Link, new_run
from fedns.federation.protocol.policy import Policy
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.federation.site.permissions import Permissions
from fedns.federation.site.service import SiteService
from fedns.runs.builder import algorithm_of, at_site, problem_of
from fedns.runs.job import Job

Answer = Callable[[bytes], bytes]
# Nothing is refused and nothing changed for the sake of privacy: these tests are about everything else.
OPEN_HANDED = Permissions(
    smallest_rows=1, rows_per_coefficient=0.0, rows_beyond_coefficients=-(2**31), smallest_level=0,
    largest_sketch_fraction=math.inf, rows_per_bucket=0.0, row_sampling=True, job_seed=True,
    smallest_effective_rows=0.0, effective_rows_per_coefficient=0.0, largest_record_share=1.0, smallest_mean_curvature=0.0,
    points=2**31, largest_released_fraction=math.inf, rounds=1000,
    largest_job_bytes=2**28, largest_count=2**31, passes=2**31, answer_seconds=math.inf,
    requests_per_round=2**31, requests_per_minute=2**31, explain=True,
)  # fmt: skip


class InProcess(Transport):
    """Calls services directly; `before` may turn a request into a failure, `after` may change the answer."""

    def __init__(self, services: Mapping[str, Answer]) -> None:
        self.services = dict(services)
        self.exchanges = 0
        self.before: Callable[[str, int], str] = lambda site, exchange: ""
        self.after: Callable[[str, bytes], bytes] = lambda site, payload: payload

    def connected(self) -> list[str]:
        return list(self.services)

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        self.exchanges += 1
        for site in reversed(requests):  # not in the order of the sites, as it would be on a network
            failure = self.before(site, self.exchanges)
            if failure:
                yield Arrival(site, failure=failure)
            else:
                yield Arrival(site, self.after(site, self.services[site](requests[site])))

    def close(self) -> None:
        """Nothing is held."""


def job(method: str, sites: int = 3, **changes) -> Job:
    plain = Job(method, "srht", 8, "logistic", 1e-2, True, 5, "float64", 5, tuple(f"site-{j}" for j in range(sites)))
    return replace(plain, **changes)


def one_client(shards: Shards, client: int) -> Shards:
    part = shards.select([client])
    features = shards.rows.values[part.starts[0] : part.stops[0]]
    return Shards.from_arrays(features, shards.targets[part.starts[0] : part.stops[0]], [len(features)])


def services(shards: Shards, folder: Path, permissions: Permissions | None = None) -> dict[str, SiteService]:
    rules = permissions or OPEN_HANDED
    return {
        name: SiteService(name, lambda j=j: one_client(shards, j), at_site, rules, folder / name)
        for j, name in enumerate(job("fedns", shards.num_clients).sites)
    }


class Federation:
    """A coordinator and its sites; every start is a new coordinator over the same sites' folders."""

    def __init__(self, shards: Shards, folder: Path, description: Job, policy: Policy | None = None, permissions=None):
        self.folder, self.job, self.policy = folder, description, policy or Policy(patience_seconds=0.0)
        self.transport = InProcess({name: service.answer for name, service in services(shards, folder, permissions).items()})
        self.events: list[dict] = []
        self.checkpoint = folder / "checkpoint"

    def start(self, *, resume: bool = False, gradient_tol: float | None = None, watched: bool = True) -> fedns.History:
        """watched: evaluate over the sites and write checkpoints, as a coordinator does; else every objective is 0."""
        problem, algorithm = problem_of(self.job), algorithm_of(self.job)
        saved = Checkpoint.load(self.checkpoint) if resume else None
        session = Session(problem, self.job.seed, self.job.wire)
        link = Link(
            self.transport, self.job, self.policy, saved.run if saved else new_run(),
            log_event=lambda event, **fields: self.events.append({"event": event, **fields}),
            on_epoch=lambda epoch: (self.folder / "epoch").write_text(str(epoch)),
        )  # fmt: skip
        weights = None
        if saved:
            session.meter, session.round, session.num_features = saved.meter, saved.records[-1].round, saved.num_features
            epoch = self.folder / "epoch"
            link.epoch = max(saved.epoch, int(epoch.read_text()) if epoch.exists() else 0)
            link.exchange, link.committed_rounds = saved.exchange, saved.committed_rounds
            link.new_epoch()
            weights = np.array(saved.total_weights)
        self.cohort = NetworkedCohort(session, link, weights)
        return run(
            algorithm, problem, self.cohort, evaluate=self.cohort.evaluate if watched else lambda w: Evaluation(0.0, 1.0),
            stop=Stop(self.job.rounds, gradient_norm=gradient_tol),
            observers=[Checkpointer(self.checkpoint, self.cohort, saved.records if saved else ())] if watched else (),
            resume=saved.progress if saved else None,
        )  # fmt: skip
