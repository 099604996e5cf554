"""Running a site: one command, one small file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedns.engines.site import SiteService
from fedns.federation.config import SiteConfig
from fedns.federation.jobs import at_site
from fedns.federation.shard_cache import site_shards

FACTORY = "fedns.federation.site:service"  # how an engine that starts processes of its own finds the service


def site_service(config: SiteConfig) -> SiteService:
    """The service that answers for this site."""
    return SiteService(config.name, lambda: site_shards(config), at_site, config.permit, config.folder / config.state)


def service(path: str | Path) -> Callable[[bytes], bytes]:
    """The same from the path of the site's file."""
    return site_service(SiteConfig.read(Path(path))).answer


def run_site(path: Path) -> None:
    """Answer until told to stop."""
    config = SiteConfig.read(path)
    site_shards(config)  # a file that cannot be read is better known before anybody connects
    if config.engine == "flower":
        from fedns.engines.flower_client import serve
        from fedns.engines.flower_credentials import SiteKit

        serve(SiteKit.load(config.kit), site_service(config).answer)
    else:
        from fedns.engines.nvflare_processes import keep_site_running

        keep_site_running(config.kit, FACTORY, path)
