"""A coordinator that opens a transport, says so, and waits to be ended."""

import sys
import time
from pathlib import Path

from fedns.engines.flower_credentials import CoordinatorKit
from fedns.engines.flower_server import open_transport
from fedns.engines.processes import ended_by_sigterm

if __name__ == "__main__":
    folder, run, port = sys.argv[1:]
    with ended_by_sigterm(), open_transport(CoordinatorKit.load(Path(folder)), Path(run), int(port)):
        print("open", flush=True)
        time.sleep(600)
