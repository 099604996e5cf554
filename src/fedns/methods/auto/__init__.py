"""auto: the pooled answer for the fewest bytes, or in the fewest rounds, with nothing to choose."""

from fedns.methods.auto.method import Auto as Auto
from fedns.methods.auto.state import AutoState as AutoState
