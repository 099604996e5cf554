"""Federated Newton-type training of convex models in a handful of communication rounds."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# Where each public name lives, by the stub. Nothing is imported until it is used: `import fedns` stays instant.
_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOME_OF = {name.name: str(part.module) for part in _STUB.body if isinstance(part, ast.ImportFrom) for name in part.names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedns' has no attribute {name!r}")
    home = import_module(_HOME_OF[name])
    value = getattr(home, name) if hasattr(home, name) else import_module(f"{home.__name__}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])


__all__ = sorted(_HOME_OF)
