"""Every sketch, by name."""

from fedns.sketches.dense import Gaussian, Rademacher
from fedns.sketches.rows import RowSampling
from fedns.sketches.sjlt import SJLT
from fedns.sketches.sketch import Sketch
from fedns.sketches.srht import SRHT

SKETCHES: dict[str, type[Sketch]] = {sketch.name: sketch for sketch in (SRHT, SJLT, Gaussian, Rademacher, RowSampling)}

__all__ = ["SJLT", "SKETCHES", "SRHT", "Gaussian", "Rademacher", "RowSampling", "Sketch"]
