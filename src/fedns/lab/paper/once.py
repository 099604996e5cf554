"""Measurements on disk, so that each is made once: a file for each, named after it and after the penalty."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from fedns.core.files import write_whole
from fedns.lab.paper import STRENGTH


def path_of(folder: Path, name: str) -> Path:
    """The file of a measurement, by letters and figures that every file system takes."""
    return folder / f"{''.join(letter if letter.isalnum() or letter in '-_' else '_' for letter in name)}-{STRENGTH:g}.json"


def write(path: Path, found: Any) -> None:
    """Dataclasses, and what JSON has; a number of any kind is a float."""
    write_whole(path, json.dumps(found, default=_plain) + "\n")


def read(folder: Path, names: str) -> list[Any]:
    """All that was measured with this penalty under names of this pattern, in their order."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"{names}-{STRENGTH:g}.json"))]


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else float(value)
