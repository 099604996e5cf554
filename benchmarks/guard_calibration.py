"""Which honest runs the defaults of a site's guard refuse: every method on every data set, split over 4 and 10 sites.

python benchmarks/guard_calibration.py [--rows 20000] [--rounds 20] [--datasets a,b] [--methods a,b] > calibration.md
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse

import fedns
from fedns.algorithms import METHODS
from fedns.core.shards import Shards
from fedns.data.catalogue import available
from fedns.data.missing import treat_missing
from fedns.data.partition import split_dataset
from fedns.data.scaling import scale
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.coordinate import train
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.state import RunState
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.federation.site.permissions import Permissions
from fedns.federation.site.service import SiteService
from fedns.numerics.rows import DenseRows
from fedns.runs.builder import algorithm_of, at_site, problem_of
from fedns.runs.policy import Policy
from fedns.runs.spec import Spec

SPLITS = (4, 10)
# Sites in one process answer faster than any network lets them be asked.
DEFAULTS = Permissions(requests_per_minute=2**31)


class Direct(Transport):
    """Calls the services of sites in this process."""

    def __init__(self, services: Mapping[str, SiteService]) -> None:
        self._services = services

    def connected(self) -> list[str]:
        return list(self._services)

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        for site, request in requests.items():
            yield Arrival(site, self._services[site].answer(request))

    def close(self) -> None:
        """Nothing is held."""


def prepared(name: str, sites: int, most_rows: int) -> tuple[Shards, str]:
    """The rows of every site, columns scaled to at most 1, and the loss that their targets call for."""
    options = {"positive": "1"} if name == "mnist" else {}
    found = treat_missing(fedns.load(name, **options), "mean")
    if found.num_samples > most_rows:
        chosen = np.sort(np.random.default_rng(0).choice(found.num_samples, most_rows, replace=False))
        found = replace(found, features=found.features[chosen], targets=found.targets[chosen], groups=None)
    shards, _ = scale(split_dataset(found, sites, "iid", 0), "maxabs")
    two = set(np.unique(shards.targets[: 10**5])) <= {-1.0, 1.0}
    return shards, "logistic" if two else "squared"


def rows_of(shards: Shards, client: int) -> Shards:
    """One client's rows in arrays of their own, as a site has them."""
    here = slice(int(shards.starts[client]), int(shards.stops[client]))
    rows = shards.rows
    dense = isinstance(rows, DenseRows)
    features = rows.values if dense else scipy.sparse.csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    return Shards.from_arrays(features[here], shards.targets[here], [here.stop - here.start])


def honest_run(shards: Shards, loss: str, method: str, rounds: int, folder: Path) -> str:
    """The first refusal of a run under the defaults, or nothing."""
    names = tuple(f"site-{number}" for number in range(shards.num_clients))
    spec = Spec(
        sites=names, methods=(method,), loss=loss, strength=1e-3, intercept=True, rounds=rounds, gradient_tol=1e-8,
        policy=Policy(patience_seconds=0.0),
    )  # fmt: skip
    own = {name: rows_of(shards, number) for number, name in enumerate(names)}
    services = {name: SiteService(name, lambda n=name: own[n], at_site, DEFAULTS, folder / name) for name in names}
    refusals: list[str] = []

    def note(event: str, **facts: object) -> None:
        if event == "refused":
            refusals.append(str(facts["reason"]).removeprefix("refuses: "))

    state = RunState.open(spec, folder, resume=False)
    with contextlib.suppress(fedns.FednsError), np.errstate(all="ignore"):
        train(algorithm_of(spec), NetworkedCohort(Link(Direct(services), state, log_event=note)), observers=[state])
    if refusals and refusals[0].startswith("R4") and diverges(spec, shards):
        return "R4, diverges without a guard too"
    return refusals[0].partition(":")[0] if refusals else ""


def diverges(spec: Spec, shards: Shards) -> bool:
    """Whether the same run ends above where it began, or not at all, with nobody to stop it."""
    with np.errstate(all="ignore"):
        try:
            records = fedns.simulate(algorithm_of(spec), problem_of(spec), shards, rounds=spec.rounds).records
        except fedns.FednsError:
            return True
    return not max(record.objective for record in records) <= 2 * records[0].objective


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--datasets", default="")
    parser.add_argument("--methods", default="")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    os.fsync = lambda file: None  # no crash is being waited for
    warnings.simplefilter("ignore")
    names = given.datasets.split(",") if given.datasets else [info.name for info in available() if ":" not in info.name]
    methods = given.methods.split(",") if given.methods else [n for n, kind in METHODS.items() if not kind.pooled]
    print("| data | sites | rows a site / M | runs | refused | by |\n|---|---|---|---|---|---|", flush=True)
    for name in names:
        for sites in SPLITS:
            shards, loss = prepared(name, sites, given.rows)
            by: dict[str, list[str]] = collections.defaultdict(list)
            for method in methods:
                with tempfile.TemporaryDirectory() as folder:
                    refusal = honest_run(shards, loss, method, given.rounds, Path(folder))
                if refusal:
                    by[refusal].append(method)
            ratio = shards.sizes.min() / (shards.num_columns + 1)
            words = "; ".join(f"{rule}: {', '.join(who)}" for rule, who in sorted(by.items()))
            print(
                f"| {name} | {sites} | {ratio:.1f} | {len(methods)} | {sum(map(len, by.values()))} | {words} |", flush=True
            )


if __name__ == "__main__":
    sys.exit(main())
