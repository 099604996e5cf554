"""Looking a site or a coordinator over before any run: what is in order, and what to do about what is not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedns.core.errors import FednsError
from fedns.core.files import read_toml
from fedns.core.shards import Shards
from fedns.federation.config import CREDENTIALS_FOLDER, SiteConfig, engine_named, read_experiment
from fedns.federation.coordinator.state import CHECKPOINT_FILE
from fedns.federation.processes import refuse_taken_port
from fedns.federation.protocol.opening import introduction
from fedns.federation.protocol.transport import Engine
from fedns.federation.reachable import Contact, days_left, expiring, nobody_listens, shows, why_unreachable
from fedns.federation.site.explain import read_from_disk
from fedns.federation.site.table_kind import TableKind
from fedns.numerics.backends.devices import on_device
from fedns.runs.over_sites import ColumnRun

SPARE_BYTES = 200 << 20  # of disk and memory, beside what the rows take
COPIES = 3  # of the rows: as read, as kept on disk and mapped, as worked on


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: in order, or what is wrong and what to do."""

    what: str
    fault: str = ""
    waits: bool = False  # the fault goes by itself, or by what somebody else does

    @property
    def state(self) -> str:
        return "OK" if not self.fault else "WAIT" if self.waits else "FIX"


@dataclass
class Examination:
    """Findings in the order in which they were made; what depends on something that failed is left out."""

    findings: list[Finding] = field(default_factory=list)

    def check(self, what: str, fault: str = "", *, waits: bool = False) -> bool:
        self.findings.append(Finding(what, fault, waits))
        return not fault

    def attempt(self, what: str, action: Callable[[], Any]) -> Any:
        """What the action gives, or None and a finding with its sentence."""
        try:
            result = action()
        except FednsError as error:
            self.check(what, str(error))
            return None
        except OSError as error:
            self.check(what, f"'{error.filename}': {error.strerror}" if error.filename else str(error))
            return None
        self.check(what)
        return result


def examine(path: Path, table_of: Callable[[SiteConfig], TableKind]) -> list[Finding]:
    """Look over a site's file or a coordinator's, by what is in it. table_of: the kind of table that a site's file holds."""
    exam = Examination()
    values = exam.attempt(f"{path} can be read", lambda: read_toml(path))
    if values is not None:
        if "sites" in values:
            _examine_coordinator(path, exam)
        else:
            _examine_site(path, exam, table_of)
    return exam.findings


def _examine_site(path: Path, exam: Examination, table_of: Callable[[SiteConfig], TableKind]) -> None:
    config: SiteConfig | None = exam.attempt("settings", lambda: SiteConfig.read(path))
    if config is None:
        return
    _examine_folder(exam, config.folder / config.state)
    table = table_of(config)
    rows = exam.attempt("table", table.plain_rows)
    is_there = not exam.findings[-1].fault
    if rows is not None:
        _examine_rows(exam, config, rows)
    if is_there:
        _examine_limits(exam, table.meaning())
    if config.device is not None:
        exam.attempt(f"device {config.device}", partial(on_device, config.device))
    engine, contact = _examine_credentials(exam, config.engine, config.credentials, renews=False)
    if engine is None or contact is None:
        return
    where = f"coordinator at {contact.host}:{contact.port}"
    fault = why_unreachable(contact)
    if fault and nobody_listens(contact):
        fault = "nobody listens there yet: the coordinator is started when its owner starts it"
        exam.check(where, fault, waits=True)
    elif exam.check(where, fault) and engine.admits is not None:
        exam.check("the coordinator knows this site, and the clocks agree", engine.admits(config.credentials))


def _examine_rows(exam: Examination, config: SiteConfig, shards: Shards) -> None:
    held = sum(part.nbytes for part in shards.rows if isinstance(part, np.ndarray))
    free, memory = shutil.disk_usage(config.folder).free, _free_memory()
    needed = COPIES * held + SPARE_BYTES
    exam.check(f"disk: {_size(free)} free", "" if free > needed else f"make room: {_size(needed)} are wanted")
    if larger := read_from_disk(shards):
        exam.check(f"memory: {larger}")
    elif memory is not None:
        exam.check(f"memory: {_size(memory)} free", "" if memory > needed else f"{_size(needed)} are wanted for these rows")


def _examine_limits(exam: Examination, sentences: list[str]) -> None:
    for sentence in sentences:
        refuses = "will refuse" in sentence and "Hessian" not in sentence  # which most methods do without
        exam.check(f"limits: {sentence}", "change the limits in [permit], or the table" if refuses else "")


def _examine_coordinator(path: Path, exam: Examination) -> None:
    spec: ColumnRun | None = exam.attempt("settings", lambda: read_experiment(path))
    if spec is None:
        return
    _examine_folder(exam, spec.folder)
    free = shutil.disk_usage(spec.home).free
    exam.check(f"disk: {_size(free)} free", "" if free > SPARE_BYTES else f"make room: {_size(SPARE_BYTES)} are wanted")
    _, contact = _examine_credentials(exam, spec.engine, spec.home / CREDENTIALS_FOLDER, renews=True)
    host, _, port = spec.listen.rpartition(":")
    local = "127.0.0.1" if host in ("0.0.0.0", "") else host
    runs = contact is not None and any(shows(local, int(port), certificate) for certificate in contact.certificates)
    if runs:
        exam.check(f"port {port} is free", "this federation's coordinator is running there, until its run ends", waits=True)
    else:
        exam.attempt(f"port {port} is free", lambda: refuse_taken_port(int(port), local))
    held = "it holds the run that is under way" if runs else "it holds a run: go on with --resume, or give another 'out'"
    exam.check(f"{spec.folder} is free", held if (spec.folder / CHECKPOINT_FILE).exists() else "", waits=runs)
    if contact is not None and contact.known is not None:
        missing = sorted(set(spec.sites) - contact.known.keys())
        fault = f"{', '.join(missing)} have no key here: run `fedns init-federation` again with all names" if missing else ""
        exam.check("every site has a key here", fault)


def _examine_credentials(
    exam: Examination, name: str, folder: Path, *, renews: bool
) -> tuple[Engine | None, Contact | None]:
    """renews: whoever reads this can renew certificates; elsewhere one that still holds is somebody else's to renew."""
    engine: Engine | None = exam.attempt(f"engine {name}", lambda: engine_named(name))
    if engine is None:
        return None, None
    runs = ", ".join(f"{name} {text}" for name, text in introduction().items() if name != "processor")
    carrier = f", {engine.package} {version(engine.package)}" if engine.needs_more else ""
    exam.check(f"{runs}{carrier}: the same everywhere?")
    if engine.contact is None:
        return engine, None
    contact: Contact | None = exam.attempt("credentials", lambda: engine.contact and engine.contact(folder))
    if contact is None:
        return engine, None
    for file in (contact.authority, *contact.certificates):
        problems = exam.attempt(f"certificate {file.name}", lambda file=file: expiring([file]))  # type: ignore[misc]
        if problems:
            exam.findings[-1] = Finding(f"certificate {file.name}", problems[0], not renews and days_left(file) > 0)
    if contact.key is not None:
        exam.attempt("private key", lambda: _check_key(contact.key))  # type: ignore[arg-type]
    return engine, contact


def _check_key(key: Path) -> None:
    if key.stat().st_mode & 0o077:
        raise FednsError(f"others on this machine can read it: chmod 600 {key}")
    key.read_bytes()


def _examine_folder(exam: Examination, folder: Path) -> None:
    def write() -> None:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass

    exam.attempt(f"{folder} can be written", write)


def _free_memory() -> int | None:
    facts = Path("/proc/meminfo")
    if not facts.exists():
        return None
    lines = dict(line.split(":", 1) for line in facts.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) << 10


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GB"
