import numpy as np
import pytest
import scipy.linalg

from fedns.numerics.cpu.hadamard import parity, transform_rows
from fedns.sketches.srht import hadamard_entries, next_power_of_two


@pytest.mark.parametrize("length", [1, 2, 4, 8, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("width", [8, 24])
def test_transform_equals_the_matrix(length, width):
    block = np.random.default_rng(0).normal(size=(length, width))
    expected = scipy.linalg.hadamard(length) @ block
    transform_rows(block, 1)
    np.testing.assert_allclose(block, expected, atol=1e-11)


def test_written_out_entries_equal_scipys_matrix():
    index = np.arange(64)
    np.testing.assert_array_equal(hadamard_entries(index, index), scipy.linalg.hadamard(64))


def test_parity_counts_bits():
    values = [0, 1, 2, 3, 7, 255, 2**40 + 1, 2**62]
    assert [parity(v) for v in values] == [v.bit_count() % 2 for v in values]


def test_next_power_of_two():
    assert [next_power_of_two(n) for n in (1, 2, 3, 4, 5, 1023, 1024, 1025)] == [1, 2, 4, 4, 8, 1024, 1024, 2048]
