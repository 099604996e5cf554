"""What `auto` decides, and the words for it: where curvature comes from, when it is asked for again, when to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.algorithms.auto.rounding import FloatArray
from fedns.algorithms.auto.state import AutoState, Source

FEW_SITES = 16  # up to here half of the sites solve with their own Hessians, above a few send roots of theirs
# Up to so many columns the Hessian itself; in full and once where it is the same everywhere. Each is where the least of
# bytes + price x exchanges lies, with a price of 256 bytes for "balanced" and of none for "bytes".
FEW_COLUMNS = {"bytes": 16, "balanced": 24}
FEW_QUADRATIC = {"bytes": 16, "balanced": 40}
SKETCHED_ROWS = 120  # of all sites together, in one sketch
FEWEST_ROWS, MOST_ROWS = 3, 16  # of one site, at first
# A decrement that falls by less than this factor in a round: a third curvature is asked for, another one, another source.
MEAGRE, STALLED, SLOW = 0.3, 0.6, 0.5
FRESH = 0.2  # with few columns, a new Hessian unless the last step contracted by this
GRADIENT_BITS = {"bytes": 6, "balanced": 8, "rounds": 14}
BITS_OF_FEW = {"bytes": 8, "balanced": 10, "rounds": 14}  # at least, where few clients' rounding errors are averaged
PRODUCT_BITS = 7  # of a Hessian times a direction
LOOKS = 2  # products that a direction may cost, where sketches or roots of some make the metric
LOOK_AFTER = 0.1  # where clients solve, one product if the last round contracted by more
SLOW_ROUNDS = 3  # of the clients' own Hessians, before roots of some take over
ROOT_COLUMNS = {"balanced": 60}  # up to here roots of some from the start with few sites too
BITS_BESIDE_ROOTS = {"bytes": 10, "balanced": 12}  # of a gradient, where all send their roots
BITS_BESIDE_SOME = 10  # of a gradient of "balanced" with up to ROOT_COLUMNS columns
BITS_OF_ENTRY = 4  # of a root: what an entry took, about, on the data sets that the rules were chosen on
SENDERS = 4.0  # over the columns, of the sites: in four bits their roots cost what a gradient of all in eight bits does
FEWEST_ROWS_OF_SENDERS = 2  # a column: with fewer their Hessians are mostly penalty
LEFT_BY_FEW, LEFT_BY_MANY = 0.2, 0.1  # of the decrement by a direction: more, and other roots are asked for
SOLVERS = 0.5  # of the sites, by weight, solve with their own Hessians
SOMES = 4  # roots of some before sketches take over, where a new one still contracts by more than SLOW
ROOTS = 6  # before Hessians take over, where a new one still contracts by more than SLOW
GOLDEN = 0.618  # multiples of it, modulo one, lie as far apart as they can
Positions = NDArray[np.int64]


def drawn(weights: FloatArray, count: int, turn: int) -> Positions:
    """Positions by systematic sampling: evenly spaced points on the line of all weights, moved on from turn to turn."""
    points = (np.arange(count) + (0.5 + GOLDEN * turn) % 1.0) / count
    return np.unique(np.searchsorted(np.cumsum(weights), points).clip(max=weights.size - 1))


class Choice(NamedTuple):
    """Whether something is done, and why, as the end of a sentence."""

    taken: bool
    words: str


@dataclass(frozen=True)
class Rules:
    """The decisions of a run.

    - prefer: "bytes", "balanced" or "rounds".
    - gradient_bits: of a number of a gradient; None lets the rules choose.
    - sketch_bits: of a number of a sketch.
    - hessian_bits: of a number of a Hessian.
    - direction_bits: of a number of a direction.
    """

    prefer: str
    gradient_bits: int | None
    sketch_bits: int
    hessian_bits: int
    direction_bits: int

    def source(self, features: int, weights: FloatArray, quadratic: bool) -> Source:
        """Where the metric comes from at first."""
        if self._few(features, quadratic):
            return Source.EXACT if quadratic else Source.HESSIAN
        few = weights.size <= FEW_SITES
        if few and features > ROOT_COLUMNS.get(self.prefer, 0):
            return Source.LOCAL
        rows = float(weights[self.senders(weights / weights.sum(), features, 0)].sum())
        if rows < FEWEST_ROWS_OF_SENDERS * features:
            return Source.LOCAL if few else Source.SKETCH
        return Source.SOME

    def bits_of_gradients(self, features: int, clients: int, source: Source) -> int:
        """Few bits are noise: it needs many clients to average out, and beside good Hessians it is what is left."""
        if self.gradient_bits is not None:
            return self.gradient_bits
        if source == Source.ROOT:
            return BITS_BESIDE_ROOTS[self.prefer]
        if source == Source.SOME and self.prefer == "balanced" and features <= ROOT_COLUMNS["balanced"]:
            return BITS_BESIDE_SOME
        usual = GRADIENT_BITS["rounds" if self._few(features) else self.prefer]
        return max(usual, BITS_OF_FEW[self.prefer]) if clients <= FEW_SITES else usual

    def senders(self, weights: FloatArray, features: int, asked: int) -> Positions:
        """Who sends a root, when so many have been asked for before: of many sites at least two."""
        count = round(SENDERS * weights.size / (features + 1))
        return drawn(weights, max(count, 1 if weights.size <= FEW_SITES else 2), asked)

    def solvers(self, weights: FloatArray, pairs: int) -> Positions:
        """Who solves with its own Hessian, when there are so many pairs."""
        return drawn(weights, max(1, round(SOLVERS * weights.size)), pairs)

    def rows(self, clients: int) -> int:
        """Of the first sketch, at a client of mean weight."""
        return int(np.clip(-(-SKETCHED_ROWS // clients), FEWEST_ROWS, MOST_ROWS))

    def curvature(self, state: AutoState) -> Choice:
        """Whether to ask for a sketch or a Hessian: at first, and when the last rounds have brought too little."""
        if state.source == Source.LOCAL:
            return Choice(False, "clients solve with their own Hessians")
        if state.curvatures == 0:
            return Choice(True, "nothing is known yet")
        if self.prefer == "rounds" and state.source != Source.EXACT:
            return Choice(True, "rounds count and not bytes")
        if state.curvatures == 1 and state.source not in (Source.EXACT, Source.ROOT, Source.SOME):
            return Choice(True, "the first one was made at the start")
        if state.source == Source.SOME and self.prefer == "balanced":
            most = LEFT_BY_FEW if state.clients <= FEW_SITES else LEFT_BY_MANY
            return Choice(bool(state.left > most), f"the last direction left {float(state.left):.2g} of the decrement")
        enough, patience = (MEAGRE if state.curvatures < 3 else STALLED), 1
        if self._few(state.coefficients.size) and state.source == Source.HESSIAN:
            enough, patience = FRESH, 0
        if state.source == Source.ROOT and self.prefer == "balanced":
            enough, patience = MEAGRE, int(state.curvatures == 1)
        observed = f"the last step contracted by {float(state.contraction):.2g}"
        if state.contraction <= enough:
            return Choice(False, observed)
        return Choice(True, f"{observed} only") if state.age >= patience else Choice(False, "the last one is a round old")

    def looks(self, state: AutoState) -> int:
        """How many products with the Hessian the direction of this round may cost."""
        if self.prefer != "balanced" or state.source in (Source.EXACT, Source.HESSIAN):
            return 0
        if state.source == Source.LOCAL:
            return int(state.contraction > LOOK_AFTER)
        return 1 if state.source == Source.ROOT else LOOKS

    def _few(self, features: int, quadratic: bool = False) -> bool:
        """Whether there are so few columns that Hessians are the cheapest metric."""
        return features <= (FEW_QUADRATIC if quadratic else FEW_COLUMNS).get(self.prefer, features)

    def next_source(
        self, state: AutoState, asked: bool, contraction: float, features: int, astray: bool
    ) -> tuple[Source, int, str]:
        """The source and the rows of the coming round, and the words where they change."""
        source, rows = Source(int(state.source)), int(state.rows)
        slow = contraction > SLOW
        words_of_some = "roots of some clients from the next round on, because"
        if source == Source.ROOT and asked and slow and state.curvatures + 1 >= ROOTS:
            return (
                Source.HESSIAN,
                rows,
                f"Hessians from the next round on, because a new root brought {contraction:.2g} only",
            )
        if source == Source.SOME and asked and slow and state.curvatures + 1 >= SOMES:
            return self._cheaper(Source.SKETCH, rows, features, f"new roots brought {contraction:.2g} only")
        if source == Source.LOCAL and astray:
            return Source.SOME, rows, f"{words_of_some} the clients' own Hessians have led too far"
        if source == Source.LOCAL and slow and state.slow_rounds + 1 >= SLOW_ROUNDS:
            return Source.SOME, rows, f"{words_of_some} {SLOW_ROUNDS} rounds in turn contracted by more than {SLOW}"
        if source == Source.SKETCH and asked and state.curvatures >= 3 and slow:
            return self._cheaper(source, 2 * rows, features, f"a new one contracted by {contraction:.2g} only")
        return source, rows, ""

    def _cheaper(self, source: Source, rows: int, features: int, words: str) -> tuple[Source, int, str]:
        """Sketches of so many rows, or the Hessian's root where two of them would be as dear."""
        if 2 * rows * self.sketch_bits > (features + 1) / 2 * BITS_OF_ENTRY:
            return Source.ROOT, rows, f"roots of Hessians from the next round on, because {words} and sketches cost as much"
        return source, rows, f"sketches of {rows} rows from the next round on, because {words}"
