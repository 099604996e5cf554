"""How soon a site speaks, is connected, and is ready for a run: with no kernel compiled, and with all of them.

    python benchmarks/cold_start.py --engine nvflare        # with the method of a new experiment; --method fedns for another

Ready is when the site has answered the first question about its rows, which it does once all that the run calls is compiled.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from fedns.federation.config import EXPERIMENT_FILE, SITE_FILE, read_experiment
from fedns.federation.coordinator.session import coordinate
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.coordinator.watching import Watcher
from fedns.federation.processes import end_group, ended_by_sigterm
from fedns.federation.protocol.transport import Transport
from fedns.lab.comparison.federation_demo import Demo, prepare
from fedns.runs.over_sites import ColumnRun


class First(Watcher):
    """When the objective was known for the first time."""

    at = 0.0

    def on_round(self, record, state) -> None:
        self.at = self.at or time.monotonic()


def timeline(site: Path, spec: ColumnRun, transport: Transport, kernels: Path) -> dict[str, float]:
    """Seconds from the start of the process to its first line, to its connection, and to the opened run."""
    started, said, first = time.monotonic(), [], First()
    process = subprocess.Popen(
        [sys.executable, "-m", "fedns.cli", "site", str(site / SITE_FILE)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(kernels)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    def listen() -> None:
        for line in process.stderr:
            said.append((time.monotonic() - started, line.decode().rstrip()))

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        coordinate(spec, transport, watchers=[first])
    finally:
        end_group(process, 10.0)
        listener.join()
    connected = next(seconds for seconds, line in said if "is connected" in line)
    for seconds, line in said:
        print(f"    {seconds:6.2f} s  {line[24:130]}")
    return {"first line": said[0][0], "connected": connected, "ready": first.at - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=["flower", "nvflare"], default="flower")
    parser.add_argument("--method")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ended_by_sigterm():
        folder, kernels = Path(name) / "f", Path(name) / "kernels"
        prepare(Demo(given.engine, folder, sites=1))
        spec = replace(read_experiment(folder / "coordinator" / EXPERIMENT_FILE), rounds=3)
        spec = replace(spec, method=given.method) if given.method else spec
        table = []
        with open_transport(spec, logs=folder / "logs") as transport:
            for state in ("none compiled", "all compiled"):
                print(f"{given.engine}, {spec.method}, kernels: {state}", flush=True)
                found = timeline(folder / "sites" / "site-1", replace(spec, out=state.split()[0]), transport, kernels)
                table.append(
                    f"| {given.engine} | {spec.method} | {state} | " + " | ".join(f"{s:.1f}" for s in found.values()) + " |"
                )
    print("\n| engine | method | kernels | first line, s | connected | ready for a run |\n|---|---|---|---|---|---|")
    print("\n".join(table))


if __name__ == "__main__":
    main()
