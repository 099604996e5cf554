"""What carries bytes between coordinator and sites: a folder for each engine, registered here and named nowhere else."""

from __future__ import annotations

from fedns.core.registry import Registry
from fedns.federation.protocol.transport import Engine
from fedns.federation.transports.flower import FLOWER
from fedns.federation.transports.nvflare import NVFLARE

BUILT_IN = (FLOWER, NVFLARE)
TRANSPORTS: Registry[Engine] = Registry("engine", "fedns.transports", Engine, BUILT_IN)
