"""A federation that meets a disk it cannot write: run as a script with a folder and the trouble. Prints what stopped it."""

import contextlib
import ctypes
import gc
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of

from fedns.core.files import write_whole
from fedns.federation.coordinator.state import CHECKPOINT_FILE
from fedns.federation.site.budget import Budget

SMALL_BYTES = 1000  # that a file may have on the "full" disk: less than a checkpoint
TROUBLES = ("full", "coordinator read-only", "site read-only")
FILE_SYSTEMS = ("full file system", "read-only file system")  # real ones; the run's folder is kept beside it


def fill_the_disk() -> None:
    """From here on no file of this process can be longer than a few bytes; writing fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_BYTES, SMALL_BYTES))


def make_read_only(folder: Path, inside: bool) -> None:
    for path in [folder, *(folder.rglob("*") if inside else folder.glob("*"))]:
        if inside or not path.is_dir() or path == folder:
            path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() == 0:  # the superuser may write anyway, unless this process gives that up: CAP_DAC_OVERRIDE
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        sets = (ctypes.c_uint32 * 6)()
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.capget(header, sets) == 0
        sets[0] &= ~0b110
        assert libc.capset(header, sets) == 0


def mount(folder: Path, options: str) -> None:
    """A file system in memory, or the one that is there with other options; no process but this one sees it."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def let_go() -> None:
    """Close the budgets: nobody may have a file open for writing when a file system is made read-only by hand."""
    for budget in [found for found in gc.get_objects() if type(found) is Budget]:
        budget.close()


def fill(folder: Path) -> None:
    """Write until nothing more fits."""
    with contextlib.suppress(OSError), (folder / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))


def federation(folder: Path) -> Federation:
    return Federation(make_shards(sizes=(90, 60, 150)), folder, run_of("fednl", rounds=6))


def main() -> None:
    folder, trouble = Path(sys.argv[1]), sys.argv[2]
    if trouble in FILE_SYSTEMS:
        mount(folder, "size=1m")
    run, met = federation(folder), []

    def before(site: str, exchange: int) -> str:
        if not met and (folder / CHECKPOINT_FILE).exists() and run.state.records[-1].round == 2:
            met.append(True)
            if trouble == "full":
                fill_the_disk()
            elif trouble == "full file system":
                fill(folder)
            elif trouble == "read-only file system":
                let_go()
                mount(folder, "remount,ro")
            else:
                make_read_only(folder / "site-1" if "site" in trouble else folder, inside="site" in trouble)
        return ""

    run.transport.before = before
    try:
        run.start()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    with contextlib.suppress(OSError):
        write_whole(folder / "site-1" / "probe", bytes(2 * SMALL_BYTES))
        write_whole(folder / "probe", bytes(2 * SMALL_BYTES))
        print("the disk was not in trouble")
    if trouble in FILE_SYSTEMS:
        shutil.copytree(folder, f"{folder}.kept", ignore=shutil.ignore_patterns("ballast"))


if __name__ == "__main__":
    main()
