"""Sites in this process, behind real packets: a federation without a network."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import fedns
from fedns.core.clients import Handler
from fedns.core.problem import Evaluation
from fedns.core.shards import Shards
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.session import train
from fedns.federation.coordinator.state import CHECKPOINT_FILE, RunState
from fedns.federation.coordinator.watching import Journal
from fedns.federation.permissions import Permissions
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.federation.site.service import SiteService
from fedns.federation.site.table_kind import TableKind
from fedns.models.problem import Problem
from fedns.runs.builder import algorithm_of, at_site
from fedns.runs.over_sites import ColumnRun, Handshake, Policy, SiteRun, StudyRun

Answer = Callable[[bytes], bytes]
# Nothing is refused and nothing changed for the sake of privacy: these tests are about everything else.
OPEN_HANDED = Permissions(
    smallest_rows=1, rows_per_coefficient=0.0, rows_beyond_coefficients=-(2**31), smallest_level=0,
    largest_sketch_fraction=math.inf, rows_per_bucket=0.0, row_sampling=True, job_seed=True,
    smallest_effective_rows=0.0, effective_rows_per_coefficient=0.0, largest_record_share=1.0, smallest_mean_curvature=0.0,
    points=2**31, largest_released_fraction=math.inf, largest_sketched_fraction=math.inf, rounds=1000,
    largest_job_bytes=2**28, largest_table_bytes=2**40, largest_count=2**31, passes=2**31, answer_seconds=math.inf,
    smallest_difference=0, runs_per_hour=2**31, requests_per_round=2**31, requests_per_minute=2**31, explain=True,
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


def run_of(method: str, sites: int = 3, **changes) -> SiteRun:
    """The description of a run over so many sites: over columns, or, given a study, its handshake or its fit."""
    shared = {
        "sites": tuple(f"site-{j}" for j in range(sites)), "loss": "logistic", "sketch_size": 8, "strength": 1e-2,
        "intercept": True, "seed": 5,
    }  # fmt: skip
    if "study" not in changes:
        return ColumnRun(**shared | {"method": method, "rounds": 5, "gradient_tol": None} | changes)
    if changes.get("agreement"):
        return StudyRun(**shared | {"method": method, "rounds": 5} | changes)
    return Handshake(**shared | {name: value for name, value in changes.items() if name != "agreement"})


def one_client(shards: Shards, client: int) -> Shards:
    part = shards.select([client])
    features = shards.rows.values[part.starts[0] : part.stops[0]]
    return Shards.from_arrays(features, shards.targets[part.starts[0] : part.stops[0]], [len(features)])


@dataclass
class Given(TableKind):
    """Rows that are handed to a site, whatever run it is in."""

    shards: Shards | Callable[[SiteRun], Shards]
    how: Callable[[Any], tuple[Problem, Mapping[str, Handler]]] = at_site
    compiling: bool = False
    called: str = ""

    def rows(self, spec: SiteRun) -> Shards:
        return self.shards if isinstance(self.shards, Shards) else self.shards(spec)

    def build(self, spec: SiteRun) -> tuple[Problem, Mapping[str, Handler]]:
        return self.how(spec)

    @property
    def mark(self) -> str:
        return self.called

    def compiles(self) -> bool:
        return self.compiling


def services(shards: Shards, folder: Path, permissions: Permissions | None = None, build=at_site) -> dict[str, SiteService]:
    rules = permissions or OPEN_HANDED
    return {
        name: SiteService(name, Given(one_client(shards, j), build), rules, folder / name)
        for j, name in enumerate(run_of("fedns", shards.num_clients).sites)
    }


class Events(Journal):
    """A journal whose events go to a function."""

    def __init__(self, sites, event=lambda event, **facts: None):
        super().__init__(sites)
        self.event = event


class Federation:
    """A coordinator and its sites; every start is a new coordinator over the same sites' folders."""

    def __init__(self, shards: Shards, folder: Path, spec: ColumnRun, policy: Policy | None = None, permissions=None):
        self.folder, self.spec = folder, replace(spec, policy=policy or Policy(patience_seconds=0.0))
        self.transport = InProcess({name: service.answer for name, service in services(shards, folder, permissions).items()})
        self.events: list[dict] = []
        self.checkpoint = folder / CHECKPOINT_FILE

    def start(self, *, resume: bool = False, gradient_tol: float | None = None, watched: bool = True) -> fedns.History:
        """watched: evaluate over the sites and write checkpoints, as a coordinator does; else every objective is 0."""
        self.state = RunState.open(replace(self.spec, gradient_tol=gradient_tol), self.folder, resume=resume)
        self.cohort = NetworkedCohort(Link(self.transport, self.state, Events(self.spec.sites, self.log_event)))
        if not watched:
            self.cohort.evaluate = lambda w: Evaluation(0.0, 1.0)
        return train(algorithm_of(self.spec), self.cohort, observers=[self.state] if watched else [])

    def log_event(self, event: str, **facts) -> None:
        self.events.append({"event": event, **facts})


def ends_with(spec: ColumnRun, transport: Transport, *flags: str) -> int:
    """The exit status of `fedns coordinate` over these sites, through the door of the command line."""
    from fedns.cli import federation_commands  # and much else, which scripts that only need sites can spare
    from fedns.cli.app import main

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(federation_commands, "read_experiment", lambda path: spec)
        patch.setattr(federation_commands, "open_transport", lambda spec, logs: contextlib.nullcontext(transport))
        main(["coordinate", os.devnull, "--quiet", *flags])  # a file that is there; what it says is given above
    assert isinstance(ended.value.code, int)
    return ended.value.code
