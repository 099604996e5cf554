"""Find out what a path on the command line leads to, so that a file in another's place gets a sentence about that."""

from __future__ import annotations

from pathlib import Path

from fedns.core.errors import ConfigError

STUDY, SITE, EXPERIMENT = "the file of a study", "the file of a site", "the file of a coordinator's experiment"
SETTINGS, MODEL, TABLE = "the file of a comparison", "the model.json of a fit", "a table"
OTHER = "a file"  # of no kind that is known: whoever reads it has more to say
TABLES = "a table or a folder of tables"
FEDERATION, FOLDER = "the folder of a federation", "a folder"
# Of a TOML file: a setting that no other kind has at its top.
_TELLS = {"formula": STUDY, "data": SITE, "engine": EXPERIMENT, "dataset": SETTINGS, "cases": SETTINGS}


def expect(command: str, *arguments: tuple[Path, str]) -> None:
    """Refuse what is not there, and what is plainly something else than expected, with the right order where that helps.

    command: as it is typed, without its arguments.
    """
    found = [(path, _kind(path)) for path, _ in arguments]
    for (path, kind), (_, wanted) in zip(found, arguments, strict=True):
        if not kind:
            raise ConfigError(f"{path} does not exist: check the path, which starts from the current folder unless absolute")
        if kind not in (wanted, OTHER) and not (wanted == TABLES and kind in (TABLE, FOLDER)):
            right = _in_order(found, [wanted for _, wanted in arguments])
            order = f": write `fedns {command} {' '.join(map(str, right))}`" if right else ""
            raise ConfigError(f"{path} is {kind}, where {wanted} is expected{order}")


def _in_order(found: list[tuple[Path, str]], wanted: list[str]) -> list[Path]:
    """The paths where each is of the kind that stands there; none where there is no such order."""
    left, right = list(found), []
    for kind in wanted:
        place = next((one for one in left if one[1] == kind or (kind == TABLES and one[1] in (TABLE, FOLDER))), None)
        if place is None:
            return []
        left.remove(place)
        right.append(place[0])
    return right if len(right) > 1 else []


def _kind(path: Path) -> str:
    """Name what there is; nothing where there is nothing."""
    if path.is_dir():
        return FEDERATION if (path / "coordinator").is_dir() else FOLDER
    if not path.exists():
        return ""
    suffixes = {suffix.lower() for suffix in path.suffixes}
    if ".toml" in suffixes:
        return _kind_of_toml(path)
    if ".json" in suffixes:
        return MODEL
    from fedns.studies.tables.files.frames import SUFFIXES

    return TABLE if suffixes & SUFFIXES else OTHER


def _kind_of_toml(path: Path) -> str:
    from fedns.core.files import read_toml

    try:
        values = read_toml(path)
    except ConfigError:  # the sentence about that is the reader's
        return OTHER
    return next((kind for setting, kind in _TELLS.items() if setting in values), OTHER)
