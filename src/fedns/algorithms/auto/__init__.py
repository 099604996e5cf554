"""auto: the pooled answer for the fewest bytes, or in the fewest rounds, with nothing to choose."""

from fedns.algorithms.auto.method import Auto as Auto
from fedns.algorithms.auto.state import AutoState as AutoState
