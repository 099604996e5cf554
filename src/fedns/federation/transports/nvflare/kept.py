"""What NVFlare keeps of messages that were handed over: nothing.

As installed a site sends an answer again and again until it has a receipt, and after a while gives it up; meanwhile it keeps
a copy, and the server every answer and a thread. On a line on which an answer takes longer than the while, it never arrives.
Here it is sent once: what is lost with a connection the server asks for again (`Relay`), and the site has it on its disk.

At both ends what sends a message is part of a cycle, with the message and a buffer: it waits for Python's collector,
which counts objects, not bytes, and so comes after hundreds of megabytes.
"""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

from nvflare.fuel.f3.sfm import conn_manager
from nvflare.fuel.f3.stream_cell import StreamCell
from nvflare.fuel.f3.streaming.stream_types import StreamFuture

COLLECT_SECONDS = 1.0
FRAME_THREADS = 4


def collect_often() -> None:
    """Have what was sent collected every second: little work, since what is there already is not looked at again."""

    def collect() -> None:
        while True:
            time.sleep(COLLECT_SECONDS)
            gc.collect()

    gc.freeze()
    threading.Thread(target=collect, name="fedns-collect", daemon=True).start()


def take_frames_with_few_threads() -> None:
    """Bound the threads that take in frames: there would be one more whenever none is idle, up to a hundred."""
    conn_manager.FRAME_THREAD_POOL_SIZE = FRAME_THREADS


def send_once() -> None:
    """Let this process send every message once, whatever NVFlare's code asks for."""
    send = StreamCell.send_blob

    def send_blob(cell: StreamCell, *arguments: Any, **named: Any) -> StreamFuture:
        return send(cell, *arguments, **{**named, "reliable": False})

    StreamCell.send_blob = send_blob
