"""Passes over rows for Cox regression, stratified by client: risk sets are local, so that the likelihood is a sum over them.

With rows in the order of falling times, the sums over risk sets are cumulative sums. For an event that is number l of the d
events at its time (Efron's rule), f = l / d, and r = s exp(z) for rows with weights s,

    at risk = sum of r over rows with this time or a later one - f (sum of r over the events at this time)

The loss is the sum over events of s log(at risk) - s z, with the mean s of the events at a time for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np

from fedns.numerics import parallel
from fedns.numerics.backend import Backend, Batch, FloatArray, IntArray, Keys, LocalSteps, SketchPlan
from fedns.numerics.errors import ConfigError
from fedns.numerics.formulas import Formulas

_ROUNDING = 1e-13  # of a column's values: rows of one risk set that differ by less are the same


class _Times(NamedTuple):
    """A client's rows in the order of falling times; groups are distinct times, and only some of them have events."""

    order: IntArray  # (rows,)
    group: IntArray  # (rows,) of each row in that order
    last: IntArray  # (groups,) the last row of each
    event: FloatArray  # (rows,) in that order, 1 or 0
    weights: FloatArray  # (rows,) in that order
    of_event: IntArray  # (events,) the group of each event
    tied: FloatArray  # (events,) f = l / d
    weight: FloatArray  # (events,) the mean weight of the events at that time


class _Risk(NamedTuple):
    """What the margins say: of rows in the order of falling times, and of events."""

    r: FloatArray  # (rows,) weight times exp(z), up to a factor that all have in common
    at_risk: FloatArray  # (events,)
    hazard: FloatArray  # (rows,) d: r times the cumulative hazard at the row's time, the diagonal part of the curvature
    loss: float


@dataclass(frozen=True)
class CoxBackend(Backend):
    """The passes. Rows are made dense and centred, a client at a time: a constant in a column changes nothing."""

    def derivatives(self, loss: Formulas, targets: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slopes, and the diagonal part of the curvature, of rows that are one client's."""
        times = _times(targets, np.ones_like(targets))
        risk = _risk(times, margins)
        slope, diagonal = np.empty_like(margins), np.empty_like(margins)
        slope[times.order], diagonal[times.order] = risk.hazard - times.event, risk.hazard
        return slope, diagonal

    def losses_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> FloatArray:
        def along(client: int) -> FloatArray:
            x, times, total = _client(batch, client)
            z, dz = x @ _own(w, client), x @ _own(direction, client)
            return np.array([_risk(times, z + t * dz).loss for t in steps]) / total

        return np.stack(parallel.map_clients(along, batch.starts.size))

    def value_and_gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        def both(client: int) -> tuple[float, FloatArray]:
            x, times, total = _client(batch, client)
            risk = _risk(times, x @ _own(w, client))
            return risk.loss / total, (risk.hazard - times.weights * times.event) @ x / total

        found = parallel.map_clients(both, batch.starts.size)
        return np.array([value for value, _ in found]), np.stack([gradient for _, gradient in found])

    def curvatures_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray, norms: FloatArray
    ) -> FloatArray:
        """The sums of the diagonal part, which is an upper bound of what a row adds to the Hessian."""

        def sums(client: int) -> FloatArray:
            x, times, total = _client(batch, client)
            z, dz = x @ _own(w, client), x @ _own(direction, client)
            own = norms[batch.starts[client] : batch.stops[client]][times.order]
            curvatures = np.stack([_risk(times, z + t * dz).hazard for t in steps]) / total
            traces = curvatures * own
            return np.column_stack([curvatures.sum(1), (curvatures**2).sum(1), traces.sum(1), traces.max(1)])

        return np.stack(parallel.map_clients(sums, batch.starts.size))

    def gradient_and_hessian(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        upper = np.triu_indices(w.shape[-1])

        def triangle(client: int) -> FloatArray:
            x, times, total = _client(batch, client)
            risk = _risk(times, x @ _own(w, client))
            means = _sums_at_risk(times, risk.r[:, None] * x) / risk.at_risk[:, None]
            matrix = (x * risk.hazard[:, None]).T @ x - (means * times.weight[:, None]).T @ means
            return np.asarray(matrix[upper] / total)

        return self.gradient(loss, batch, w), np.stack(parallel.map_clients(triangle, batch.starts.size))

    def hessian_times(self, loss: Formulas, batch: Batch, w: FloatArray, vectors: FloatArray) -> FloatArray:
        def images(client: int) -> FloatArray:
            x, times, total = _client(batch, client)
            risk = _risk(times, x @ _own(w, client))
            u = x @ vectors[client if len(vectors) > 1 else 0].T
            means = _sums_at_risk(times, risk.r[:, None] * u) / risk.at_risk[:, None]
            spread = _over_later_rows(times, means * (times.weight / risk.at_risk)[:, None])
            return np.asarray((risk.hazard[:, None] * u - risk.r[:, None] * spread).T @ x / total)

        return np.stack(parallel.map_clients(images, batch.starts.size))

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys
    ) -> tuple[FloatArray, FloatArray]:
        _refuse("a Hessian whose rows can be sketched")

    def sketched_rows(self, batch: Batch, plan: SketchPlan, keys: Keys) -> FloatArray:
        _refuse("rows that can be sketched one by one")

    def local_steps(self, loss: Formulas, batch: Batch, w: FloatArray, local: LocalSteps, keys: Keys) -> FloatArray:
        _refuse("gradients of a few rows")


def row_scores(x: FloatArray, z: FloatArray, targets: FloatArray, weights: FloatArray) -> FloatArray:
    """What each row of a client, counted once, adds to the gradient of the loss (Lin and Wei 1989, Efron's rule for ties).

    With m_k the mean of x over what is at risk at event k, a row adds m - x for its own event, m being the mean over the
    events at its time, and exp(z) (x - m_k) / (at risk) for every event k at which it is at risk itself.
    """
    times = _times(targets, weights)
    x = _centred(x[times.order], x.mean(axis=0), times)
    risk = _risk(times, z[times.order])
    means = _sums_at_risk(times, risk.r[:, None] * x) / risk.at_risk[:, None]
    shares = times.weight / risk.at_risk
    own, ties = np.zeros((times.last.size, x.shape[1])), np.bincount(times.of_event, minlength=times.last.size)
    np.add.at(own, times.of_event, means)
    own /= np.maximum(ties, 1)[:, None]
    z = z[times.order]
    once = np.exp(z - z.max())[:, None]
    at_risk = once * (_over_later_rows(times, shares)[:, None] * x - _over_later_rows(times, means * shares[:, None]))
    found = np.empty_like(x)
    found[times.order] = at_risk - times.event[:, None] * (x - own[times.group])
    return found


def cumulative_hazard(z: FloatArray, targets: FloatArray, weights: FloatArray, at: FloatArray) -> FloatArray:
    """Of a client's row with margin 0, until each of these times, ties by Efron's rule: (times,)."""
    times = _times(targets, weights)
    risk = _risk(times, z[times.order])
    steps = times.weight / risk.at_risk * np.exp(-z.max())
    when = np.abs(targets[times.order])[times.last][times.of_event]
    return np.array([steps[when <= one].sum() for one in at])


def _refuse(what: str) -> NoReturn:
    raise ConfigError(f"Cox regression has not {what}, since risk sets hold many rows: take fednewton, fednl, lbfgs or gd")


def _own(w: FloatArray, client: int) -> FloatArray:
    return w if w.ndim == 1 else w[client if len(w) > 1 else 0]


def _client(batch: Batch, client: int) -> tuple[FloatArray, _Times, float]:
    """A client's rows in the order of falling times, centred; what its times say; the sum of its weights."""
    start, stop = int(batch.starts[client]), int(batch.stops[client])
    weights = np.ones(stop - start) if batch.sample_weights is None else batch.sample_weights[start:stop]
    times = _times(batch.targets[start:stop], weights)
    x = batch.rows.dense(start, stop)[times.order]
    return _centred(x, x.mean(axis=0), times), times, float(weights.sum())


def _centred(x: FloatArray, means: FloatArray, times: _Times) -> FloatArray:
    """Columns of rows in the order of falling times, less their means.

    They are exactly 0 where all rows that any risk set holds are the same but for rounding.
    Such a column tells nothing, and sums of its rounding would pass for information of either sign. Risk sets lie within
    each other: the rows that none holds are those of no weight, and those that were gone before the first event.
    """
    centred = x - means
    events = times.of_event[times.weight > 0]
    if events.size:
        held = x[: times.last[events[-1]] + 1][times.weights[: times.last[events[-1]] + 1] > 0]
        low, high = held.min(axis=0), held.max(axis=0)
        centred[:, high - low <= _ROUNDING * np.maximum(np.abs(low), np.abs(high))] = 0.0
    return np.asarray(centred)


def _times(targets: FloatArray, weights: FloatArray) -> _Times:
    """From targets: the time of an event, or minus the time until which there was none."""
    order = np.argsort(-np.abs(targets), kind="stable")
    time, event = np.abs(targets[order]), (targets[order] > 0).astype(np.float64)
    changes = np.append(np.flatnonzero(np.diff(time)), time.size - 1)
    group = np.searchsorted(changes, np.arange(time.size))
    of_event = group[event > 0]
    ties = np.bincount(of_event, minlength=changes.size)
    number = np.arange(of_event.size) - np.searchsorted(of_event, of_event)  # 0, 1, ... among the events of its time
    totals = np.bincount(group, weights[order] * event, minlength=changes.size)
    weight = totals[of_event] / ties[of_event]
    return _Times(order, group, changes, event, weights[order], of_event, number / ties[of_event], weight)


def _risk(times: _Times, z: FloatArray) -> _Risk:
    """z: margins in the order of falling times."""
    top = float(z.max())
    r = times.weights * np.exp(z - top)
    at_risk = _sums_at_risk(times, r)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # far out, a search finds an infinite loss
        hazard = r * _over_later_rows(times, times.weight / at_risk)
        loss = times.weight @ (np.log(at_risk) + top) - (times.weights * times.event) @ z
    return _Risk(r, at_risk, hazard, float(loss))


def _sums_at_risk(times: _Times, values: FloatArray) -> FloatArray:
    """The sums of values of rows over what is at risk at each event: (rows, ...) to (events, ...)."""
    sums = np.cumsum(values, axis=0)[times.last][times.of_event]
    flags = times.event if values.ndim == 1 else times.event[:, None]
    first = np.append(0, times.last[:-1] + 1)
    tied = np.add.reduceat(values * flags, first, axis=0)[times.of_event]
    share = times.tied if values.ndim == 1 else times.tied[:, None]
    return np.asarray(sums - share * tied)


def _over_later_rows(times: _Times, values: FloatArray) -> FloatArray:
    """The sums of values of events over those at which each row is at risk: (events, ...) to (rows, ...)."""
    shape = (times.last.size, *values.shape[1:])
    per_group, tied = np.zeros(shape), np.zeros(shape)
    share, flags = (times.tied, times.event) if values.ndim == 1 else (times.tied[:, None], times.event[:, None])
    np.add.at(per_group, times.of_event, values)
    np.add.at(tied, times.of_event, share * values)
    until = np.cumsum(per_group[::-1], axis=0)[::-1]  # events at this time or an earlier one
    return np.asarray(until[times.group] - flags * tied[times.group])
