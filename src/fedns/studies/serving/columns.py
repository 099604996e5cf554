"""A site's columns as they are: read from their file once, mapped into memory afterwards."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedns import __version__
from fedns.core.clients import Handler
from fedns.core.errors import DataError, unknown
from fedns.core.shards import Shards
from fedns.federation.config import SITE_FILE, DataSource, SiteConfig
from fedns.federation.site.budget import Budget, fingerprint
from fedns.federation.site.explain import meaning
from fedns.federation.site.table_kind import TableKind
from fedns.models.families import family_of
from fedns.models.problem import Problem
from fedns.numerics import memory
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.rows import DenseRows, SparseRows
from fedns.runs.builder import at_site
from fedns.runs.over_sites import ColumnRun, SiteRun
from fedns.studies.questions import asked_of_rows
from fedns.studies.tables.dataset import Dataset

Load = Callable[..., Dataset]  # `fedns.load`, which knows named sets, too
_LARGE = ("flat", "data", "indices")
_FORMAT = 2  # of the files: others are written anew


class Columns(TableKind):
    """A site's columns as they are."""

    def __init__(self, config: SiteConfig, load: Load) -> None:
        self.config, self._load = config, load

    def rows(self, spec: SiteRun) -> Shards:
        if not isinstance(spec, ColumnRun):
            raise DataError(f"{self.config.data.dataset}: a study needs a table with columns, such as .csv or .parquet")
        return self.shards

    @property
    def shards(self) -> Shards:
        """The rows as one client. A process that is started for a single message must not parse its file again."""
        config, source = self.config, _located(self.config)
        path = Path(source.dataset)
        if not path.is_file():  # a named set has no one file to be recognised by
            return _parse(source, None, self._load).onehot
        folder = config.folder / config.state / "rows" / _key(path, source)
        return _mapped(folder, lambda room: _parse(source, room, self._load))

    def build(self, spec: SiteRun) -> tuple[Problem, Mapping[str, Handler]]:
        if not isinstance(spec, ColumnRun):
            return Problem(), {}  # `rows` will say that there are none for it
        return without_study(spec, self.config.device)

    def plain_rows(self) -> Shards | None:
        return self.shards

    def meaning(self) -> list[str]:
        return meaning(self.config.permit, self.shards, self.budget)

    @property
    def budget(self) -> Budget:
        """The budget that requests are counted in: that of the table, or that of its rows."""
        return Budget(self.config.folder / self.config.state, self.mark or fingerprint(self.shards))

    def compiles(self) -> bool:
        return True


def without_study(spec: ColumnRun, device: str | None = None) -> tuple[Problem, Mapping[str, Handler]]:
    """Of a run over bare columns: what its method asks for, and what tells how much its coefficients are worth."""
    problem, handlers = at_site(spec, device)
    family = family_of(problem.loss)
    return problem, {**handlers, **(by_name(*asked_of_rows(family)) if family else {})}


def by_name(*handlers: Handler) -> dict[str, Handler]:
    return {handler.__name__: handler for handler in handlers}


def _located(config: SiteConfig) -> DataSource:
    beside = config.folder / config.data.dataset
    if not beside.exists() and beside.suffix and ":" not in config.data.dataset:  # and no recipe such as synthetic:...
        raise no_such_file(beside)
    return DataSource(**asdict(config.data) | {"dataset": str(beside)}) if beside.exists() else config.data


def no_such_file(path: Path) -> DataError:
    return DataError(f"'{path}' does not exist: 'dataset' in {SITE_FILE} is a path from the folder of that file")


def _parse(source: DataSource, room: Path | None, load: Load) -> Shards:
    path = Path(source.dataset)
    name: Any = path if path.is_file() else source.dataset
    task = None if source.event is None else "regression"
    data = load(name, target=source.target, weight=source.weight, positive=source.positive, task=task, folder=room)
    if source.event is not None:
        data = _with_events(data, source.event)
    return Shards.from_arrays(
        data.features, data.targets, [data.num_samples], sample_weights=data.sample_weights, columns=data.columns
    )


def _with_events(data: Dataset, column: str) -> Dataset:
    """Times of events, with a minus where there was none until then, as Cox regression takes them."""
    names = data.columns or ()
    if column not in names:
        raise DataError(f"[data] of {SITE_FILE}, event: {unknown('column', column, names)}")
    place = names.index(column)
    event = np.asarray(data.features[:, place])
    if not ((data.targets > 0) & np.isin(event, (0.0, 1.0))).all():
        raise DataError(f"event = '{column}' in {SITE_FILE} needs 1 or 0 in that column, and a time above 0, in every row")
    times = np.where(event == 1.0, data.targets, -data.targets)
    rest = np.delete(data.features, place, axis=1)
    return replace(data, features=rest, targets=times, columns=names[:place] + names[place + 1 :])


def _key(path: Path, source: DataSource) -> str:
    """Changes with the file's content, as far as its size and time tell, with the settings and with the version."""
    file = path.stat()
    facts = [__version__, _FORMAT, str(path.resolve()), file.st_size, file.st_mtime_ns, asdict(source)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _mapped(folder: Path, parse: Callable[[Path], Shards]) -> Shards:
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(suffix=".partial", dir=folder.parent) as room:
            _write(folder, parse(Path(room)).onehot)
    facts = json.loads((folder / "head.json").read_text(encoding="utf-8"))
    arrays = {path.stem: _open(path) for path in folder.glob("*.npy")}
    kind: Any = DenseRows if "flat" in arrays else SparseRows if "data" in arrays else OneHotRows
    rows = kind(*((arrays | facts)[name] for name in kind._fields))
    bounds = np.array([0]), np.array([facts["rows"]])
    names = tuple(facts["names"]) if facts["names"] else None
    return Shards(rows, arrays["targets"], *bounds, arrays.get("weights"), None, names)


def _write(folder: Path, shards: Shards) -> None:
    partial = Path(tempfile.mkdtemp(suffix=".partial", dir=folder.parent))
    arrays: dict[str, Any] = {name: part for name, part in shards.rows._asdict().items() if isinstance(part, np.ndarray)}
    arrays |= {"targets": shards.targets, "weights": shards.sample_weights}
    for name, array in arrays.items():
        if array is not None:
            np.save(partial / f"{name}.npy", array, allow_pickle=False)
    facts = {"rows": shards.num_samples, "names": shards.columns}
    facts |= {name: part for name, part in shards.rows._asdict().items() if isinstance(part, int)}
    (partial / "head.json").write_text(json.dumps(facts), encoding="utf-8")
    try:  # a folder that appears whole: another process may be about to write, or already map, the same one
        partial.rename(folder)
    except OSError:
        shutil.rmtree(partial)
        if not folder.is_dir():
            raise


def _open(path: Path) -> Any:
    # Copy on write, as the kernels are compiled for writable arrays; what is larger than memory they get in parts, and a
    # map of it that could be written would count as memory. A plain array over the map: kernels know no subclasses.
    mode: Literal["r", "c"] = "r" if path.stem in _LARGE and path.stat().st_size > memory.room() else "c"
    return np.asarray(np.load(path, mmap_mode=mode, allow_pickle=False))
