"""Small integers in few bits."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from fedns.numerics.coding import coded_bytes, decode_integers, encode_integers

INTEGERS = st_numpy.arrays(np.int16, st.integers(0, 60), elements=st.integers(-(2**15), 2**15 - 1))


@given(INTEGERS)
def test_what_is_written_is_read_back(values):
    data = encode_integers(values)
    read, used = decode_integers(memoryview(data + b"more"), values.size)
    assert (read == values).all() and used == len(data)


@given(st_numpy.arrays(np.int16, st.tuples(st.just(3), st.integers(1, 60)), elements=st.integers(-(2**15), 2**15 - 1)))
def test_lengths_of_a_batch_are_those_of_its_messages(values):
    assert coded_bytes(values).tolist() == [len(encode_integers(row)) for row in values]
    offsets = np.array([0, 2, 2, 3])
    parts = [values[a:b] for a, b in itertools.pairwise(offsets)]
    assert coded_bytes(values, offsets).tolist() == [len(encode_integers(part)) for part in parts]


def test_numbers_that_are_mostly_zero_take_about_a_bit_and_a_half():
    values = np.random.default_rng(0).choice([-1, 0, 0, 0, 0, 1], size=6000).astype(np.int16)
    assert len(encode_integers(values)) < 1.6 * 6000 / 8


def test_parts_of_different_sizes_have_parameters_of_their_own():
    large = np.random.default_rng(0).integers(-500, 500, size=800).astype(np.int16)
    values = np.concatenate([large, np.zeros(3200, np.int16)])
    assert len(encode_integers(values)) < len(encode_integers(large)) + 4 * 3200 / 16 / 8 + 60
    read, used = decode_integers(memoryview(encode_integers(values)), values.size)
    assert (read == values).all() and used == len(encode_integers(values))


@given(st.binary(max_size=40), st.integers(0, 60))
def test_forged_bytes_give_integers_or_one_kind_of_error(data, count):
    try:
        read, used = decode_integers(memoryview(data), count)
    except ValueError:
        return
    assert read.shape == (count,) and used <= len(data)


def test_a_run_of_zeros_without_an_end_is_refused():
    with pytest.raises(ValueError, match="cut short"):
        decode_integers(memoryview(bytes([0, 0, 0, 0])), 1)
    with pytest.raises(ValueError, match="parameter"):
        decode_integers(memoryview(bytes([77, 255])), 1)
