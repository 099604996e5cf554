"""The sources of curvature, a class for each: what clients are asked, how answers are folded, when again, what next."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedns.core.clients import Handler
from fedns.core.cohort import Cohort
from fedns.core.messages.reducers import Reducer, mean
from fedns.core.types import FloatArray
from fedns.methods.auto import thresholds
from fedns.methods.auto.exchanges import ClientHalf
from fedns.methods.auto.folding import mean_of_small_ints, rounding_noise, sketched_gram
from fedns.methods.auto.metric import Metric
from fedns.methods.auto.rules import Choice, Rules, Seen
from fedns.methods.auto.state import AutoState
from fedns.numerics.linalg import LowRank


class Following(NamedTuple):
    """The source of the coming rounds, the rows of its sketches, and the words where something changes."""

    source: Source
    rows: int
    words: str = ""


def gradients_alone(client: ClientHalf) -> tuple[Handler, tuple[Reducer, ...]]:
    return client.change, (mean_of_small_ints("gradient"),)


class Source:
    """Where the metric comes from, and what that costs."""

    number: ClassVar[int]  # in states and records
    asked: ClassVar[str]  # what clients are asked for, in words, with the rows of sketches and the bits of Hessians
    never_changes: ClassVar[bool] = False  # the Hessian is the same everywhere
    sums_changes: ClassVar[bool] = False  # its metric is a sum of changes, which begins at nothing
    again_at_once: ClassVar[bool] = False  # the first one was made at the start, where a run hardly stays
    again_further_back: ClassVar[bool] = False  # it is asked for once more where a step was cut
    replaces_pairs: ClassVar[bool] = True  # what older pairs know it knows better
    applied_by_clients: ClassVar[bool] = False  # the clients apply the inverse, and send no curvature
    definite: ClassVar[bool] = False  # rounding leaves no direction with less curvature than the penalty
    products: ClassVar[int] = 0  # of the Hessian with a direction, with "balanced"

    def detail(self, state: AutoState, hessian_bits: int) -> int:
        """What a request says of the size of an answer."""
        return int(state.rows)

    def with_a_move(self, client: ClientHalf, scales: FloatArray) -> tuple[Handler, tuple[Reducer, ...]]:
        """What clients are asked for where they are told a move, and how gradients and curvatures are added up."""
        return gradients_alone(client)

    def learned(self, metric: Metric, found: list[Any], share: float, present: float, scales: FloatArray) -> Metric:
        """The metric with the curvatures that came with a move.

        share: of the weight of all, that of those who were asked. present: of theirs, that of those who have answered.
        """
        return metric

    def senders(self, cohort: Cohort, rules: Rules, state: AutoState) -> Cohort | None:
        """Who sends the root of its Hessian after a move; nobody."""
        return None

    def gradient_bits(self, rules: Rules, features: int, clients: int) -> int:
        return rules.bits_of_gradients(features, clients)

    def asks(self, rules: Rules, state: AutoState) -> Choice:
        """Whether to ask for curvature: at first, and when the last rounds have brought too little."""
        if state.curvatures == 0:
            return Choice(True, "nothing is known yet")
        if rules.prefer == "rounds" and not self.never_changes:
            return Choice(True, "rounds count and not bytes")
        if state.curvatures == 1 and self.again_at_once:
            return Choice(True, "the first one was made at the start")
        return self._asks_again(rules, state)

    def _asks_again(self, rules: Rules, state: AutoState) -> Choice:
        enough = thresholds.MEAGRE if state.curvatures < 3 else thresholds.STALLED
        return _after_a_contraction_above(enough, state, patience=1)

    def looks(self, rules: Rules, state: AutoState) -> int:
        """How many products with the Hessian the direction of this round may cost."""
        return self.products if rules.prefer == "balanced" else 0

    def following(self, rules: Rules, state: AutoState, seen: Seen) -> Following:
        return Following(self, int(state.rows))


class Hessians(Source):
    """Rounded changes of the clients' Hessians."""

    number, asked = 1, "asked for Hessians in {bits} bits"
    sums_changes = again_at_once = again_further_back = True

    def detail(self, state: AutoState, hessian_bits: int) -> int:
        return hessian_bits

    def with_a_move(self, client: ClientHalf, scales: FloatArray) -> tuple[Handler, tuple[Reducer, ...]]:
        hessian = mean_of_small_ints("hessian_triangle", "hessian_unit")
        return client.change_and_hessian, (mean_of_small_ints("gradient"), hessian, rounding_noise("hessian_unit"))

    def learned(self, metric: Metric, found: list[Any], share: float, present: float, scales: FloatArray) -> Metric:
        return metric.moved_by(share * found[0], share * (share * float(found[1])), scales)

    def _asks_again(self, rules: Rules, state: AutoState) -> Choice:
        if rules.few(state.coefficients.size):
            return _after_a_contraction_above(thresholds.FRESH, state, patience=0)
        return super()._asks_again(rules, state)


class ExactHessians(Source):
    """Hessians that no move changes, sent once in full."""

    number, asked = 4, "asked for the Hessians in full"
    never_changes = sums_changes = True

    def with_a_move(self, client: ClientHalf, scales: FloatArray) -> tuple[Handler, tuple[Reducer, ...]]:
        return client.change_exactly, (mean("gradient"), mean("hessian_triangle"))

    def learned(self, metric: Metric, found: list[Any], share: float, present: float, scales: FloatArray) -> Metric:
        return metric.moved_by(share * found[0], 0.0, scales)


class OwnHessians(Source):
    """The clients' own Hessians, which half of them solve with: nothing of them is sent."""

    number, asked = 2, "asked clients to solve"
    applied_by_clients = True
    products = 1

    def asks(self, rules: Rules, state: AutoState) -> Choice:
        return Choice(False, "clients solve with their own Hessians")

    def looks(self, rules: Rules, state: AutoState) -> int:
        return super().looks(rules, state) if state.contraction > thresholds.LOOK_AFTER else 0

    def following(self, rules: Rules, state: AutoState, seen: Seen) -> Following:
        words = "roots of some clients from the next round on, because"
        if seen.astray:
            return Following(SOME_ROOTS, int(state.rows), f"{words} the clients' own Hessians have led too far")
        slow, rounds = thresholds.SLOW, thresholds.SLOW_ROUNDS
        if seen.contraction > slow and state.slow_rounds + 1 >= rounds:
            return Following(SOME_ROOTS, int(state.rows), f"{words} {rounds} rounds in turn contracted by more than {slow}")
        return super().following(rules, state, seen)


class SomeRoots(Source):
    """The triangular roots of the Hessians of a few clients, drawn by weight and in turn, averaged over rounds."""

    number, asked = 6, f"asked some clients for the roots of their Hessians in {thresholds.ROOT_BITS} bits"
    replaces_pairs = False
    products = thresholds.LOOKS

    def senders(self, cohort: Cohort, rules: Rules, state: AutoState) -> Cohort | None:
        return cohort.part(rules.senders(cohort.weights, state.coefficients.size, int(state.curvatures)))

    def gradient_bits(self, rules: Rules, features: int, clients: int) -> int:
        if rules.gradient_bits is None and rules.prefer == "balanced" and features <= thresholds.ROOT_COLUMNS["balanced"]:
            return thresholds.BITS_BESIDE_SOME
        return super().gradient_bits(rules, features, clients)

    def most_left(self, state: AutoState) -> float:
        """What a direction of `balanced` may leave of the decrement."""
        return thresholds.LEFT_BY_FEW if state.clients <= thresholds.FEW_SITES else thresholds.LEFT_BY_MANY

    def _asks_again(self, rules: Rules, state: AutoState) -> Choice:
        if rules.prefer != "balanced":
            return super()._asks_again(rules, state)
        words = f"the last direction left {float(state.left):.2g} of the decrement"
        return Choice(bool(state.left > self.most_left(state)), words)

    def following(self, rules: Rules, state: AutoState, seen: Seen) -> Following:
        if rules.roots_of_all_pay(state, seen, self.gradient_bits(rules, state.coefficients.size, int(state.clients))):
            words = f"roots of all Hessians from the next round on, because {_left(state, seen)}"
            return Following(ROOTS, int(state.rows), words)
        if _slow(seen) and state.curvatures + 1 >= thresholds.SOMES:
            return _sketches_or_roots(rules, int(state.rows), state, seen)
        return Following(self, int(state.rows))


class Roots(SomeRoots):
    """The roots of all clients' Hessians."""

    number, asked = 5, f"asked for the roots of Hessians in {thresholds.ROOT_BITS} bits"
    replaces_pairs = True
    products = 1

    def senders(self, cohort: Cohort, rules: Rules, state: AutoState) -> Cohort | None:
        return cohort

    def gradient_bits(self, rules: Rules, features: int, clients: int) -> int:
        return thresholds.BITS_BESIDE_ROOTS[rules.prefer] if rules.gradient_bits is None else rules.gradient_bits

    def most_left(self, state: AutoState) -> float:
        return thresholds.LEFT_BY_ALL

    def following(self, rules: Rules, state: AutoState, seen: Seen) -> Following:
        poor, words = _slow(seen), _contracted(seen)
        if rules.prefer == "balanced":  # steps that are cut contract by little with the best roots
            poor = seen.asked and min(seen.left, float(state.left)) > thresholds.LEFT_BY_ALL
            words = _left(state, seen)
        if poor and state.curvatures + 1 >= thresholds.ROOTS:
            return Following(HESSIANS, int(state.rows), f"Hessians from the next round on, because {words}")
        return Following(self, int(state.rows))


class Sketches(Source):
    """Sketches of the roots of all clients' Hessians, averaged over rounds."""

    number, asked = 3, "sketched {rows} rows at a client of mean weight"
    again_at_once = definite = True
    replaces_pairs = False
    products = thresholds.LOOKS

    def with_a_move(self, client: ClientHalf, scales: FloatArray) -> tuple[Handler, tuple[Reducer, ...]]:
        return client.change_and_sketch, (mean_of_small_ints("gradient"), sketched_gram(scales))

    def learned(self, metric: Metric, found: list[Any], share: float, present: float, scales: FloatArray) -> Metric:
        gram = found[0]
        if isinstance(gram, LowRank):
            return metric.averaged_with(LowRank(gram.rows / np.sqrt(present)))
        return metric.averaged_with(share * gram / (share * present))

    def following(self, rules: Rules, state: AutoState, seen: Seen) -> Following:
        rows = int(state.rows)
        if not _slow(seen) or state.curvatures < 3:
            return Following(self, rows)
        if state.coefficients.size <= thresholds.WIDE:
            return _sketches_or_roots(rules, 2 * rows, state, seen)
        grown = min(2 * rows, max(rows, thresholds.MOST_SKETCHED_ROWS // int(state.clients)))
        return _sketches(grown, _contracted(seen)) if grown > rows else Following(self, rows)


HESSIANS, EXACT_HESSIANS, OWN_HESSIANS = Hessians(), ExactHessians(), OwnHessians()
SOME_ROOTS, ROOTS, SKETCHES = SomeRoots(), Roots(), Sketches()
SOURCES = {source.number: source for source in (HESSIANS, EXACT_HESSIANS, OWN_HESSIANS, SOME_ROOTS, ROOTS, SKETCHES)}


def first_source(rules: Rules, features: int, weights: FloatArray, quadratic: bool) -> Source:
    """Where the metric comes from at first."""
    if rules.few(features, quadratic):
        return hessians_for(quadratic)
    if features > thresholds.WIDE:
        return SKETCHES
    few = weights.size <= thresholds.FEW_SITES
    if few and features > thresholds.ROOT_COLUMNS.get(rules.prefer, 0):
        return OWN_HESSIANS
    rows = float(weights[rules.senders(weights / weights.sum(), features, 0)].sum())
    if rows >= thresholds.FEWEST_ROWS_OF_SENDERS * features:
        return SOME_ROOTS
    return OWN_HESSIANS if few else SKETCHES


def hessians_for(quadratic: bool) -> Source:
    return EXACT_HESSIANS if quadratic else HESSIANS


def _after_a_contraction_above(enough: float, state: AutoState, patience: int) -> Choice:
    """Ask again where the last round has brought too little, and the last curvature is older than this."""
    observed = f"the last step contracted by {float(state.contraction):.2g}"
    if state.contraction <= enough:
        return Choice(False, observed)
    return Choice(True, f"{observed} only") if state.age >= patience else Choice(False, "the last one is a round old")


def _slow(seen: Seen) -> bool:
    """Whether a new curvature does not serve."""
    return seen.asked and seen.contraction > thresholds.SLOW


def _contracted(seen: Seen) -> str:
    return f"a new one contracted by {seen.contraction:.2g} only"


def _left(state: AutoState, seen: Seen) -> str:
    return f"two directions left {float(state.left):.2g} and {seen.left:.2g} of the decrement"


def _sketches(rows: int, words: str) -> Following:
    return Following(SKETCHES, rows, f"sketches of {rows} rows from the next round on, because {words}")


def _sketches_or_roots(rules: Rules, rows: int, state: AutoState, seen: Seen) -> Following:
    """Sketches of so many rows, or the Hessians' roots where two of them would be as dear."""
    words = _contracted(seen)
    if 2 * rows * rules.bits_of_sketches <= (state.coefficients.size + 1) / 2 * thresholds.BITS_OF_ENTRY:
        return _sketches(rows, words)
    dear = f"roots of Hessians from the next round on, because {words} and sketches cost as much"
    return Following(ROOTS, rows, dear)
