"""What NVFlare keeps of messages that were handed over: for a while the note that they came, and nothing else.

As installed a server keeps every answer too, and a thread for each that ends the keeping. At both ends what sends a message
is part of a cycle, with the message and a buffer of a megabyte: it waits for Python's collector, which counts objects, not
bytes, and so comes after hundreds of megabytes.
"""

from __future__ import annotations

import gc
import queue
import threading
import time

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

from fedns.transports.nvflare.processes import RESEND_SECONDS

# By the note an answer that is sent once more, for want of a receipt, is told from a new one.
NOTE_SECONDS = 1.5 * RESEND_SECONDS
COLLECT_SECONDS = 1.0


def collect_often() -> None:
    """Have what was sent collected every second: little work, since what is there already is not looked at again."""

    def collect() -> None:
        while True:
            time.sleep(COLLECT_SECONDS)
            gc.collect()

    gc.freeze()
    threading.Thread(target=collect, name="fedns-collect", daemon=True).start()


def keep_notes_in_one_thread() -> None:
    """Let one thread of this process remove the notes, whatever time their senders ask for."""
    ended = queue.SimpleQueue[tuple[float, RxTask]]()

    def remove_later(task: RxTask, seconds: float | None = None) -> None:
        ended.put((time.monotonic() + NOTE_SECONDS, task))

    def remove() -> None:
        while True:
            due, task = ended.get()
            time.sleep(max(0.0, due - time.monotonic()))
            with RxTask.map_lock:
                RxTask.rx_task_map.pop((task.origin, task.sid), None)

    RxTask._schedule_remove_task = remove_later
    threading.Thread(target=remove, name="fedns-notes", daemon=True).start()


def take_payload(reply: Message) -> bytes:
    """The bytes of an answer, which nobody else holds then."""
    payload = bytes(reply.payload or b"")
    task = RxTask.rx_task_map.get((reply.get_header(MessageHeaderKey.ORIGIN), reply.get_header(StreamHeaderKey.STREAM_ID)))
    if task is not None and task.stream_future is not None:
        task.stream_future.value = None
    return payload
