"""The hyper-parameters of `auto`, all of which may be left alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedns.core.algorithm import Algorithm, Outcome
from fedns.core.clients import Handler
from fedns.core.cohort import Cohort
from fedns.methods.auto.exchanges import ClientHalf
from fedns.methods.auto.rules import Rules
from fedns.methods.auto.sources import first_source
from fedns.methods.auto.state import AutoState
from fedns.methods.auto.turn import Turn
from fedns.models.problem import Problem


@dataclass(frozen=True)
class Auto(Rules, Algorithm):
    """w <- w - B g, where everything is sent in a few bits and B is learnt as cheaply as the run allows.

    Clients send the change of their gradient since they last sent it, in `gradient_bits` bits a number rounded at random,
    with the change of their loss. A rounding error is a fraction of the change, so it shrinks with the steps. The unit step
    is taken, and the next message's losses confirm it. Only a step that failed costs an exchange of its own, or a long one
    where losses have no bound, as Poisson's: clients then tell their losses along it before it is taken. B is the inverse of
    a metric, corrected by the server's BFGS pairs, which are applied anew to every new metric. The metric is

    - the Hessian, as rounded changes, where there are few columns or prefer="rounds"; in full and once where the loss has
      the same curvature everywhere;
    - with up to 16 clients the mean of the inverse Hessians of half of them, drawn by weight and in turn, applied by them to
      the one vector that BFGS asks for;
    - else triangular roots, in four bits, of the Hessians of a few clients, drawn likewise and averaged over rounds, asked
      for again when a round has brought too little; with prefer="balanced" also with few clients, up to 60 columns;
    - where these are too few rows or do not serve, the mean of sketches of all clients in `sketch_bits` bits; with
      prefer="balanced" the roots of all, where the directions show that they are the shorter way.

    With prefer="balanced" the clients multiply the direction by their Hessians before it is taken: one more pair, exact
    where the run is, for as many bytes as a gradient and no further round.

    Every record of the history has a note that says what was chosen in its round, and why.

    - prefer: what to save: "bytes", "rounds", or "balanced" between them.
    - gradient_bits: of each number of a gradient; as `prefer` has it unless given, and so are the next three.
    - sketch_bits: of each number of a sketch.
    - hessian_bits: of each number of a Hessian; with prefer="rounds" 10 to 16, by the penalty, the columns and the clients.
    - direction_bits: of each number of a direction.
    """

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "chooses everything itself: rounded changes of gradients, the cheapest curvature that serves"
    paper: ClassVar[str] = "this library, docs/auto.md"
    uplink: ClassVar[str] = "bits M / 32 + 3, curvature when needed"
    theory: ClassVar[str] = "log 1/δ; superlinear with Hessians"
    reports: ClassVar[tuple[str, ...]] = ("curvature", "newton_decrement", "source", "step_size")
    ends_by_decrement: ClassVar[bool] = True
    heterogeneous: ClassVar[str] = "-"
    asks_for_all: ClassVar[bool] = False
    takes_any_width: ClassVar[bool] = True
    draws_random_numbers: ClassVar[bool] = True

    @property
    def client(self) -> ClientHalf:
        return ClientHalf(self.bits_of_sketches)

    def handlers(self) -> tuple[Handler, ...]:
        return self.client.handlers()

    def init(self, problem: Problem, cohort: Cohort) -> AutoState:
        clients, quadratic = cohort.num_clients, problem.loss.curvature_is_constant
        source = first_source(self, cohort.num_features, cohort.total_weights, quadratic).number
        rows = self.rows_of_sketches(clients)
        return AutoState.first(cohort, source=source, rows=rows, contraction=1.0, clients=clients)

    def round(self, problem: Problem, state: AutoState, cohort: Cohort) -> Outcome:
        turn = Turn(self.client, self, problem, cohort, state)
        turn.learn_scales()
        turn.take_the_last_step()
        turn.step_back_if_needed()
        turn.learn_roots()
        turn.remember_pair()
        return turn.next_step()
