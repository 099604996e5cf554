"""The clients' half of `auto`: what each request is answered with.

What a client remembers is what the server believes of it, number for number: its point, its gradient, its mean loss and its
Hessian. Both ends add the same rounded changes to it, so that what one message rounds away the next one sends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Clients, Handler, on_client
from fedns.core.errors import MessageError
from fedns.core.messages import Ragged
from fedns.core.shards import Shards
from fedns.core.types import FloatArray, Keys
from fedns.methods.auto import thresholds
from fedns.methods.auto.messages import (
    BackRequest,
    Change,
    ChangeAndHessian,
    ChangeAndSketch,
    ColumnScales,
    ExactChange,
    HessianRoot,
    LossesBack,
    Move,
    Product,
    RootRequest,
    ScalesRequest,
    Solved,
    VectorRequest,
)
from fedns.methods.auto.roots import Root, rounded_root
from fedns.methods.auto.rounding import (
    Integers,
    eighths,
    eighths_above,
    exponents_of,
    levels,
    products_of,
    round_at_random,
    rounded_by,
)
from fedns.methods.curvature import newton_steps
from fedns.methods.searches import ArmijoSearch
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.backend import SketchPlan
from fedns.numerics.linalg import symmetric_of
from fedns.numerics.rng import uniforms
from fedns.sketches import SRHT
from fedns.sketches.srht import next_power_of_two


@dataclass(frozen=True)
class ClientHalf:
    """The handlers of `auto`."""

    sketch_bits: int = 6

    def handlers(self) -> tuple[Handler, ...]:
        changes = (self.change, self.change_and_sketch, self.change_and_hessian, self.change_exactly)
        return (column_scales, *changes, self.root, self.solve, self.multiply, losses_back, *ArmijoSearch().handlers())

    @on_client(Move, Change)
    def change(self, problem: Problem, clients: Clients, request: Move) -> Change:
        w, scales = _moved(clients, request)
        return Change(**self._change(problem, clients, request, w, scales))

    @on_client(Move, ChangeAndSketch)
    def change_and_sketch(self, problem: Problem, clients: Clients, request: Move) -> ChangeAndSketch:
        w, scales = _moved(clients, request)
        keys = clients.keys(f"auto sketch {request.attempt}")
        plan = sketch_plan(problem, clients.shards, int(request.detail), float(request.weight))
        _, rows, offsets = problem.gradient_and_sketch(w, clients.shards, plan, keys)
        owner = np.repeat(np.arange(clients.ids.size), np.diff(offsets))
        scaled = rows / scales[owner]
        units = eighths_above(np.abs(scaled).max(axis=1) / levels(self.sketch_bits))
        draws = uniforms(clients.keys(f"auto sketch rounding {request.attempt}"), int(np.diff(offsets).max()) * w.shape[-1])
        within = (np.arange(len(rows)) - offsets[owner])[:, None] * w.shape[-1] + np.arange(w.shape[-1])
        rounded = rounded_by(scaled, eighths(units), draws[owner[:, None], within])
        return ChangeAndSketch(
            **self._change(problem, clients, request, w, scales),
            row_units=Ragged(units, offsets),
            sketched_root=Ragged(rounded, offsets),
        )

    @on_client(Move, ChangeAndHessian)
    def change_and_hessian(self, problem: Problem, clients: Clients, request: Move) -> ChangeAndHessian:
        w, scales = _moved(clients, request)
        _, triangle = problem.gradient_and_hessian(w, clients.shards)
        keys = clients.keys(f"auto Hessian {request.attempt}")
        rounded, unit = _rounded_change(clients, "auto_hessian", triangle, products_of(scales[0]), int(request.detail), keys)
        change = self._change(problem, clients, request, w, scales)
        return ChangeAndHessian(**change, hessian_unit=unit, hessian_triangle=rounded)

    @on_client(RootRequest, HessianRoot)
    def root(self, problem: Problem, clients: Clients, request: RootRequest) -> HessianRoot:
        features = problem.num_features(clients.shards.num_columns)
        w, scales = _where(clients, features)
        _, triangle = problem.gradient_and_hessian(_common(w), clients.shards)
        draws = uniforms(clients.keys("auto root"), triangle.shape[1])
        scaled, penalties = triangle / products_of(scales[0]), problem.penalty_curvature(w) / scales**2

        def of_client(j: int) -> Root:
            hessian = symmetric_of(scaled[j], features) + np.diag(penalties[j])
            return rounded_root(hessian, draws[j], int(request.bits))

        roots = parallel.map_clients(of_client, len(scaled))
        order, exponents, entries = (np.array(part) for part in zip(*roots, strict=True))
        return HessianRoot(order=order, exponents=exponents, entries=entries)

    @on_client(Move, ExactChange)
    def change_exactly(self, problem: Problem, clients: Clients, request: Move) -> ExactChange:
        w, scales = _moved(clients, request)
        _, triangle = problem.gradient_and_hessian(w, clients.shards)
        value, gradient = problem.value_and_gradient(w, clients.shards)
        return ExactChange(
            answered=np.ones(clients.ids.size, np.uint8),
            loss=_exact_change(clients, "auto_loss", value),
            gradient=_exact_change(clients, "auto_gradient", gradient, scales),
            hessian_triangle=_exact_change(clients, "auto_hessian", triangle, products_of(scales[0])),
        )

    @on_client(VectorRequest, Solved)
    def solve(self, problem: Problem, clients: Clients, request: VectorRequest) -> Solved:
        w, scales = _where(clients, request.vector.size)
        vector = request.vector * float(request.unit) * scales[0]
        steps, _ = newton_steps(problem, w, clients.shards, vector)
        keys = clients.keys(f"auto direction {request.attempt}")
        rounded, unit = round_at_random(-steps * scales, int(request.bits), keys)
        return Solved(unit=unit, solution=rounded)

    @on_client(VectorRequest, Product)
    def multiply(self, problem: Problem, clients: Clients, request: VectorRequest) -> Product:
        w, scales = _where(clients, request.vector.size)
        vector = request.vector * float(request.unit) / scales[0]
        products = problem.hessian_times(w, vector[None, None], clients.shards)[:, 0]
        keys = clients.keys(f"auto product {request.attempt}")
        rounded, unit = round_at_random(products / scales, int(request.bits), keys)
        return Product(unit=unit, product=rounded)

    def _change(
        self, problem: Problem, clients: Clients, request: Move, w: FloatArray, scales: FloatArray
    ) -> dict[str, NDArray[Any]]:
        value, gradient = problem.value_and_gradient(w, clients.shards)
        keys = clients.keys(f"auto gradient {request.attempt}")
        rounded, unit = _rounded_change(clients, "auto_gradient", gradient, scales, int(request.bits), keys)
        loss = _exact_change(clients, "auto_loss", value)
        return {"answered": np.ones(clients.ids.size, np.uint8), "loss": loss, "unit": unit, "gradient": rounded}


@on_client(ScalesRequest, ColumnScales)
def column_scales(problem: Problem, clients: Clients, request: ScalesRequest) -> ColumnScales:
    problem.before_rows_are_read()
    squares = clients.shards.mean_squares()
    if problem.offset:
        squares = squares[:, :-1]
    if problem.intercept:
        squares = np.column_stack([squares, np.ones(len(squares))])
    return ColumnScales(exponents=exponents_of(np.tile(squares, problem.loss.outputs)))


@on_client(BackRequest, LossesBack)
def losses_back(problem: Problem, clients: Clients, request: BackRequest) -> LossesBack:
    features = problem.num_features(clients.shards.num_columns)
    w, step = clients.read_copy("auto_point", features), clients.read_copy("auto_step", features)
    losses = problem.losses_along(w, -step, np.concatenate([[0.0], request.fractions]), clients.shards)
    with np.errstate(over="ignore"):
        return LossesBack(losses=(losses[:, 1:] - losses[:, :1]).astype(np.float32))


def sketch_plan(problem: Problem, shards: Shards, rows: int, weight: float) -> SketchPlan:
    """Rows by the clients' weights, `rows` for one of this weight, so that every row of all sketches stands for as much."""
    largest = max(thresholds.FEWEST_COLUMNS, int(problem.num_features(shards.num_columns)))
    if not (1 <= rows <= largest and 0.0 < weight < np.inf):
        raise MessageError(f"a sketch of {rows} rows for a weight of {weight:g} was asked for: 1 to {largest} can be had")
    most = thresholds.MOST_SHARES * rows
    plan = SRHT(most).plan(problem.root_sizes(shards))
    wanted = np.clip(np.rint(rows * shards.total_weights / weight), 1, most).astype(np.int64)
    # Blocks as long as for the most rows, whoever else is in the batch: the same bits for one client as for many.
    return replace(plan, sizes=np.minimum(plan.sizes, wanted), block_length=max(16, next_power_of_two(most) // 2))


def _rounded_change(
    clients: Clients, name: str, values: FloatArray, units: FloatArray, bits: int, keys: Keys
) -> tuple[Integers, NDArray[np.float32]]:
    """What is sent of values that the server believes to be other ones; from now on it believes what it then has."""
    believed = clients.read_copy(name, values.shape[1])
    change = values - believed
    change /= units
    rounded, unit = round_at_random(change, bits, keys)
    heard = rounded * unit.astype(np.float64)[:, None]
    heard *= units
    heard += believed
    clients.remember(name, heard)
    return rounded, unit


def _exact_change(clients: Clients, name: str, values: FloatArray, units: Any = 1.0) -> NDArray[np.float32]:
    """The same for values that are sent in single precision."""
    believed = clients.read_copy(name, *values.shape[1:])
    with np.errstate(over="ignore"):  # what is not finite, as a diverging loss, is refused when it is sent
        change = ((values - believed) / units).astype(np.float32)
    clients.remember(name, believed + change * units)
    return np.asarray(change)


def _scales(clients: Clients, features: int) -> FloatArray:
    return np.ldexp(1.0, clients.read_copy("auto_exponents", features).astype(np.int64))


def _where(clients: Clients, features: int) -> tuple[FloatArray, FloatArray]:
    """The clients' points and the scales of the columns."""
    return clients.read_copy("auto_point", features), _scales(clients, features)


def _moved(clients: Clients, request: Move) -> tuple[FloatArray, FloatArray]:
    """The clients' point after the move, one vector where all are at the same, and the scales of the columns."""
    features = request.step.size
    if request.exponents.size:
        clients.remember("auto_exponents", np.tile(request.exponents.astype(np.float64), (clients.ids.size, 1)))
    scales = _scales(clients, features)
    step, before = request.step * float(request.unit) / scales, clients.read_copy("auto_point", features)
    w = before + step
    if request.point.size:
        w = np.tile(request.point, (clients.ids.size, 1))
    clients.remember("auto_point", w)
    # What may be taken back is the whole way of this round.
    clients.remember("auto_step", clients.read_copy("auto_step", features) + (w - before) if request.attempt else step)
    return _common(w), scales


def _common(w: FloatArray) -> FloatArray:
    """The clients' points, one vector where all are at the same."""
    return np.asarray(w[0] if (w == w[0]).all() else w)
