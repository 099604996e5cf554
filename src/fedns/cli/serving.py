"""The service of a site, made in the process that answers, which may be an engine's own: nothing heavy before that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedns.federation.config import SiteConfig
    from fedns.federation.processes import Service
    from fedns.federation.site.service import SiteService
    from fedns.federation.site.table_kind import TableKind


def table_of(config: SiteConfig) -> TableKind:
    """Return the table of a site: a file, or a named set."""
    from fedns.lab.data.datasets import load
    from fedns.studies.serving import tables

    return tables.kind_of_table(config, load)


def site_service(config: SiteConfig) -> SiteService:
    """Return the service that answers for a site, once its table is read and its device is there."""
    from fedns.studies.serving import tables

    return tables.site_service(config, table_of(config))


def serve_site(path: Path) -> Service:
    """Return what answers for the site of this file, with its metrics."""
    from fedns.federation.config import SiteConfig
    from fedns.federation.site.metrics import watched

    config = SiteConfig.read(Path(path))
    return watched(config.name, site_service(config).answer, config.metrics_port)
