"""A folder of results: what we wrote there is listed, so that it can be replaced, and nothing else ever is.

Also the one form of a table of coefficients, whatever was fitted.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from fedns.core.errors import ConfigError
from fedns.core.files import csv_text, write_whole

LIST_FILE = ".fedns-wrote"  # in every folder of results: by kind, the files that are ours


class Results:
    """The files of one kind in a folder: of a fit, a comparison, ...

    A command asks with `refuse` before it works, empties with `begin` once it has something to write, and claims what it
    learns to write later. A file that is in the way and not in the list is somebody else's.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind

    def refuse(self, names: Iterable[str], *, overwrite: bool) -> None:
        """Raise where the folder holds earlier results that are not to be replaced, or such a file that we did not write."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"'{self.folder}' is a file: choose another folder with --out")
        earlier = self._earlier()
        if earlier and not overwrite:
            raise ConfigError(
                f"{self.folder} holds {earlier[0]} of an earlier {self.kind}: choose another place with --out, or replace "
                "what was written then with --overwrite"
            )
        self._refuse_in_the_way(names, earlier)

    def begin(self, names: Iterable[str]) -> None:
        """Clear what an earlier one wrote, then claim these names."""
        names = list(names)
        earlier = self._earlier()
        self._refuse_in_the_way(names, earlier)
        for name in earlier:
            (self.folder / name).unlink()
            for parent in PurePath(name).parents[:-1]:
                with contextlib.suppress(OSError):  # which holds something else
                    (self.folder / parent).rmdir()
        self._write([])
        self.claim(names)

    def claim(self, names: Iterable[str]) -> None:
        """Put names into the list before they are written, so that also a killed process leaves no file without an owner."""
        names, listed = list(names), self._lists().get(self.kind, [])
        self._refuse_in_the_way(names, listed)
        self._write([*listed, *(name for name in names if name not in listed)])

    def _refuse_in_the_way(self, names: Iterable[str], ours: Sequence[str]) -> None:
        for name in names:
            if name not in ours and (self.folder / name).exists():
                raise ConfigError(
                    f"{self.folder / name} is there already, and no earlier {self.kind} wrote it: move it away, or choose "
                    "another place with --out"
                )

    def _earlier(self) -> list[str]:
        """List what is listed and still there."""
        return [name for name in self._lists().get(self.kind, []) if (self.folder / name).is_file()]

    def _lists(self) -> dict[str, list[str]]:
        """By kind; names that lead out of the folder are none of ours, and a list that cannot be read names nothing."""
        try:
            found = json.loads((self.folder / LIST_FILE).read_text(encoding="utf-8"))
            return {str(kind): [name for name in map(str, names) if _inside(name)] for kind, names in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _write(self, names: Sequence[str]) -> None:
        lists = self._lists() | {self.kind: list(names)}
        kept = {kind: own for kind, own in lists.items() if own}
        write_whole(self.folder / LIST_FILE, json.dumps(kept, indent=1, ensure_ascii=False) + "\n", durable=False)


def _inside(name: str) -> bool:
    path = PurePath(name)
    return not path.is_absolute() and ".." not in path.parts


COLUMNS = (
    "converged", "class", "name", "term", "level", "reference", "coefficient", "std_error", "statistic", "p_value",
    "low", "high", "ratio", "ratio_low", "ratio_high",
)  # fmt: skip


def coefficients_csv(lines: Iterable[Mapping[str, str | float]], *, converged: bool) -> str:
    """A line for each coefficient, which says first whether the fit has converged; what is not known is an empty cell."""
    first = {"converged": "yes" if converged else "no"}
    return csv_text([COLUMNS, *([(first | dict(line)).get(column, "") for column in COLUMNS] for line in lines)])
