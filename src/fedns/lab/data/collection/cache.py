"""The folder of downloaded data sets: for each an archive, and a sidecar with the checksum it must have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedns.core.errors import DataError
from fedns.core.files import alone_in
from fedns.studies.tables.files.cache import cache_folder


def cached_archives() -> dict[str, Path]:
    """The downloaded archives by name."""
    folder = cache_folder()
    if folder is None or not folder.is_dir():
        return {}
    return {path.stem: path for path in sorted(folder.glob("*.npz"))}


def is_cached(path: Path) -> bool:
    return path.parent == cache_folder()


def store_archive(finished: Path, archive: Path, facts: dict[str, object]) -> None:
    """Move a finished archive to its final name, with its checksum and `facts` in the sidecar."""
    note = finished.with_suffix(".json")
    note.write_text(json.dumps(facts | {"archive_sha256": sha256(finished)}, indent=2) + "\n", encoding="utf-8")
    # The sidecar goes first: an archive under its final name is never without its checksum.
    note.replace(sidecar(archive))
    finished.replace(archive)


def sidecar(archive: Path) -> Path:
    return archive.with_suffix(".json")


def verify(archive: Path) -> None:
    """Refuse an archive that differs from the checksum in its sidecar; one without a sidecar is the user's own."""
    if not sidecar(archive).is_file():
        return
    try:
        facts = json.loads(sidecar(archive).read_text(encoding="utf-8"))
        expected = facts["archive_sha256"]
    except (ValueError, KeyError, TypeError):
        expected = None
    if sha256(archive) != expected:
        raise DataError(
            f"{archive} does not match the checksum in {sidecar(archive).name}: run `fedns data fetch {archive.stem}` again"
        )


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def alone(name: str, folder: Path) -> Iterator[None]:
    """Keep other processes from storing the same set; where the system has no flock, nothing does."""
    with ExitStack() as stack:
        try:
            stack.enter_context(alone_in(folder, f"{name}.lock", wait=False))
        except BlockingIOError:
            raise DataError(f"another process is fetching {name} into {folder}: wait until it is done") from None
        yield
