"""Forest plots without a script: estimates with their intervals, on a scale of ratios or of differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDEST = 64.0  # a ratio beyond it, or below its inverse, is drawn at the edge


@dataclass(frozen=True)
class Estimate:
    """One line of a plot."""

    name: str
    value: float
    low: float
    high: float
    joint: bool = False  # of all sites together


def forest(estimates: Sequence[Estimate], *, ratio: str = "") -> str:
    """A plot of these estimates; ratio: what exp of one is called, which makes the scale logarithmic."""
    known = [one for one in estimates if math.isfinite(one.value) and math.isfinite(one.low) and math.isfinite(one.high)]
    if not known:
        return ""
    bound = math.log(_WIDEST) if ratio else math.inf
    low = max(-bound, min(0.0, *(one.low for one in known)))
    high = min(bound, max(0.0, *(one.high for one in known)))
    margin = 0.03 * (high - low) or 1.0
    scale = _Scale(low - margin, high + margin)
    lines = "".join(_line(one, scale, ratio) for one in known)
    ticks = "".join(
        f'<i style="left:{scale.place(place):.2f}%">{escape(text)}</i>' for place, text in _ticks(low, high, ratio)
    )
    axis = f'<div class="forest-line"><span></span><span class="track axis">{ticks}</span><span></span></div>'
    return f'<div class="forest" role="img" aria-label="{escape(_spoken(known, ratio))}">{lines}{axis}</div>'


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float

    def place(self, value: float) -> float:
        """In percent from the left."""
        return 100.0 * (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)


def _line(one: Estimate, scale: _Scale, ratio: str) -> str:
    left, right, middle = scale.place(one.low), scale.place(one.high), scale.place(one.value)
    kind = "forest-line joint" if one.joint else "forest-line"
    return (
        f'<div class="{kind}"><span class="forest-name">{escape(one.name)}</span><span class="track">'
        f'<b class="zero" style="left:{scale.place(0.0):.2f}%"></b>'
        f'<b class="interval" style="left:{left:.2f}%;width:{right - left:.2f}%"></b>'
        f'<b class="point" style="left:{middle:.2f}%"></b></span>'
        f'<span class="forest-value">{escape(estimate_text(one, ratio))}</span></div>'
    )


def estimate_text(one: Estimate, ratio: str) -> str:
    """The estimate and its interval, as ratios where they are ratios."""
    shown = [math.exp(min(value, 700.0)) if ratio else value for value in (one.value, one.low, one.high)]
    return "{:.3g} ({:.3g} to {:.3g})".format(*shown)


def _ticks(low: float, high: float, ratio: str) -> list[tuple[float, str]]:
    if ratio:
        choices = [2.0**power for power in range(-6, 7)]
        inside = [value for value in choices if low - 1e-9 <= math.log(value) <= high + 1e-9]
        if len(inside) < 3:  # ratios near to each other: plain steps between them
            return [(math.log(value), text) for value, text in _even_ticks(math.exp(low), math.exp(high)) if value > 0]
        step = max(1, math.ceil(len(inside) / 7))
        shown = [value for value in inside if round(math.log2(value)) % step == 0]
        return [(math.log(value), f"{value:g}" if value >= 1 else f"1/{1 / value:g}") for value in shown]
    return _even_ticks(low, high)


def _even_ticks(low: float, high: float) -> list[tuple[float, str]]:
    size: float = 10.0 ** math.floor(math.log10((high - low) or 1.0))
    stride = next(size * factor for factor in (0.2, 0.5, 1.0, 2.0) if (high - low) / (size * factor) <= 6)
    places = range(math.ceil(low / stride), math.floor(high / stride) + 1)
    return [(stride * place, f"{stride * place:.6g}") for place in places]


def _spoken(estimates: Sequence[Estimate], ratio: str) -> str:
    return "; ".join(f"{one.name}: {estimate_text(one, ratio)}" for one in estimates)
