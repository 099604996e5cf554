"""Asking sites about coefficients: the request that most questions share, and what it costs where a site refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fedns.core.clients import Clients, Handler
from fedns.core.cohort import Cohort
from fedns.core.errors import FednsError
from fedns.core.messages import Message, Payload, as_batch, joined_batches, wire
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.federation.protocol.absence import SitesLost

M = TypeVar("M", bound=Message)
REFUSALS = (FednsError, SitesLost)  # a question that is refused costs only the figures it was for
UNANSWERED = (*REFUSALS, ArithmeticError, ValueError)  # numbers, too, can leave what a message may hold


class Point(Message):
    """Coefficients to look at; never rounded."""

    coefficients: Payload = wire("features", dtype="float64")


def each_client(clients: Clients, answer: Callable[[Shards], M]) -> M:
    """The answers of all clients as one batch, made from the rows of one after another."""
    return as_batch([answer(clients.shards.select([one])) for one in range(clients.shards.num_clients)])


def ask_all(cohort: Cohort, handler: Handler, w: FloatArray) -> Any:
    """The answers of all sites at w as one batch."""
    return joined_batches([batch for _, batch in cohort.ask(handler, Point(coefficients=w))])


def ask_one(cohort: Cohort, site: int, handler: Handler, request: Message) -> Any:
    """The answer of one site, a batch of one."""
    ((_, batch),) = cohort.part(np.array([site])).ask(handler, request)
    return batch
