"""What the server of `auto` knows between rounds, declared once: it is saved, and a round changes it field by field."""

from __future__ import annotations

from fedns.core.algorithm import StateOfAll
from fedns.core.messages import Payload, wire


class AutoState(StateOfAll):
    """Where the run is, and what the server believes of the clients."""

    exponents: Payload = wire("scales", dtype="int32")  # of the columns; none before the first round
    step: Payload = wire("features", dtype="int32")  # the move that the clients have not heard of yet
    unit: Payload = wire(dtype="float64")
    gradient: Payload = wire("features", dtype="float64")  # of the mean loss, as the clients have told it
    loss: Payload = wire(dtype="float64")  # the mean loss, up to a constant
    last_point: Payload = wire("known", "features", dtype="float64")  # no row before the first round
    last_gradient: Payload = wire("known", "features", dtype="float64")  # penalty included
    last_value: Payload = wire(dtype="float64")
    slope: Payload = wire(dtype="float64")  # along the last step
    moves: Payload = wire("pairs", "features", dtype="float64")
    changes: Payload = wire("pairs", "features", dtype="float64")
    metric: Payload = wire("entries", dtype="float64")  # packed; none where the clients' own Hessians serve
    metric_rows: Payload = wire("rank", "features", dtype="float64")  # its root, where there are too many columns for it
    metric_weight: Payload = wire(dtype="float64")
    metric_noise: Payload = wire(dtype="float64")  # curvature below this, in scaled columns, may be rounding
    source: Payload = wire(dtype="int32")  # the number of the metric's source
    rows: Payload = wire(dtype="int32")  # of the next sketch, at a client of mean weight
    curvatures: Payload = wire(dtype="int32")  # sketches or Hessians so far
    age: Payload = wire(dtype="int32")  # rounds since the last of them
    decrement: Payload = wire(dtype="float64")  # -slope of the last round
    contraction: Payload = wire(dtype="float64")  # the last two decrements' ratio
    slow_rounds: Payload = wire(dtype="int32")
    rounds: Payload = wire(dtype="int32")  # so far
    left: Payload = wire(dtype="float64")  # of the squared decrement by the last round's first direction, where it was seen
    spent: Payload = wire(dtype="float64")  # bytes that the mean client has sent
    gave_up: Payload = wire(dtype="uint8")  # 1 where these were too many: the run goes on as with prefer="rounds"
    missed: Payload = wire(dtype="uint8")  # 1 where somebody has not heard the last move, or cannot hear it as a step
    clients: Payload = wire(dtype="int32")  # all of them: who is not asked has not changed
