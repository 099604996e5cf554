"""A wire between sites and coordinator, in user space: it delays, throttles, stalls and breaks what goes over it."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

from fedns.federation.processes import LOOPBACK

CHUNK = 1 << 14
RETRANSMISSION_SECONDS = 0.2  # what a lost packet costs a TCP connection


@dataclass
class Quality:
    """What the wire is like now; may be changed while it is used."""

    delay_seconds: float = 0.0  # one way
    bytes_per_second: float = float("inf")
    loss: float = 0.0  # of chunks, each of which then comes later
    down: bool = False


class Wire:
    """Listens on a port of its own and passes everything on to another, until the block ends."""

    def __init__(self, port: int) -> None:
        self.quality = Quality()
        self.carried = 0  # bytes, both ways
        self._there = port
        self._socket = socket.create_server((LOOPBACK, 0))
        self.port = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Wire:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._socket.close()

    def break_off(self) -> None:
        """End every connection, with whatever is under way on it."""
        for writer in list(self._open):
            self._loop.call_soon_threadsafe(writer.transport.abort)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connect, sock=self._socket))
        self._loop.run_forever()
        server.close()
        under_way = asyncio.all_tasks(self._loop)
        for task in under_way:
            task.cancel()
        for writer in self._open:
            writer.transport.abort()
        self._loop.run_until_complete(asyncio.gather(*under_way, return_exceptions=True))
        self._loop.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(asyncio.CancelledError):  # at the end of the wire
            while self.quality.down:
                await asyncio.sleep(0.1)
            try:
                onward = await asyncio.open_connection(LOOPBACK, self._there)
            except OSError:
                writer.close()
                return
            self._open.add(onward[1])
            await asyncio.gather(self._carry(reader, onward[1]), self._carry(onward[0], writer))
            self._open -= {writer, onward[1]}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction: what is read is due after the delay, in order, and no faster than the line."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)
        writing = asyncio.ensure_future(self._deliver(queue, writer))
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                late = RETRANSMISSION_SECONDS if random.random() < self.quality.loss else 0.0
                await queue.put((self._loop.time() + self.quality.delay_seconds + late, chunk))
                await asyncio.sleep(len(chunk) / self.quality.bytes_per_second)
        await queue.put((self._loop.time(), b""))
        await writing

    async def _deliver(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                due, chunk = await queue.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                while self.quality.down:
                    await asyncio.sleep(0.1)
                if not chunk:
                    break
                writer.write(chunk)
                self.carried += len(chunk)
                await writer.drain()
        writer.close()
