"""What clients remember between rounds."""

import numpy as np
import pytest
from tests.conftest import make_shards

from fedns.core.clients import ClientMemory, Clients

IDS = np.array([2, 5, 7])


@pytest.fixture
def clients():
    """These clients, by their places, over one memory of all."""
    memory, shards = ClientMemory(IDS), make_shards(9, sizes=(3, 3, 3))
    return lambda *places: Clients(shards.select(list(places)), IDS[list(places)], 0, 1, memory)


def test_what_was_not_stored_is_zero(clients):
    np.testing.assert_array_equal(clients(0, 1).read_copy("a", 3), np.zeros((2, 3)))
    clients(1).remember("a", np.ones((1, 3)))
    np.testing.assert_array_equal(clients(0, 1, 2).read_copy("a", 3), [[0, 0, 0], [1, 1, 1], [0, 0, 0]])


def test_arrays_of_different_lengths_are_filled_up_with_zeros(clients):
    clients(0).remember("a", np.ones((1, 2, 2)))
    clients(1, 2).remember("a", np.full((2, 3, 2), 2.0))  # longer: what was there before stays
    np.testing.assert_array_equal(clients(0).read_copy("a", 1, 2), [[[1, 1], [1, 1], [0, 0]]])
    clients(1).remember("a", np.full((1, 1, 2), 3.0))  # shorter: nothing older shows through
    np.testing.assert_array_equal(clients(1).read_copy("a", 4, 2), [[[3, 3], [0, 0], [0, 0], [0, 0]]])
    np.testing.assert_array_equal(clients(2).read_copy("a", 3, 2), np.full((1, 3, 2), 2.0))


def test_arrays_are_changed_in_place(clients):
    first, last = clients(0, 2).in_place("a", 2)
    first += 1.0
    last += 2.0
    np.testing.assert_array_equal(clients(0, 1, 2).read_copy("a", 2), [[1, 1], [0, 0], [2, 2]])
    (again,) = clients(2).in_place("a", 2)
    assert np.shares_memory(again, clients(2).memory.arrays["a"])
    np.testing.assert_array_equal(again, [2, 2])
