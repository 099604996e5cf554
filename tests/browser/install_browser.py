"""A browser for the tests that look at pages: the one that is there, or else one from the system's packages."""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
UPDATE_SECONDS, INSTALL_SECONDS = 120, 420


def find_browser() -> str | None:
    """The path of a Chromium that starts; some systems have a command of that name that only tells how to install one."""
    paths = [path for name in NAMES if (path := shutil.which(name))]
    return next((path for path in paths if _succeeds([path, "--version"], 30)), None)


def install_browser() -> None:
    """Install Chromium where we may; if it fails, the tests that need it are skipped and say so."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print("installing chromium for the tests of the report", flush=True)
    _succeeds(["apt-get", "update", "-qq"], UPDATE_SECONDS)
    _succeeds(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], INSTALL_SECONDS)


def _succeeds(command: list[str], seconds: float) -> bool:
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        return subprocess.run(command, timeout=seconds, env=environment, check=False, **quiet).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


if __name__ == "__main__":
    if find_browser() is None:
        install_browser()
