"""A coordinator that opens a transport, says so, and waits to be ended."""

import sys
import time
from pathlib import Path

from fedns.federation.processes import ended_by_sigterm
from fedns.federation.transports.flower.server import open_engine

if __name__ == "__main__":
    folder, run, port = sys.argv[1:]
    with ended_by_sigterm(), open_engine(Path(folder), f"127.0.0.1:{port}", Path(run)):
        print("open", flush=True)
        time.sleep(600)
