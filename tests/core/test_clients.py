"""What clients remember between rounds."""

import numpy as np

from fedns.core.clients import ClientMemory

IDS = np.array([2, 5, 7])


def test_what_was_not_stored_is_zero():
    memory = ClientMemory(IDS)
    np.testing.assert_array_equal(memory.recall("a", IDS[:2], (3,)), np.zeros((2, 3)))
    memory.remember("a", IDS[1:2], np.ones((1, 3)))
    np.testing.assert_array_equal(memory.recall("a", IDS, (3,)), [[0, 0, 0], [1, 1, 1], [0, 0, 0]])


def test_arrays_of_different_lengths_are_filled_up_with_zeros():
    memory = ClientMemory(IDS)
    memory.remember("a", IDS[:1], np.ones((1, 2, 2)))
    memory.remember("a", IDS[1:], np.full((2, 3, 2), 2.0))  # longer: what was there before stays
    np.testing.assert_array_equal(memory.recall("a", IDS[:1], (1, 2)), [[[1, 1], [1, 1], [0, 0]]])
    memory.remember("a", IDS[1:2], np.full((1, 1, 2), 3.0))  # shorter: nothing older shows through
    np.testing.assert_array_equal(memory.recall("a", IDS[1:2], (4, 2)), [[[3, 3], [0, 0], [0, 0], [0, 0]]])
    np.testing.assert_array_equal(memory.recall("a", IDS[2:], (3, 2)), np.full((1, 3, 2), 2.0))


def test_what_is_held_is_changed_in_place():
    memory = ClientMemory(IDS)
    first, last = memory.held("a", IDS[[0, 2]], (2,))
    first += 1.0
    last += 2.0
    np.testing.assert_array_equal(memory.recall("a", IDS, (2,)), [[1, 1], [0, 0], [2, 2]])
    (again,) = memory.held("a", IDS[2:], (2,))
    assert np.shares_memory(again, memory.arrays["a"])
    np.testing.assert_array_equal(again, [2, 2])
