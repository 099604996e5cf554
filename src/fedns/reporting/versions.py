"""What a result was computed with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import fedns


def versions() -> dict[str, str]:
    """Of the interpreter, the libraries and the machine."""
    libraries = {name: version(name) for name in ("numpy", "scipy", "numba")}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"fedns": fedns.__version__, "Python": platform.python_version(), **libraries, "machine": machine}
