"""What `auto` decides, and the words for it: where curvature comes from, when it is asked for again, when to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Needs
from fedns.core.types import FloatArray
from fedns.methods.auto.state import AutoState, Source

FEW_SITES = 16  # up to here half of the sites solve with their own Hessians, above a few send roots of theirs
# Up to so many columns the Hessian itself; in full and once where it is the same everywhere. Each is where the least of
# bytes + price x exchanges lies, with a price of 256 bytes for "balanced" and of none for "bytes".
FEW_COLUMNS = {"bytes": 16, "balanced": 24}
FEW_QUADRATIC = {"bytes": 16, "balanced": 40}
# Beyond so many columns nothing of the size of their square is made, neither at the server nor at a client: sketches and
# pairs are all there is. A whole matrix would take 134 MB here and grow with the square.
WIDE = 4096
MOST_SKETCHED_ROWS = 240  # of all sites together, where columns are more than that
SKETCHED_ROWS = 120  # of all sites together, in one sketch
FEWEST_ROWS, MOST_ROWS = 3, 16  # of one site, at first
# A decrement that falls by less than this factor in a round: a third curvature is asked for, another one, another source.
MEAGRE, STALLED, SLOW = 0.3, 0.6, 0.5
FRESH = 0.2  # with few columns, a new Hessian unless the last step contracted by this
GRADIENT_BITS = {"bytes": 6, "balanced": 8, "rounds": 14}
BITS_OF_FEW = {"bytes": 8, "balanced": 10, "rounds": 14}  # at least, where few clients' rounding errors are averaged
HESSIAN_BITS = {"bytes": 10, "balanced": 14, "rounds": 16}  # at most for "rounds"
FEWEST_HESSIAN_BITS = 10
NOISE_OF_HESSIANS = 0.3  # in the least curvature that the penalty leaves, for "rounds"
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
# Of the decrement by a direction: more, and other roots are asked for: of some of few sites, of some of many, of all.
LEFT_BY_FEW, LEFT_BY_MANY, LEFT_BY_ALL = 0.2, 0.1, 0.5
BITS_OF_SHARE = 8  # a column: of the roots of some, the mean over all sites
HEADER = 16  # bytes of a message beside its numbers, about
NEWTON = 5  # rounds that a run takes from its third on where the metric is good, about
WHOLE_NEWTON = 10  # rounds of a run with Hessians in every round where columns are badly scaled, about
AWAY = 1.0  # how often the squared decrement must still fall by a factor e for a run to be worth another way
MOST_LEFT = 0.9  # by two directions, where a prediction is made from it
SOLVERS = 0.5  # of the sites, by weight, solve with their own Hessians
SOMES = 4  # roots of some before sketches take over, where a new one still contracts by more than SLOW
ROOTS = 6  # before Hessians take over, where a new one still contracts by more than SLOW
PAIRS = 30  # of moves and gradient changes that the server keeps
GOLDEN = 0.618  # multiples of it, modulo one, lie as far apart as they can
Positions = NDArray[np.int64]


def drawn(weights: FloatArray, count: int, turn: int) -> Positions:
    """Positions by systematic sampling: evenly spaced points on the line of all weights, moved on from turn to turn."""
    points = (np.arange(count) + (0.5 + GOLDEN * turn) % 1.0) / count
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
class Rules:
    """The decisions of a run.

    - prefer: "bytes", "balanced" or "rounds".
    - gradient_bits: of a number of a gradient; None lets the rules choose.
    - hessian_bits: of a number of a Hessian; likewise.
    - sketch_bits: of a number of a sketch.
    - direction_bits: of a number of a direction.
    """

    prefer: str
    gradient_bits: int | None
    hessian_bits: int | None
    sketch_bits: int
    direction_bits: int

    def source(self, features: int, weights: FloatArray, quadratic: bool) -> Source:
        """Where the metric comes from at first."""
        if self._few(features, quadratic):
            return Source.EXACT if quadratic else Source.HESSIAN
        if features > WIDE:
            return Source.SKETCH
        few = weights.size <= FEW_SITES
        if few and features > ROOT_COLUMNS.get(self.prefer, 0):
            return Source.LOCAL
        rows = float(weights[self.senders(weights / weights.sum(), features, 0)].sum())
        if rows < FEWEST_ROWS_OF_SENDERS * features:
            return Source.LOCAL if few else Source.SKETCH
        return Source.SOME

    def needs(self, features: int, clients: int) -> Needs:
        """The memory of a run: matrices, or their roots where there are too many columns for those."""
        square, vectors = float(features) ** 2, (4.0 * PAIRS + 40.0) * features
        if self._few(features):
            return Needs(5.0 * square + vectors, client=4.0 * square + vectors, kept=0.5 * square + 4.0 * features)
        if features <= WIDE:
            return Needs(5.0 * square + vectors, client=3.0 * square + vectors, kept=4.0 * features)
        rows = float(self.rows(clients))
        total = max(rows * clients, MOST_SKETCHED_ROWS)
        matrix = 12.0 * total * features + 3.0 * total**2 if total < features else 5.0 * square
        return Needs(matrix + vectors, client=32.0 * rows * features + vectors, kept=4.0 * features)

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

    def bits_of_hessians(self, largest: float, least: float, averaged: float) -> int:
        """So many that rounding errors are a fraction of the least curvature; fewer where those of many sites are averaged.

        Errors of entries up to `largest`, averaged over sites of weights p, make a matrix whose eigenvalues are up to the
        unit times sqrt(M sum p^2), which is `averaged`.
        """
        if self.hessian_bits is not None or self.prefer != "rounds":
            return self.hessian_bits or HESSIAN_BITS[self.prefer]
        levels_needed = largest * averaged / (NOISE_OF_HESSIANS * least) if least > 0 else np.inf
        fewest, most = FEWEST_HESSIAN_BITS, HESSIAN_BITS["rounds"]
        return int(np.clip(np.ceil(np.log2(min(levels_needed, 2.0**most))) + 1, fewest, most))

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
        if self.prefer == "balanced" and state.source in (Source.SOME, Source.ROOT):
            some = LEFT_BY_FEW if state.clients <= FEW_SITES else LEFT_BY_MANY
            most = some if state.source == Source.SOME else LEFT_BY_ALL
            return Choice(bool(state.left > most), f"the last direction left {float(state.left):.2g} of the decrement")
        enough, patience = (MEAGRE if state.curvatures < 3 else STALLED), 1
        if self._few(state.coefficients.size) and state.source == Source.HESSIAN:
            enough, patience = FRESH, 0
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

    def cost_of_hessians(self, features: int, bits: int, quadratic: bool) -> float:
        """Bytes of a client for a whole run with Hessians in every round; with one in full where none changes it."""
        entries = features * (features + 1) / 2
        if quadratic:
            return 4.0 * (entries + features) + HEADER
        return WHOLE_NEWTON * ((bits * entries + GRADIENT_BITS["rounds"] * features) / 8 + HEADER)

    def gives_up(self, state: AutoState, seen: Seen) -> Choice:
        """Whether to do as "rounds" does from now on: what was to save bytes has cost as many as Hessians would have.

        A run may be one of those for which neither roots, sketches nor the clients' own Hessians serve, and nothing else
        says so while every round brings a little. Who changes when as much is spent as the other way would have cost never
        spends more than about twice the cheaper of the two.
        """
        dear = self.prefer != "rounds" and seen.spent > seen.hessians and seen.to_go > AWAY
        taken = dear and not self._few(state.coefficients.size) and state.coefficients.size <= WIDE
        words = f"{seen.spent:.0f} bytes a client are spent, as many as Hessians in every round would have cost"
        return Choice(taken, f"Hessians in every round from the next one on, because {words}")

    def _few(self, features: int, quadratic: bool = False) -> bool:
        """Whether there are so few columns that Hessians are the cheapest metric."""
        return features <= (FEW_QUADRATIC if quadratic else FEW_COLUMNS).get(self.prefer, features)

    def next_source(self, state: AutoState, seen: Seen) -> tuple[Source, int, str]:
        """The source and the rows of the coming round, and the words where they change."""
        source, rows, features = Source(int(state.source)), int(state.rows), state.coefficients.size
        asked, contraction, astray, *_ = seen
        slow, words = contraction > SLOW, f"a new one contracted by {contraction:.2g} only"
        directions = f"two directions left {float(state.left):.2g} and {seen.left:.2g} of the decrement"
        if source == Source.ROOT and self.prefer == "balanced":  # steps that are cut contract by little with the best roots
            slow, words = min(seen.left, float(state.left)) > LEFT_BY_ALL, directions
        words_of_some = "roots of some clients from the next round on, because"
        if source == Source.ROOT and asked and slow and state.curvatures + 1 >= ROOTS:
            return Source.HESSIAN, rows, f"Hessians from the next round on, because {words}"
        if source == Source.SOME and self._all_pay(state, seen):
            return Source.ROOT, rows, f"roots of all Hessians from the next round on, because {directions}"
        if source == Source.SOME and asked and slow and state.curvatures + 1 >= SOMES:
            return self._cheaper(Source.SKETCH, rows, features, words)
        if source == Source.LOCAL and astray:
            return Source.SOME, rows, f"{words_of_some} the clients' own Hessians have led too far"
        if source == Source.LOCAL and slow and state.slow_rounds + 1 >= SLOW_ROUNDS:
            return Source.SOME, rows, f"{words_of_some} {SLOW_ROUNDS} rounds in turn contracted by more than {SLOW}"
        if source == Source.SKETCH and asked and state.curvatures >= 3 and slow:
            if features > WIDE:
                most = max(rows, MOST_SKETCHED_ROWS // int(state.clients))
                grown = min(2 * rows, most)
                said = f"sketches of {grown} rows from the next round on, because {words}" if grown > rows else ""
                return source, grown, said
            return self._cheaper(source, 2 * rows, features, words)
        return source, rows, ""

    def _all_pay(self, state: AutoState, seen: Seen) -> bool:
        """Whether the roots of all from now on make rounds x bytes less than going on does.

        Two products are two steps of conjugate gradients, so that a round leaves about what two directions leave in turn.
        """
        if self.prefer != "balanced" or state.rounds < 2:  # the first direction comes from the start, and says little
            return False
        features, so_far = state.coefficients.size, int(state.rounds) + 1
        gradient = self.bits_of_gradients(features, int(state.clients), Source(int(state.source)))
        now = (gradient + LOOKS * PRODUCT_BITS + BITS_OF_SHARE) * features / 8 + (LOOKS + 2) * HEADER
        entries = features * (features + 1) / 2
        roots = BITS_OF_ENTRY * entries + (BITS_BESIDE_ROOTS[self.prefer] + PRODUCT_BITS) * features
        rounds = seen.to_go / -np.log(np.clip(seen.left * float(state.left), 1e-6, MOST_LEFT))
        going_on = (so_far + rounds) ** 2 * now
        return bool(going_on > (so_far + NEWTON) * (so_far * now + NEWTON * (roots / 8 + 3 * HEADER)))

    def _cheaper(self, source: Source, rows: int, features: int, words: str) -> tuple[Source, int, str]:
        """Sketches of so many rows, or the Hessian's root where two of them would be as dear."""
        if 2 * rows * self.sketch_bits > (features + 1) / 2 * BITS_OF_ENTRY:
            return Source.ROOT, rows, f"roots of Hessians from the next round on, because {words} and sketches cost as much"
        return source, rows, f"sketches of {rows} rows from the next round on, because {words}"
