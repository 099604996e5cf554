"""Names of the package that digests and other long-lived scripts use, and the modules where they may be.

The first module that has a name counts, so that one script runs on versions before and after a move of rooms.
"""

from __future__ import annotations

import importlib
from typing import Any

PLACES = {
    "METHODS": ("fedns.methods", "fedns.methods"),
    "SKETCHES": ("fedns.sketches",),
    "FAMILIES": ("fedns.models.families", "fedns.models.families"),
    "MapRule": ("fedns.studies.tables.feature_map",),
    "write_example": ("fedns.studies.example",),
    "write_fit": ("fedns.studies.outputs",),
    "draft_study": ("fedns.studies.draft",),
    "read_frame": ("fedns.studies.tables.frames", "fedns.studies.tables.files.frames"),
    "fit_federation": ("fedns.studies.federated",),
    "site_service": ("fedns.cli.serving", "fedns.studies.serve", "fedns.federation.site.serve"),
    "SiteConfig": ("fedns.federation.config",),
    "DataSource": ("fedns.federation.config",),
    "Permissions": ("fedns.federation.site.permissions", "fedns.federation.permissions"),
    "Policy": ("fedns.runs.policy", "fedns.runs.over_sites"),
    "ColumnRun": ("fedns.runs.over_sites",),
    "Spec": ("fedns.runs.spec", "fedns.runs.compare"),
    "Transport": ("fedns.federation.protocol.transport",),
    "Arrival": ("fedns.federation.protocol.transport",),
}


def named(name: str) -> Any:
    """The object of this name, from the first of its places that has it."""
    for place in PLACES[name]:
        try:
            return getattr(importlib.import_module(place), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ImportError(f"{name} is in none of {', '.join(PLACES[name])}: add its place to benchmarks/names.py")
