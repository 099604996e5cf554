"""The two small files of a federation: what a site holds and permits, and what a coordinator runs."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from fedns.core.checked import Checked, Known, filled
from fedns.core.errors import ConfigError, unknown
from fedns.core.files import checked_name, read_toml
from fedns.federation.permissions import Permissions
from fedns.federation.protocol.transport import Engine
from fedns.federation.reachable import days_left, expiring
from fedns.federation.transports import TRANSPORTS
from fedns.runs.compare import Device
from fedns.runs.over_sites import ColumnRun

log = logging.getLogger("fedns.federation")
SITE_FILE, EXPERIMENT_FILE, CREDENTIALS_FOLDER = "site.toml", "experiment.toml", "credentials"
EngineName = Annotated[str, Known(lambda: TRANSPORTS)]


@dataclass(frozen=True)
class DataSource:
    """Where a site's rows are, in the words of `fedns.load`."""

    dataset: str  # a path, from the folder of the file, or a name
    target: str | None = None
    weight: str | None = None
    positive: str | None = None
    event: str | None = None  # where the target is a time: the column that is 1 where the event was then, and else 0


@dataclass(frozen=True)
class SiteConfig(Checked):
    """A site: its name, its data, and what it will answer."""

    is_settings: ClassVar[bool] = True
    name: str
    engine: EngineName
    folder: Path  # of the file; the site's credentials are in it
    data: DataSource
    state: str = "state"  # what the site remembers of runs, and its ledger
    permit: Permissions = field(default_factory=Permissions)
    metrics_port: int | None = None  # on the loopback address, for Prometheus
    device: Device | None = None  # the processor where there is one to compute with

    def __post_init__(self) -> None:
        checked_name("name: a site's name", self.name)

    @property
    def credentials(self) -> Path:
        return self.folder / CREDENTIALS_FOLDER

    @classmethod
    def read(cls, path: Path) -> SiteConfig:
        values = read_toml(path)
        data = filled(DataSource, f"{path}, [data]", values.pop("data", {}))
        permit = filled(Permissions, f"{path}, [permit]", values.pop("permit", {}))
        return filled(cls, str(path), values, folder=path.resolve().parent, data=data, permit=permit)


def read_experiment(path: Path) -> ColumnRun:
    """What a coordinator runs, from its file, on an engine that is known."""
    spec = ColumnRun.from_toml(path)
    if spec.engine not in TRANSPORTS:
        raise ConfigError(f"{path}: {unknown('engine', spec.engine, TRANSPORTS)}")
    return spec


def engine_named(name: str) -> Engine:
    """The engine, checked to be known and installed."""
    if name not in TRANSPORTS:
        raise ConfigError(unknown("engine", name, TRANSPORTS))
    return TRANSPORTS[name].require()


def check_expiry(engine: Engine, credentials: Path) -> None:
    """Refuse credentials with a certificate that has ended, over every engine; a line in the log for one that soon will."""
    for certificate in engine.contact(credentials).certificates if engine.contact is not None else ():
        for sentence in expiring([certificate]):
            if days_left(certificate) < 0:
                raise ConfigError(sentence)
            log.warning("%s", sentence)
