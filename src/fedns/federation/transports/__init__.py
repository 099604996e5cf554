"""What carries bytes between coordinator and sites: a folder for each engine, registered here and named nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from fedns.core.registry import Registry
from fedns.federation.protocol.transport import Engine


def _later(place: str) -> Callable[..., Any]:
    """A function of one of the folders here, imported when it is called: an engine takes a second to load."""
    module, _, name = place.rpartition(".")

    def call(*arguments: Any) -> Any:
        return getattr(import_module(f"{__name__}.{module}"), name)(*arguments)

    return call


FLOWER = Engine(
    "flower",
    "flwr",
    provision=_later("flower.credentials.provision"),
    serve=_later("flower.client.serve_rows"),
    open=_later("flower.server.open_engine"),
    contact=_later("flower.credentials.contact"),
    admits=_later("flower.client.why_not_admitted"),
    forget=_later("flower.credentials.forget"),
)
NVFLARE = Engine(
    "nvflare",
    "nvflare",
    provision=_later("nvflare.processes.provision"),
    serve=_later("nvflare.processes.serve_rows"),
    open=_later("nvflare.server.open_engine"),
    contact=_later("nvflare.processes.contact"),
    forget=_later("nvflare.processes.forget"),
)
LOOPBACK = Engine(
    "loopback",
    "fedns",
    provision=_later("loopback.provision"),
    serve=_later("loopback.serve_rows"),
    open=_later("loopback.open_engine"),
)
BUILT_IN = (FLOWER, NVFLARE)  # between machines
TRANSPORTS: Registry[Engine] = Registry("engine", "fedns.transports", Engine, (*BUILT_IN, LOOPBACK))
