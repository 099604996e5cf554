"""The settings of `auto`, and what follows whatever the source of curvature: bits, who is drawn, what ways cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Needs
from fedns.core.checked import Checked, Limit
from fedns.core.types import FloatArray
from fedns.methods.auto import thresholds
from fedns.methods.auto.state import AutoState

Positions = NDArray[np.int64]
Bits = Annotated[int, Limit("from 2 to 16", lambda bits: 2 <= bits <= 16)]


def drawn_clients(weights: FloatArray, count: int, turn: int) -> Positions:
    """Positions by systematic sampling: evenly spaced points on the line of all weights, moved on from turn to turn."""
    points = (np.arange(count) + (0.5 + thresholds.GOLDEN * turn) % 1.0) / count
    return np.unique(np.searchsorted(np.cumsum(weights), points).clip(max=weights.size - 1))


class Seen(NamedTuple):
    """What a round has shown."""

    asked: bool  # for curvature
    contraction: float = 1.0
    astray: bool = False  # the last step had to be cut to a tenth
    left: float = 0.0  # of the squared decrement by the first direction
    to_go: float = 0.0  # how often the squared decrement must still fall by a factor e
    spent: float = 0.0  # bytes that the mean client has sent
    hessians: float = np.inf  # what it would have sent with Hessians in every round


class Choice(NamedTuple):
    """Whether something is done, and why, as the end of a sentence."""

    taken: bool
    words: str


@dataclass(frozen=True)
class Rules(Checked):
    """The settings of a run, which `Auto` explains, and what follows from them."""

    prefer: Literal["bytes", "balanced", "rounds"] = "bytes"
    gradient_bits: Bits | None = None  # of each number; None: as `prefer` has it
    sketch_bits: Bits | None = None
    hessian_bits: Bits | None = None
    direction_bits: Bits | None = None

    @property
    def bits_of_sketches(self) -> int:
        return self.sketch_bits or thresholds.SKETCH_BITS[self.prefer]

    @property
    def bits_of_directions(self) -> int:
        return self.direction_bits or thresholds.DIRECTION_BITS[self.prefer]

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        """The memory of a run: matrices, or their roots where there are too many columns for those."""
        square, vectors = float(features) ** 2, (4.0 * thresholds.PAIRS + 40.0) * features
        if self.few(features):
            return Needs(5.0 * square + vectors, client=4.0 * square + vectors, kept=0.5 * square + 4.0 * features)
        if features <= thresholds.WIDE:
            return Needs(5.0 * square + vectors, client=3.0 * square + vectors, kept=4.0 * features)
        sketch = float(self.rows_of_sketches(clients))
        total = max(sketch * clients, thresholds.MOST_SKETCHED_ROWS)
        matrix = 12.0 * total * features + 3.0 * total**2 if total < features else 5.0 * square
        return Needs(matrix + vectors, client=32.0 * sketch * features + vectors, kept=4.0 * features)

    def bits_of_gradients(self, features: int, clients: int) -> int:
        """Few bits are noise: it needs many clients to average out, and beside good Hessians it is what is left."""
        if self.gradient_bits is not None:
            return self.gradient_bits
        usual = thresholds.GRADIENT_BITS["rounds" if self.few(features) else self.prefer]
        return max(usual, thresholds.BITS_OF_FEW[self.prefer]) if clients <= thresholds.FEW_SITES else usual

    def bits_of_hessians(self, largest: float, least: float, averaged: float) -> int:
        """So many that rounding errors are a fraction of the least curvature; fewer where those of many sites are averaged.

        Errors of entries up to `largest`, averaged over sites of weights p, make a matrix whose eigenvalues are up to the
        unit times sqrt(M sum p^2), which is `averaged`.
        """
        if self.hessian_bits is not None or self.prefer != "rounds":
            return self.hessian_bits or thresholds.HESSIAN_BITS[self.prefer]
        levels_needed = largest * averaged / (thresholds.NOISE_OF_HESSIANS * least) if least > 0 else np.inf
        fewest, most = thresholds.FEWEST_HESSIAN_BITS, thresholds.HESSIAN_BITS["rounds"]
        return int(np.clip(np.ceil(np.log2(min(levels_needed, 2.0**most))) + 1, fewest, most))

    def senders(self, weights: FloatArray, features: int, asked: int) -> Positions:
        """Who sends a root, when so many have been asked for before: of many sites at least two."""
        count = round(thresholds.SENDERS * weights.size / (features + 1))
        return drawn_clients(weights, max(count, 1 if weights.size <= thresholds.FEW_SITES else 2), asked)

    def solvers(self, weights: FloatArray, pairs: int) -> Positions:
        """Who solves with its own Hessian, when there are so many pairs."""
        return drawn_clients(weights, max(1, round(thresholds.SOLVERS * weights.size)), pairs)

    def rows_of_sketches(self, clients: int) -> int:
        """Of the first sketch, at a client of mean weight."""
        return int(np.clip(-(-thresholds.SKETCHED_ROWS // clients), thresholds.FEWEST_ROWS, thresholds.MOST_ROWS))

    def cost_of_hessians(self, features: int, bits: int, quadratic: bool) -> float:
        """Bytes of a client for a whole run with Hessians in every round; with one in full where none changes it."""
        entries = features * (features + 1) / 2
        if quadratic:
            return 4.0 * (entries + features) + thresholds.HEADER
        numbers = bits * entries + thresholds.GRADIENT_BITS["rounds"] * features
        return thresholds.WHOLE_NEWTON * (numbers / 8 + thresholds.HEADER)

    def gives_up(self, state: AutoState, seen: Seen) -> Choice:
        """Whether to do as "rounds" does from now on: what was to save bytes has cost as many as Hessians would have.

        A run may be one of those for which neither roots, sketches nor the clients' own Hessians serve, and nothing else
        says so while every round brings a little. Who changes when as much is spent as the other way would have cost never
        spends more than about twice the cheaper of the two.
        """
        dear = self.prefer != "rounds" and seen.spent > seen.hessians and seen.to_go > thresholds.AWAY
        taken = dear and not self.few(state.coefficients.size) and state.coefficients.size <= thresholds.WIDE
        words = f"{seen.spent:.0f} bytes a client are spent, as many as Hessians in every round would have cost"
        return Choice(taken, f"Hessians in every round from the next one on, because {words}")

    def few(self, features: int, quadratic: bool = False) -> bool:
        """Whether there are so few columns that Hessians are the cheapest metric."""
        return features <= (thresholds.FEW_QUADRATIC if quadratic else thresholds.FEW_COLUMNS).get(self.prefer, features)

    def roots_of_all_pay(self, state: AutoState, seen: Seen, gradient_bits: int) -> bool:
        """Whether the roots of all from now on make rounds x bytes less than going on with those of some does.

        Two products are two steps of conjugate gradients, so that a round leaves about what two directions leave in turn.
        """
        if self.prefer != "balanced" or state.rounds < 2:  # the first direction comes from the start, and says little
            return False
        features, so_far, header = state.coefficients.size, int(state.rounds) + 1, thresholds.HEADER
        products = thresholds.LOOKS * thresholds.PRODUCT_BITS
        now = (gradient_bits + products + thresholds.BITS_OF_SHARE) * features / 8 + (thresholds.LOOKS + 2) * header
        entries, beside = features * (features + 1) / 2, thresholds.BITS_BESIDE_ROOTS[self.prefer] + thresholds.PRODUCT_BITS
        roots = thresholds.BITS_OF_ENTRY * entries + beside * features
        rounds = seen.to_go / -np.log(np.clip(seen.left * float(state.left), 1e-6, thresholds.MOST_LEFT))
        going_on = (so_far + rounds) ** 2 * now
        newton = thresholds.NEWTON
        return bool(going_on > (so_far + newton) * (so_far * now + newton * (roots / 8 + 3 * header)))
