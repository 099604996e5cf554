"""The guides to the letter: every command that they print, from a built wheel, on three machines with nothing but Python.

A machine is a mount namespace, in which /srv is a folder of its own and coordinator.example is this one.
"""

import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.processes import PATIENCE_SECONDS, family_of, wait_until

ROOT = Path(__file__).parents[2]
INSTALL = "python3 -m venv /srv/fedns/venv"


def namespaces():
    probe = ["unshare", "-m", "sh", "-c", "mount --bind /tmp /srv"]
    return shutil.which("unshare") and subprocess.run(probe, capture_output=True, check=False).returncode == 0


pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not namespaces(), reason="mounting is not permitted here")]


def blocks(page, language=""):
    """What stands in the fenced blocks of a page, without indentation."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, kind, body in found if kind == language]


def commands(page):
    """The lines of a page's blocks that are typed, each without its comment."""
    lines = [line.split("  #")[0].rstrip() for block in blocks(page) for line in block.splitlines()]
    return [line for line in lines if line.startswith(("fedns ", "python3 ", "/srv/", "export "))]


class Machine:
    """A folder that is /srv to whatever runs on this machine."""

    def __init__(self, folder, dist):
        self.folder, self.ran = folder, []
        self.home = folder / "srv" / "fedns"
        self.home.mkdir(parents=True)
        (folder / "hosts").write_text("127.0.0.1 localhost coordinator.example\n")
        shutil.copytree(dist, self.home / "dist")

    def start(self, command, place="", **settings):
        self.ran += command.splitlines()
        inside = (
            f"mount --bind {self.folder}/srv /srv && mount --bind {self.folder}/hosts /etc/hosts && cd /srv/fedns/{place}"
        )
        path = "" if INSTALL in command else "export PATH=/srv/fedns/venv/bin:$PATH\n"
        # Nothing of the environment that the tests run in but where packages are found.
        script = f"set -e\nunset PYTHONPATH VIRTUAL_ENV FEDNS_DATA\n{inside}\n{path}{command}"
        return subprocess.Popen(["unshare", "-m", "bash", "-c", script], text=True, **settings)

    def run(self, command, place="", status=0):
        with (self.folder / "output.txt").open("a+") as output:
            start = output.tell()
            process = self.start(command, place, stdout=output, stderr=output)
            process.wait(3 * PATIENCE_SECONDS)
            output.seek(start)
            said = output.read()
        assert process.returncode == status, f"{command}\n{said}"
        return said

    def close(self):
        """End what is still running, by its number."""
        for process in self.running:
            for pid in reversed(family_of(process.pid)):
                subprocess.run(["kill", str(pid)], check=False, capture_output=True)
            process.wait(60)

    running: tuple = ()


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """What `make dist` writes where the source is, with the environment that is there."""
    source = tmp_path_factory.mktemp("source") / "fedns"
    besides = {".venv", ".git", ".race", "dist", "runs"}
    shutil.copytree(ROOT, source, ignore=lambda folder, _: besides if Path(folder) == ROOT else {"__pycache__"})
    environment = Path(sys.prefix)
    built = ["make", f"VENV={environment}", "-o", environment / ".installed", "dist"]
    subprocess.run(built, cwd=source, check=True, capture_output=True)
    assert len(list((source / "dist").glob("*.whl"))) == 1
    return source / "dist"


def test_every_command_of_the_guide_works_as_printed(engine, dist, tmp_path):
    page = f"deployment-{engine}.md"
    printed = commands(page)
    install = "\n".join(line for line in printed if not line.startswith("fedns "))
    assert install.startswith(INSTALL) and install.count("\n") == 2
    names = ("coordinator", "north", "south")
    machines = {name: Machine(tmp_path / name, dist) for name in names}
    coordinator, sites = machines["coordinator"], [machines["north"], machines["south"]]
    coordinator.run(install)
    for site in sites:  # where it would come out the same: the folder has the same name on every machine
        shutil.copytree(coordinator.home / "venv", site.home / "venv", symlinks=True)
    (provision,) = [line for line in printed if line.startswith("fedns init-federation")]
    coordinator.run(provision)
    rng = np.random.default_rng(0)
    for name, site in zip(names[1:], sites, strict=True):
        shutil.copytree(coordinator.home / "hospitals" / "sites" / name, site.home / name)
        rows = rng.standard_normal((400, 4))
        targets = np.where(rng.random(400) < 1 / (1 + np.exp(-rows[:, 0])), 1, -1)
        lines = [",".join(map(repr, map(float, row))) + f",{target}" for row, target in zip(rows, targets, strict=True)]
        (site.home / name / "data.csv").write_text("\n".join(["a,b,c,d,target", *lines]) + "\n")
    shutil.copytree(coordinator.home / "hospitals" / "coordinator", coordinator.home / "coordinator")

    assert "FIX" not in coordinator.run("fedns doctor coordinator/experiment.toml")
    waits = re.findall("^(?:FIX|WAIT).*", sites[0].run("fedns doctor site.toml", "north"), re.MULTILINE)
    assert len(waits) == 1 and waits[0].startswith("WAIT coordinator at ")
    with ExitStack() as stack:
        for name, site in zip(names[1:], sites, strict=True):
            output = stack.enter_context((site.home / "said.txt").open("w"))
            site.running = (site.start("fedns site site.toml", name, stdout=output, stderr=output),)
            stack.callback(site.close)
        said = coordinator.run("fedns coordinate coordinator/experiment.toml")
        assert "report: " in said and (coordinator.home / "coordinator" / "run" / "report.html").is_file()
        coordinator.run("fedns coordinate coordinator/experiment.toml --resume")
        for unit, place in zip(blocks(page, "ini"), ("north", "coordinator"), strict=True):
            (command,) = re.findall(r"^ExecStart=(.*)$", unit.replace("\\\n", " "), re.MULTILINE)
            if place == "coordinator":  # whose run is over: it finds the checkpoint and ends
                coordinator.run(command, place)
            else:
                assert command.endswith("/bin/fedns site site.toml")  # which is running
        for name, site in zip(names[1:], sites, strict=True):
            wait_until(lambda: "is connected" in (site.home / "said.txt").read_text(), f"{name} was connected")  # noqa: B023
    for line in printed:
        if line.startswith("fedns renew"):
            assert "credentials" in coordinator.run(line)
    ran = {line for machine in machines.values() for line in machine.ran}
    assert {*printed, *commands("deployment.md")} <= ran


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(engine, dist, tmp_path):
    machine = Machine(tmp_path / "m", dist)
    (machine.home / "venv" / "bin").mkdir(parents=True)
    (machine.home / "venv" / "bin" / "fedns").write_text("#!/bin/sh\n")
    (machine.home / "venv" / "bin" / "fedns").chmod(0o755)
    units = blocks(f"deployment-{engine}.md", "ini")
    assert len(units) == 2
    for number, unit in enumerate(units):
        (machine.home / f"fedns-{number}.service").write_text(unit)
        said = machine.run(f"systemd-analyze verify ./fedns-{number}.service 2>&1")
        assert f"fedns-{number}" not in said, said
