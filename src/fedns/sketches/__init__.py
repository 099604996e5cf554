"""Every sketch, by name."""

from fedns.core.registry import Registry
from fedns.sketches.dense import Gaussian, Rademacher
from fedns.sketches.rows import RowSampling
from fedns.sketches.sjlt import SJLT
from fedns.sketches.sketch import DEFAULT_SIZE, Sketch
from fedns.sketches.srht import SRHT

_OWN: tuple[type[Sketch], ...] = (SRHT, SJLT, Gaussian, Rademacher, RowSampling)
SKETCHES: Registry[type[Sketch]] = Registry("sketch", "fedns.sketches", Sketch, _OWN)

__all__ = ["DEFAULT_SIZE", "SJLT", "SKETCHES", "SRHT", "Gaussian", "Rademacher", "RowSampling", "Sketch"]
