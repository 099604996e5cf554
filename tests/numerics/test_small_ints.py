"""Small integers in few bits."""

import hashlib
import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from fedns.numerics.small_ints import decode_small_ints, encode_small_ints, small_ints_sizes

INTEGERS = st_numpy.arrays(np.int16, st.integers(0, 60), elements=st.integers(-(2**15), 2**15 - 1))


@given(INTEGERS)
def test_what_is_written_is_read_back(values):
    data = encode_small_ints(values)
    read, used = decode_small_ints(memoryview(data + b"more"), values.size)
    assert (read == values).all() and used == len(data)


@given(st_numpy.arrays(np.int16, st.tuples(st.just(3), st.integers(1, 60)), elements=st.integers(-(2**15), 2**15 - 1)))
def test_lengths_of_a_batch_are_those_of_its_messages(values):
    assert small_ints_sizes(values).tolist() == [len(encode_small_ints(row)) for row in values]
    offsets = np.array([0, 2, 2, 3])
    parts = [values[a:b] for a, b in itertools.pairwise(offsets)]
    assert small_ints_sizes(values, offsets).tolist() == [len(encode_small_ints(part)) for part in parts]


def test_numbers_that_are_mostly_zero_take_about_a_bit_and_a_half():
    values = np.random.default_rng(0).choice([-1, 0, 0, 0, 0, 1], size=6000).astype(np.int16)
    assert len(encode_small_ints(values)) < 1.6 * 6000 / 8


def test_parts_of_different_sizes_have_parameters_of_their_own():
    large = np.random.default_rng(0).integers(-500, 500, size=800).astype(np.int16)
    values = np.concatenate([large, np.zeros(3200, np.int16)])
    assert len(encode_small_ints(values)) < len(encode_small_ints(large)) + 4 * 3200 / 16 / 8 + 60
    read, used = decode_small_ints(memoryview(encode_small_ints(values)), values.size)
    assert (read == values).all() and used == len(encode_small_ints(values))


def mostly_zero(size, share, seed):
    random = np.random.default_rng(seed)
    return np.where(random.random(size) < share, random.integers(-(2**15), 2**15, size), 0).astype(np.int16)


@pytest.mark.parametrize("size", [16 * 1024 - 1, 16 * 1024 + 1, 100_000, pytest.param(10**6, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("share", [0.0, 1e-4, 0.5, 1.0])
def test_vectors_longer_than_what_is_read_at_once(size, share):
    values = mostly_zero(size, share, size)
    data = encode_small_ints(values)
    read, used = decode_small_ints(memoryview(data), size)
    assert (read == values).all() and used == len(data) == small_ints_sizes(values[None])[0]


def test_the_format_is_that_of_the_first_release():
    """Of vectors of every kind and around the lengths of blocks: sites of another version read the same bytes."""
    random, digest = np.random.default_rng(7), hashlib.sha256()
    for size in (1, 15, 16, 17, 31, 32, 33, 300, 4097, 40000):
        sparse = np.where(random.random(size) < 0.03, random.integers(-3000, 3000, size), 0)
        kinds = (random.integers(-5, 6, size), sparse, random.integers(-(2**15), 2**15, size), np.zeros(size))
        for values in (*kinds, random.integers(0, 1 + np.linspace(0, 300, size).astype(int))):
            digest.update(encode_small_ints(values.astype(np.int16)))
    assert digest.hexdigest() == "9c7377a01e54b836f3938c69f01e1411d9aab9f44a87d28b95d71aa860053e95"


@pytest.mark.parametrize(
    "data",
    [bytes([16]) + bytes([255]) * 2**17, bytes([0]) + bytes([255]) * 2**17, bytes([16]) + bytes(2**16) + bytes([1] * 2**16)],
    ids=["blocks of zeros", "zeros", "as many as there are"],
)
def test_what_is_held_is_the_integers_and_little_beside(data):
    """Whatever the bytes say: they may be a stranger's."""
    decode_small_ints(memoryview(encode_small_ints(mostly_zero(1000, 0.5, 0))), 1000)
    for count in (2**40, 2**22, 2**20, 2**19):
        tracemalloc.start()
        try:
            used = decode_small_ints(memoryview(data), count)[1]
        except ValueError:
            used = 0
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 2 * count + 2 * len(data) + 5_000_000 and (used <= len(data)), count
        assert peak < 70 * len(data) + 5_000_000, count


@given(st.binary(max_size=40), st.integers(0, 60))
def test_forged_bytes_give_integers_or_one_kind_of_error(data, count):
    try:
        read, used = decode_small_ints(memoryview(data), count)
    except ValueError:
        return
    assert read.shape == (count,) and used <= len(data)


def test_a_run_of_zeros_without_an_end_is_refused():
    with pytest.raises(ValueError, match="cut short"):
        decode_small_ints(memoryview(bytes([0, 0, 0, 0])), 1)
    with pytest.raises(ValueError, match="parameter"):
        decode_small_ints(memoryview(bytes([77, 255])), 1)
