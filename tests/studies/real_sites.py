"""Sites as processes of their own, with TLS and keys, kept up for many fits: their tables are written anew in between."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.processes import PATIENCE_SECONDS

from fedns.federation.config import EXPERIMENT_FILE, SITE_FILE, read_experiment
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.processes import free_port
from fedns.federation.protocol.transport import Transport
from fedns.federation.provision import init_federation
from fedns.lab.comparison.federation_demo import _PERMIT, site_processes
from fedns.runs.over_sites import ColumnRun
from fedns.studies.federated import fit_federation
from fedns.studies.fitting.estimate import StudyFit
from fedns.studies.study import Study

SITES = ("north", "south", "west", "east", "centre")
TABLE = "table.csv"


@dataclass
class RealSites:
    """A federation whose sites are running."""

    folder: Path
    experiment: ColumnRun
    transport: Transport
    fits: int = 0

    def fit(self, study: Study, paths: Mapping[str, Path]) -> StudyFit:
        """Give each site its table, and fit over these sites."""
        self.give(paths)
        self.fits += 1
        everybody = replace(self.experiment.policy, quorum=len(paths))
        spec = replace(self.experiment, sites=tuple(paths), policy=everybody)
        return fit_federation(study, spec, self.transport, self.folder / f"run-{self.fits}")

    def give(self, paths: Mapping[str, Path]) -> None:
        for name, path in paths.items():
            place_table(self.folder / "sites" / name, path.read_bytes())

    def log_of(self, site: str) -> str:
        """What the owner of the rows can read: what the site printed, or an engine's process for it."""
        folder = self.folder / "sites" / site
        found = [path for path in folder.rglob("*.txt") if path.name in ("output.txt", "console.txt", "log.txt")]
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in found)


def place_table(folder: Path, content: bytes) -> None:
    """Whole or not at all: a site must not read half of a table."""
    (folder / "new").write_bytes(content)
    (folder / "new").replace(folder / TABLE)


def provision(folder: Path, engine: str, sites: tuple[str, ...] = SITES) -> ColumnRun:
    """Keys and files; the limits that need many rows are off, those of the handshake are not."""
    init_federation(folder, engine, list(sites), f"localhost:{free_port()}")
    for name in sites:
        # Tables of scores of all studies together: the sites are the same for every test.
        permit = _PERMIT.replace("smallest_level = 0", "smallest_level = 5") + "score_tables = 1000\n"
        text = f'name = "{name}"\nengine = "{engine}"\n\n[data]\ndataset = "{TABLE}"\n\n{permit}'
        (folder / "sites" / name / SITE_FILE).write_text(text, encoding="utf-8")
        place_table(folder / "sites" / name, b"age,score\n1,2\n3,4\n")
    path = folder / "coordinator" / EXPERIMENT_FILE
    settings = path.read_text(encoding="utf-8").replace("timeout_seconds = 60", f"timeout_seconds = {PATIENCE_SECONDS:g}")
    path.write_text(settings, encoding="utf-8")
    return read_experiment(path)


@contextlib.contextmanager
def real_sites(folder: Path, engine: str) -> Iterator[RealSites]:
    experiment = provision(folder, engine)
    with site_processes(folder), open_transport(experiment, logs=folder / "logs") as transport:
        yield RealSites(folder, experiment, transport)
