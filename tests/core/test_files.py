"""Files that survive being killed in mid-write, and folders with one process at a time."""

import errno
import os
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from fedns.core import files
from fedns.core.errors import ConfigError
from fedns.core.files import LOCK_FILE, alone_in, append_line, checked_name, disk_trouble, write_whole, written_beside


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
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_a_folder_is_free_again_when_its_process_is_killed(tmp_path):
    import fcntl

    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "in\n"
    with (tmp_path / LOCK_FILE).open("w") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    holder.kill()
    holder.communicate()
    with alone_in(tmp_path):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_only_one_is_in_a_folder_at_a_time(tmp_path):
    together, inside, most = threading.Barrier(4), [], []

    def visit():
        together.wait()
        for _ in range(5):
            with alone_in(tmp_path):
                inside.append(1)
                time.sleep(0.002)  # all four would be inside by then
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20


@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
def test_what_does_not_fit_leaves_what_was_there_and_says_which_file(tmp_path):
    path, lines = tmp_path / "state", tmp_path / "lines"
    write_whole(path, b"old")
    append_line(lines, "x" * 900)
    code = """
        import resource, signal, sys
        from pathlib import Path
        from fedns.core.files import append_line, write_whole
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write_whole(Path(sys.argv[1]), bytes(10_000))
        except OSError as error:
            print(error.filename, error.strerror)
        append_line(Path(sys.argv[2]), "there is room for this")
        try:
            append_line(Path(sys.argv[2]), "y" * 200)  # of which there is room for a part
        except OSError as error:
            print(error.filename, error.strerror)
        append_line(Path(sys.argv[2]), "and for this")
    """
    command = [sys.executable, "-c", textwrap.dedent(code), path, lines]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{path} File too large", f"{lines} No space left on device"]
    assert path.read_bytes() == b"old" and sorted(tmp_path.iterdir()) == [lines, path]
    assert lines.read_text().splitlines() == ["x" * 900, "there is room for this", "and for this"]


def test_what_is_done_while_a_file_is_ready_beside_decides_whether_it_takes_its_place(tmp_path):
    path = tmp_path / "state"
    write_whole(path, b"old")
    with pytest.raises(ZeroDivisionError), written_beside(path, b"new"):
        assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 2
        raise ZeroDivisionError
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="of something else") as other, written_beside(path, b"new"):
        raise OSError(errno.EIO, "of something else", "elsewhere")
    assert other.value.filename == "elsewhere"
    with written_beside(path, b"new"):
        pass
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "x"), "no space left on device"),
        (OSError(errno.EDQUOT, "x"), "disk quota exceeded"),
        (OSError(errno.EFBIG, "x"), "file too large"),
        (OSError(errno.EIO, "x"), "input/output error"),
        (OSError(errno.EROFS, "x"), "read-only file system"),
        (PermissionError(errno.EACCES, "x"), "permission denied"),
        (PermissionError(errno.EPERM, "x"), "operation not permitted"),
        (FileNotFoundError(errno.ENOENT, "x"), ""),
        (ConnectionResetError(errno.ECONNRESET, "x"), ""),
        (OSError("no number"), ""),
        (ValueError("no space left on device"), ""),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="words as Linux has them")
def test_trouble_with_a_disk_is_told_from_other_troubles_in_words_without_data(error, words):
    assert disk_trouble(error) == words


@pytest.mark.parametrize("name", ["north", "site-0", "A.b_c-9", "x" * 63])
def test_names_that_may_be_names_of_files(name):
    assert checked_name("a site's name", name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", ".x", "a b", "<b>", 'a"', "a\n", "ä", "x" * 64])
def test_names_that_may_not(name):
    with pytest.raises(ConfigError, match="a site's name is up to 63 letters"):
        checked_name("a site's name", name)
