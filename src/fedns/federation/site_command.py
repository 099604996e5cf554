"""Running a site: one command, one small file. Nothing heavy is imported: an engine may work in a process of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from fedns.federation.config import SiteConfig, check_expiry, engine_named
from fedns.federation.processes import Service, ended_by_sigterm, only_process

COMPILING = "fedns-rehearsal"  # the name of a thread that compiles
log = logging.getLogger("fedns.site")


def run_site(path: Path, service: Callable[[Path], Service]) -> None:
    """Answer until told to stop. service: makes what answers from the path of the site's file."""
    config = SiteConfig.read(path)
    engine = engine_named(config.engine)
    log.info("site %s on %s; Ctrl-C ends it", config.name, config.engine)
    check_expiry(engine, config.credentials)
    with ended_by_sigterm(), only_process(config.credentials, config.name):
        try:
            engine.serve(config.credentials, service, path)
        except (SystemExit, KeyboardInterrupt) as ended:
            leave_if_compiling(ended.code if isinstance(ended, SystemExit) and isinstance(ended.code, int) else 130)
            raise


def leave_if_compiling(status: int) -> None:
    """End the process where a thread still compiles: the compiler does not survive the ordinary way out."""
    if any(thread.name == COMPILING for thread in threading.enumerate()):
        logging.shutdown()
        os._exit(status)
