"""A diagnostic: Brier's score, the mean squared distance between an event, 1 or 0, and its predicted probability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fedns.contracts import Clients, Handler, Message, Payload, on_client, wire
from fedns.studies.diagnostics.by_site import BySite
from fedns.studies.questions.asking import Point
from fedns.studies.questions.diagnostic import Diagnostic


class SquaredErrors(Message):
    """A client's mean squared distance between outcomes and predictions, over rows as they are weighted."""

    mean: Payload = wire(dtype="float64", discloses="loss")
    weight: Payload = wire(dtype="float64", discloses="count")


@dataclass(frozen=True)
class Score:
    mean: float
    weight: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


class Scores(BySite[Score]):
    @property
    def total(self) -> Score:
        weight = sum(one.weight for one in self.sites.values())
        return Score(sum(one.mean * one.weight for one in self.sites.values()) / weight, weight)

    def table(self) -> list[list[str]]:
        return [["Brier's score", "mean"], *([name, f"{one.mean:.4f}"] for name, one in self.lines())]


@dataclass(frozen=True)
class Brier(Diagnostic[Score]):
    name: ClassVar[str] = "brier"
    result = Scores

    @classmethod
    def about(cls, model: Any) -> Mapping[str, Self]:
        return {"": cls(model)} if model.family.name == "binomial" else {}

    @property
    def handler(self) -> Handler:
        return self.look_at_errors

    @on_client(Point, SquaredErrors)
    def look_at_errors(self, problem: Any, clients: Clients, request: Point) -> SquaredErrors:
        """Sum squared errors over the rows of each client."""
        sums = np.zeros((clients.shards.num_clients, 2))
        for client, found in enumerate(sums):
            for block in problem.design_blocks(request.coefficients, clients.shards.select([client])):
                errors = self.model.family.outcome(block.targets) - self.model.family.mean(block.margins)
                found += block.weights @ errors**2, block.weights.sum()
        return SquaredErrors(sums[:, 0] / sums[:, 1], sums[:, 1])

    def figures(self, batch: Any) -> list[Score | None]:
        return [Score(float(mean), float(weight)) for mean, weight in zip(batch.mean, batch.weight, strict=True)]
