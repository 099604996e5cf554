"""Files that survive being killed in mid-write, and folders with one process at a time."""

import subprocess
import sys
import time

import pytest

from fedns.core.files import alone_in, write_whole


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "finished"
    write_whole(path, "40\n")
    write_whole(path, "41\n")
    assert path.read_text() == "41\n"
    assert [other.name for other in tmp_path.iterdir()] == ["finished"]


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
