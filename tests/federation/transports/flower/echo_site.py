"""A site whose answer is the request backwards, and which can be told to be slow or to fail."""

import sys
import time
from collections.abc import Callable
from pathlib import Path


def make(_: str) -> Callable[[bytes], bytes]:
    """A service as the engine wants it: a function of bytes."""

    def answer(request: bytes) -> bytes:
        if request.startswith(b"sleep "):
            time.sleep(float(request.split()[1]))
        if request.startswith(b"await "):
            path = Path(request[6:].decode())
            while not path.exists():
                time.sleep(0.02)
        if request == b"fail":
            raise RuntimeError("the patient's name is in here")
        return request[::-1]

    return answer


if __name__ == "__main__":
    from fedns.federation.processes import ended_by_sigterm
    from fedns.federation.transports.flower.client import serve
    from fedns.federation.transports.flower.credentials import contact

    with ended_by_sigterm():
        serve(contact(Path(sys.argv[1])), make(""))
