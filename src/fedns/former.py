"""Former names of the package's rooms: an import of one works until 0.3, with a warning that says the new name."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

ROOMS = {
    "algorithms": "methods",
    "comparison": "lab.comparison",
    "data": "lab.data",
    "estimators": "studies.estimators",
    "paper": "lab.paper",
    "problems": "models",
    "reporting": "reports",
    "transports": "federation.transports",
}


class FormerRooms(MetaPathFinder, Loader):
    """An importer of a room, or a module in it, by its name in 0.1: it finds the module that is there now."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        room, _, module = rest.partition(".")
        if package != "fedns" or room not in ROOMS:
            return None
        now = ".".join(part for part in ("fedns", ROOMS[room], module) if part)
        if module and find_spec(now) is None:
            return None
        warnings.warn(f"{fullname} is {now} now; the former name goes with fedns 0.3", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, self, loader_state=now, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        sys.modules[spec.name] = import_module(str(spec.loader_state))
