"""Disks that are full and folders that cannot be written, at both ends: one sentence, and nothing that was there is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.federation.troubled_disk import FILE_SYSTEMS, TROUBLES, federation

ROOT = Path(__file__).parents[2]
WORDS = {
    "full": r"OSError: [Errno 27] File too large|site 'site-",
    "coordinator read-only": r"PermissionError: [Errno 13] Permission denied",
    "site read-only": "SiteRefuses: site 'site-",
    "full file system": r"[Errno 28] No space left on device|site 'site-",
    "read-only file system": r"[Errno 30] Read-only file system|site 'site-",
}
OWN_MOUNTS = ["unshare", "--map-root-user", "--mount"]  # what is mounted there nobody else sees


def can_mount():
    return shutil.which("unshare") and not subprocess.run([*OWN_MOUNTS, "true"], capture_output=True, check=False).returncode


@pytest.mark.skipif(sys.platform != "linux", reason="limits and capabilities as Linux has them")
@pytest.mark.parametrize("trouble", [*TROUBLES, *FILE_SYSTEMS])
def test_trouble_with_the_disk_stops_a_run_with_a_sentence_and_loses_nothing(tmp_path, trouble):
    undisturbed = federation(tmp_path / "undisturbed").start()
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "tests.federation.troubled_disk", str(folder), trouble]
    if trouble in FILE_SYSTEMS:
        if not can_mount():
            pytest.skip("no file system can be mounted here")
        command = [*OWN_MOUNTS, *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip()
    if trouble in FILE_SYSTEMS:
        folder = Path(f"{folder}.kept")
    print(said)
    assert len(said.splitlines()) == 1 and any(words in said for words in WORDS[trouble].split("|")), said
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert not list(folder.rglob("*.partial"))
    resumed = federation(folder).start(resume=True)
    assert resumed.coefficients.tobytes() == undisturbed.coefficients.tobytes()
