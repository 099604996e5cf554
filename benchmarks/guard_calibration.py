"""Which honest runs the defaults of a site's guard refuse: every method on every data set, split over 4 and 10 sites.

python benchmarks/guard_calibration.py --into docs/threat-model.md

What has been run stands in a file (--results), and is not run again: the command may be ended and taken up later.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import fedns
from fedns.core.clients import Handler
from fedns.core.shards import Shards
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.session import train
from fedns.federation.coordinator.state import RunState
from fedns.federation.coordinator.watching import Journal
from fedns.federation.permissions import Permissions
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.federation.site.service import SiteService
from fedns.federation.site.table_kind import TableKind
from fedns.lab.data.catalogue import available
from fedns.lab.data.partition import split_dataset
from fedns.methods import METHODS
from fedns.numerics.rows import DenseRows
from fedns.runs.builder import algorithm_of, at_site, problem_of
from fedns.runs.over_sites import ColumnRun, Policy
from fedns.studies.tables.missing import treat_missing
from fedns.studies.tables.scaling import scale

SPLITS = (4, 10)
VARIANTS = ("fedns:growth=log2", "fedns:growth=adaptive")  # other requests than those of the method as it is
SYNTHETIC = {"synthetic:susy": (20_000, 18), "synthetic:covtype": (20_000, 54)}  # smaller than the catalogue's
ROWS, ROWS_PER_COEFFICIENT = 4000, 12  # that a data set is cut to: the rules look at rows per coefficient
BEGIN, END = "<!-- calibration -->", "<!-- end of calibration -->"
# Sites in one process answer faster than any network lets them be asked, and kernels are compiled while they answer.
DEFAULTS = Permissions(requests_per_minute=2**31, answer_seconds=3600.0)
Result = dict[str, Any]


class Rows(TableKind):
    """Rows at hand."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def rows(self, spec: ColumnRun) -> Shards:
        return self._shards

    def build(self, spec: ColumnRun) -> tuple[fedns.Problem, Mapping[str, Handler]]:
        return at_site(spec)


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


def prepared(name: str, sites: int) -> tuple[Shards, str]:
    """The rows of every site, columns scaled to at most 1, and the loss that their targets call for."""
    if name in SYNTHETIC:
        rows, columns = SYNTHETIC[name]
        random = np.random.default_rng(0)
        features = random.standard_normal((rows, columns))
        signs = np.where(features @ random.standard_normal(columns) + random.standard_normal(rows) > 0, 1.0, -1.0)
        return scale(Shards.from_arrays(features, signs, [rows // sites] * sites), "maxabs")[0], "logistic"
    options = {"positive": "1"} if name == "mnist" else {}
    found = treat_missing(fedns.load(name, **options), "mean")
    most = max(ROWS, ROWS_PER_COEFFICIENT * sites * (found.features.shape[1] + 1))
    if found.num_samples > most:
        chosen = np.sort(np.random.default_rng(0).choice(found.num_samples, most, replace=False))
        found = replace(found, features=found.features[chosen], targets=found.targets[chosen], groups=None)
    shards, _ = scale(split_dataset(found, sites, "iid", 0), "maxabs")
    two = set(np.unique(shards.targets)) <= {-1.0, 1.0}
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
    spec = ColumnRun(
        sites=names, method=method, loss=loss, strength=1e-3, intercept=True, rounds=rounds, gradient_tol=1e-8,
        sketch_size=min(16, max(1, int(shards.sizes.min()) // 8)), policy=Policy(patience_seconds=0.0),
    )  # fmt: skip
    own = {name: rows_of(shards, number) for number, name in enumerate(names)}
    services = {name: SiteService(name, Rows(own[name]), DEFAULTS, folder / name) for name in names}
    refusals: list[str] = []

    def note(event: str, **facts: object) -> None:
        if event == "refused":
            refusals.append(str(facts["reason"]).removeprefix("refuses: "))

    state, journal = RunState.open(spec, folder, resume=False), Journal(names)
    journal.event = note
    with contextlib.suppress(fedns.FednsError), np.errstate(all="ignore"):
        train(algorithm_of(spec), NetworkedCohort(Link(Direct(services), state, journal)), observers=[state])
    if refusals and refusals[0].startswith("R4") and diverges(spec, shards):
        return "R4, diverges without a guard too"
    return refusals[0].partition(":")[0] if refusals else ""


def diverges(spec: ColumnRun, shards: Shards) -> bool:
    """Whether the same run ends above where it began, or not at all, with nobody to stop it."""
    with np.errstate(all="ignore"):
        try:
            records = fedns.simulate(algorithm_of(spec), problem_of(spec), shards, rounds=spec.rounds).records
        except fedns.FednsError:
            return True
    return not max(record.objective for record in records) <= 2 * records[0].objective


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--datasets", default="", help="names with commas between them; all by default")
    parser.add_argument("--methods", default="", help="the same")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--results", type=Path, default=Path("runs/guard_calibration.jsonl"))
    parser.add_argument("--into", type=Path, help="a page whose table is replaced")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    os.fsync = lambda file: None  # no crash is being waited for
    warnings.simplefilter("ignore")
    names = given.datasets.split(",") if given.datasets else [info.name for info in available()]
    methods = (
        given.methods.split(",") if given.methods else [n for n, kind in METHODS.items() if not kind.pooled] + [*VARIANTS]
    )
    given.results.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        for sites in SPLITS:
            run_missing(name, sites, methods, given.rounds, given.results)
    found = table(read(given.results))
    print(found)
    if given.into:
        before, _, after = given.into.read_text(encoding="utf-8").partition(BEGIN)
        page = f"{before}{BEGIN}\n{found}\n{END}{after.partition(END)[2]}"
        given.into.write_text(page, encoding="utf-8")


def run_missing(name: str, sites: int, methods: list[str], rounds: int, results: Path) -> None:
    """Run what has no line yet, a line for each as it ends."""
    known = {result["method"] for result in read(results) if (result["data"], result["sites"]) == (name, sites)}
    left = [method for method in methods if method not in known]
    if not left:
        return
    shards, loss = prepared(name, sites)
    width = shards.num_columns + 1
    for method in left:
        with tempfile.TemporaryDirectory() as folder:
            refusal = honest_run(shards, loss, method, rounds, Path(folder))
        result = {"data": name, "sites": sites, "ratio": round(int(shards.sizes.min()) / width, 1), "method": method}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result | {"refusal": refusal}) + "\n")


def read(results: Path) -> list[Result]:
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []


def table(results: list[Result]) -> str:
    """A line for every data set and number of sites, those with the most rows per coefficient last."""
    cases: dict[tuple[str, int, float], list[Result]] = collections.defaultdict(list)
    for result in results:
        cases[result["data"], result["sites"], result["ratio"]].append(result)
    lines = ["| data | sites | rows a site / M | runs | refused |", "|---|---|---|---|---|"]
    for (data, sites, ratio), found in sorted(cases.items(), key=lambda case: case[0][2]):
        by: dict[str, list[str]] = collections.defaultdict(list)
        for result in found:
            if result["refusal"]:
                by[result["refusal"]].append(result["method"])
        words = "; ".join(f"{rule}: {', '.join(who)}" for rule, who in sorted(by.items()))
        lines.append(f"| {data} | {sites} | {ratio} | {len(found)} | {words or 'none'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
