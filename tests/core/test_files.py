"""Files that survive being killed in mid-write, and folders with one process at a time."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedns.core import files
from fedns.core.files import alone_in, write_whole


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "finished"
    write_whole(path, "40\n")
    write_whole(path, "41\n")
    assert path.read_text() == "41\n"
    assert [other.name for other in tmp_path.iterdir()] == ["finished"]


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be synced there")
@pytest.mark.parametrize(("durable", "expected"), [(True, ["file", "replace", "folder"]), (False, ["replace"])])
def test_what_is_to_survive_a_power_cut_reaches_the_disk_in_this_order(durable, expected, tmp_path, monkeypatch):
    """First the content, then the name, then the folder that the name is in."""
    steps, sync, replace = [], os.fsync, Path.replace

    def synced(descriptor):
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def replaced(self, target):
        steps.append("replace")
        return replace(self, target)

    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    write_whole(tmp_path / "new" / "state", b"whole", durable=durable)
    assert steps == expected
    assert (tmp_path / "new" / "state").read_bytes() == b"whole"


HOLDER = """
import sys, time
from pathlib import Path
from fedns.core.files import alone_in
with alone_in(Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_a_folder_is_free_again_when_its_process_is_killed(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "in\n"
    waiting = [sys.executable, "-c", HOLDER.replace("time.sleep(60)", "pass"), str(tmp_path)]
    second = subprocess.Popen(waiting, stdout=subprocess.PIPE, text=True)
    time.sleep(1.0)
    assert second.poll() is None
    holder.kill()
    holder.communicate()
    out, _ = second.communicate(timeout=120)
    assert (second.returncode, out) == (0, "in\n")
    with alone_in(tmp_path):
        pass
