"""Named sets of the LIBSVM collection, downloaded once and kept as archives in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedns.core.errors import DataError, unknown
from fedns.lab.data.collection.cache import alone, sha256, store_archive, verify
from fedns.lab.data.collection.download import NotThere, download, require
from fedns.studies.tables.files.cache import cache_folder, storing
from fedns.studies.tables.files.compact import compact

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

URL_VARIABLE = "FEDNS_LIBSVM_URL"
PUBLIC_URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"

# SHA-256 of files as the collection serves them, by address below its base. The collection publishes none, and none
# is entered here that was not computed from a download: until then the sidecar records what was received.
CHECKSUMS: dict[str, str] = {}


@dataclass(frozen=True)
class Remote:
    """One set of the collection."""

    name: str  # as the collection calls it
    addresses: tuple[str, ...]  # below the base, tried in this order: some files have changed their compression
    columns: int = 0  # where the last ones may not occur in the file
    dense: bool | None = None  # None: judged by the share of nonzeros

    @property
    def archive_name(self) -> str:
        return archive_name(self.name)


def archive_name(name: str) -> str:
    """`cod-rna.t` is stored and loaded as `cod_rna_t`."""
    return name.replace("-", "_").replace(".", "_")


def _collection() -> dict[str, Remote]:
    """By archive name in lower case; `diabetes` and `breast-cancer` are left out, as scikit-learn's have these names."""
    columns = {f"a{i}a{t}": 123 for i in range(1, 10) for t in ("", ".t")}
    columns |= {f"w{i}a{t}": 300 for i in range(1, 9) for t in ("", ".t")}
    columns |= {"phishing": 68, "cod-rna": 8, "cod-rna.t": 8, "mushrooms": 112, "splice": 60, "splice.t": 60}
    plain = (
        "australian australian_scale fourclass fourclass_scale german.numer german.numer_scale heart heart_scale "
        "ionosphere_scale liver-disorders madelon madelon.t skin_nonskin sonar_scale svmguide1 svmguide1.t svmguide3"
    )
    packed = {"ijcnn1": 22, "ijcnn1.t": 22, "gisette_scale": 5000, "gisette_scale.t": 5000, "real-sim": 20958}
    packed |= {"rcv1_train.binary": 47236, "rcv1_test.binary": 47236, "news20.binary": 1355191}
    large = {"SUSY": 18, "HIGGS": 28, "epsilon_normalized": 2000, "epsilon_normalized.t": 2000}
    regression = (
        "abalone abalone_scale bodyfat bodyfat_scale cadata cpusmall cpusmall_scale eunite2001 housing housing_scale "
        "mg mg_scale mpg mpg_scale pyrim pyrim_scale space_ga space_ga_scale triazines triazines_scale"
    )
    covtype = "binary/covtype.libsvm.binary"
    remotes = [
        *(Remote(name, (f"binary/{name}",), width) for name, width in columns.items()),
        *(Remote(name, (f"binary/{name}",)) for name in plain.split()),
        *(Remote(name, (f"binary/{name}.bz2", f"binary/{name}.xz"), width) for name, width in packed.items()),
        *(Remote(name, (f"binary/{name}.xz", f"binary/{name}.bz2"), width) for name, width in large.items()),
        # Dense though a fifth is nonzero: ten wide-ranging columns beside forty-four that are 0 or 1.
        Remote("covtype", (f"{covtype}.bz2", f"{covtype}.xz"), 54, dense=True),
        Remote("covtype_scale", (f"{covtype}.scale.bz2", f"{covtype}.scale.xz"), 54, dense=True),
        *(Remote(name, (f"regression/{name}",)) for name in regression.split()),
        *(Remote(name, (f"regression/{name}.bz2",), 90) for name in ("YearPredictionMSD", "YearPredictionMSD.t")),
    ]
    return {remote.archive_name.lower(): remote for remote in remotes}


COLLECTION = _collection()


def find(name: str) -> Remote | None:
    """The set of this name, whether written `cod-rna.t` or `cod_rna_t`."""
    return COLLECTION.get(archive_name(name).lower())


def fetch(
    names: str | Iterable[str], *, base_url: str | None = None, cache: str | Path | None = None, progress: bool = True
) -> list[Path]:
    """Download what is not there yet; returns the archive of each set, which `fedns.load` finds by name.

    base_url: where the folders binary/ and regression/ are; else FEDNS_LIBSVM_URL, else the public collection.
    cache: where archives go; else FEDNS_CACHE, else the user's cache folder. `fedns.load` looks into the last two.
    """
    remotes = [_known(name) for name in ([names] if isinstance(names, str) else names)]
    base = _base(base_url)
    folder = Path(cache) if cache is not None else cache_folder()
    if folder is None:
        require("platformdirs")  # says what to install
        raise DataError("no cache folder is known: name one in FEDNS_CACHE")
    with _display(progress) as display:
        return [_fetch_one(remote, base, folder.expanduser().absolute(), display) for remote in remotes]


def _known(name: str) -> Remote:
    remote = find(name)
    if remote is None:
        names = sorted((remote.name for remote in COLLECTION.values()), key=str.lower)
        raise DataError(unknown("set of the collection", name, names))
    return remote


def _base(base_url: str | None) -> str:
    base = base_url or os.environ.get(URL_VARIABLE) or PUBLIC_URL
    if not base.startswith(("http://", "https://")):
        raise DataError(f"the collection's address must start with http:// or https://, got '{base}'")
    return base if base.endswith("/") else base + "/"


def _fetch_one(remote: Remote, base: str, folder: Path, display: Progress) -> Path:
    archive = folder / f"{remote.archive_name}.npz"
    work = folder / "downloads"
    with storing(remote.name, folder):
        work.mkdir(parents=True, exist_ok=True)
        with alone(remote.archive_name, work):
            if not _is_intact(archive):
                _download_and_compact(remote, base, archive, work, display)
    return archive


def _is_intact(archive: Path) -> bool:
    try:
        verify(archive)
    except DataError:
        return False
    return archive.is_file()


def _download_and_compact(remote: Remote, base: str, archive: Path, work: Path, display: Progress) -> None:
    task = display.add_task(remote.name, total=None)
    url, text = _download_first(remote, base, work, display, task)
    finished = work / archive.name
    try:
        rows, columns = compact(
            text,
            finished,
            source=url,
            columns=remote.columns,
            dense=remote.dense,
            report=lambda rows: display.update(task, description=f"{remote.name}: {rows:,} rows"),
        )
        facts = {"url": url, "bytes": text.stat().st_size, "sha256": sha256(text), "rows": rows, "columns": columns}
        store_archive(finished, archive, facts)
    except DataError:
        shutil.rmtree(text.parent, ignore_errors=True)  # what cannot be read is no use to the next attempt
        raise
    finally:
        finished.unlink(missing_ok=True)
    shutil.rmtree(text.parent, ignore_errors=True)


def _download_first(remote: Remote, base: str, work: Path, display: Progress, task: TaskID) -> tuple[str, Path]:
    """The address that exists and the file downloaded from it, compressed as it came."""
    problems: list[NotThere] = []
    for address in remote.addresses:
        url = base + address
        # By address, so that what one server left half done is not continued from another.
        place = work / hashlib.sha256(url.encode()).hexdigest()[:16]
        try:
            return url, _download(url, place, CHECKSUMS.get(address), display, task)
        except NotThere as problem:
            problems.append(problem)
            shutil.rmtree(place, ignore_errors=True)
    raise problems[0]


def _download(url: str, place: Path, checksum: str | None, display: Progress, task: TaskID) -> Path:
    file = place / url.rsplit("/", 1)[1]
    if file.is_file() and checksum in (None, sha256(file)):
        return file
    place.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    download(url, part, lambda done, total: display.update(task, completed=done, total=total))
    if checksum not in (None, sha256(part)):
        part.unlink()
        raise DataError(
            f"{url} does not have the expected SHA-256 {checksum}, so it was thrown away: try again, or another server"
        )
    return part.replace(file)


def _display(progress: bool) -> Progress:
    # Here, as every load imports this module for the names of the collection.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not progress,
    )
