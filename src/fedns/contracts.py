"""The contracts: all that a method, loss, penalty, sketch or observer of your own derives from or is given."""

from fedns.core.algorithm import Algorithm, Outcome, State
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import MessageError
from fedns.core.history import Observer, Record
from fedns.core.messages import Discloses, Message, Payload, Ragged, reducers, wire
from fedns.core.problem import Penalty
from fedns.core.shards import Shards
from fedns.methods.searches import Search
from fedns.models.family import Family
from fedns.models.loss import Loss
from fedns.models.maps.feature_map import FeatureMap
from fedns.numerics.rng import random_bits
from fedns.sketches import Sketch

__all__ = [
    "Algorithm", "Clients", "Cohort", "Discloses", "Family", "FeatureMap", "Handler", "Loss", "Message", "MessageError",
    "Observer", "Outcome", "Payload", "Penalty", "Ragged", "Record", "Search", "Shards", "Sketch", "State", "on_client",
    "random_bits", "reducers", "wire",
]  # fmt: skip
