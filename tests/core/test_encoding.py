import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedns.core.errors import MessageError
from fedns.core.messages import WIRE_PRECISIONS, Message, Payload, Ragged, batch_on_wire, split_batch, wire
from fedns.core.messages.encoding import EVERYONE, Envelope, batch_bytes, decode, encode, total_bytes

SINGLE, DOUBLE = WIRE_PRECISIONS["float32"], WIRE_PRECISIONS["float64"]


class Example(Message):
    gradient: Payload = wire("features")
    rows: Payload = wire("rows", "features")
    loss: Payload = wire(dtype="float64")
    count: Payload = wire(dtype="int64")
    codes: Payload = wire("codes", dtype="uint8")


class Other(Message):
    gradient: Payload = wire("features")


class Coded(Message):
    numbers: Payload = wire("entries", dtype="small_ints")


def example(features=4, rows=3):
    random = np.random.default_rng(0)
    return Example(random.normal(size=features), random.normal(size=(rows, features)), np.pi, 2**40, np.arange(6))


def reencode(**changes):
    message = example()
    values = {name: getattr(message, name) for name in Example.specs()} | changes
    return encode(Example(**values), Envelope(1), DOUBLE)


@pytest.mark.parametrize("precision", [SINGLE, DOUBLE], ids=str)
def test_what_is_encoded_is_decoded(precision):
    message = example()
    decoded, envelope = decode(Example, encode(message, Envelope(7, 3, "curvature"), precision), {"features": 4})
    assert envelope == Envelope(7, 3, "curvature")
    np.testing.assert_array_equal(decoded.gradient, message.gradient.astype(precision))
    np.testing.assert_array_equal(decoded.rows, message.rows.astype(precision))
    assert decoded.loss == np.pi and decoded.count == 2**40  # never rounded to the wire precision
    assert decoded.gradient.dtype == np.float64 and decoded.codes.dtype == np.uint8


def test_a_header_that_is_known_is_still_checked_and_another_one_read():
    known = encode(example(), Envelope(1, 2, "curvature"), DOUBLE)
    for _ in range(2):
        assert decode(Example, known, {"features": 4})[1] == Envelope(1, 2, "curvature")
    with pytest.raises(MessageError, match="field 'gradient' of Example has shape"):
        decode(Example, known, {"features": 5})
    with pytest.raises(MessageError, match="cut short"):
        decode(Example, known[:-1], {"features": 4})
    message, envelope = decode(Example, encode(example(features=5), Envelope(3, 4, "other"), SINGLE), {"features": 5})
    assert envelope == Envelope(3, 4, "other") and message.gradient.shape == (5,)
    wrong = reencode(rows=np.zeros((3, 5)))
    for _ in range(2):  # a layout that was refused is not known
        with pytest.raises(MessageError, match="field 'rows' of Example has shape"):
            decode(Example, wrong)


def test_a_request_is_addressed_to_everyone_by_default():
    assert decode(Other, encode(Other(np.zeros(2)), Envelope(0), DOUBLE))[1].client == EVERYONE


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (reencode(gradient=np.zeros(5)), r"field 'gradient' of Example has shape \(5,\), expected \(4,\)"),
        (reencode(rows=np.zeros((3, 5))), r"field 'rows' of Example has shape \(3, 5\), expected \(3, 4\)"),
        (reencode(gradient=np.zeros((4, 1))), "field 'gradient' of Example has 2 axes, expected 1"),
        (reencode(gradient=np.array([1, np.nan, 1, 1])), "field 'gradient' of Example holds NaN or infinite"),
        (reencode(loss=np.inf), "field 'loss' of Example holds NaN or infinite"),
        (encode(Other(np.zeros(4)), Envelope(1), DOUBLE), "expected a Example message, got 'Other'"),
        (reencode()[:-1], "cut short"),
        (reencode() + b"\0", "1 bytes too many"),
        (b"", "cut short"),
        (b"\0" * 200, "not a fedns message"),
    ],
)
def test_a_bad_message_is_refused_with_a_sentence_naming_the_field(data, sentence):
    with pytest.raises(MessageError, match=sentence):
        decode(Example, data, {"features": 4})


def test_a_wrong_dtype_is_refused():
    class Example(Message):  # the same kind and fields, but another type of number
        gradient: Payload = wire("features", dtype="int64")
        rows: Payload = wire("rows", "features")
        loss: Payload = wire(dtype="float64")
        count: Payload = wire(dtype="int64")
        codes: Payload = wire("codes", dtype="uint8")

    m = example()
    data = encode(Example(np.arange(4), m.rows, m.loss, m.count, m.codes), Envelope(1), DOUBLE)
    with pytest.raises(MessageError, match="field 'gradient' of Example has dtype int64, expected float64 or float32"):
        decode(globals()["Example"], data)


def test_wrong_field_names_are_refused():
    class Other(Message):
        slope: Payload = wire("features")

    with pytest.raises(MessageError, match="Other must have fields gradient, got slope"):
        decode(globals()["Other"], encode(Other(np.zeros(3)), Envelope(1), DOUBLE))


def test_a_forged_shape_asks_for_no_memory():
    data = bytearray(encode(Other(np.zeros(3)), Envelope(1), DOUBLE))
    at = data.index(b"gradient") + len(b"gradient") + 1
    data[at : at + 1] = bytes([255] * 8 + [127])
    with pytest.raises(MessageError, match="cut short"):
        decode(Other, bytes(data))


@settings(max_examples=300)
@given(st.data())
def test_a_mutated_message_never_raises_anything_else_and_never_gives_non_finite_numbers(data):
    raw = bytearray(encode(example(), Envelope(1, 2), DOUBLE))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    try:
        decoded, _ = decode(Example, bytes(raw), {"features": 4})
    except MessageError:
        return
    assert np.isfinite(decoded.gradient).all() and np.isfinite(decoded.rows).all() and np.isfinite(decoded.loss)


def batch(counts):
    random = np.random.default_rng(1)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    m = len(counts)
    return Example(
        random.normal(size=(m, 4)),
        Ragged(random.normal(size=(offsets[-1], 4)), offsets),
        random.normal(size=m),
        np.arange(m),
        np.zeros((m, 200), np.uint8),
    )


@pytest.mark.parametrize("precision", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("counts", [[3, 3, 3], [1, 200, 0, 127, 128, 3]])
def test_the_length_of_a_batch_is_that_of_its_encoded_messages(counts, precision):
    messages = [encode(split_batch(batch(counts), j), Envelope(9, j), precision) for j in range(len(counts))]
    assert batch_bytes(batch(counts), precision).tolist() == [len(m) for m in messages]
    assert total_bytes(batch(counts), precision) == sum(map(len, messages))


def test_lengths_are_known_again_only_where_they_follow_from_the_same():
    one, other = batch([3, 3, 3]), batch([4, 2, 3])  # the same shapes, cut elsewhere
    for which, precision in ((one, DOUBLE), (other, DOUBLE), (one, DOUBLE), (one, SINGLE), (one, DOUBLE), (other, SINGLE)):
        lengths = [len(encode(split_batch(which, j), Envelope(1, j), precision)) for j in range(3)]
        assert batch_bytes(which, precision).tolist() == lengths and total_bytes(which, precision) == sum(lengths)


def test_lengths_of_coded_integers_follow_from_the_numbers():
    for numbers in (np.zeros((2, 50), np.int16), np.arange(100, dtype=np.int16).reshape(2, 50), np.zeros((2, 50), np.int16)):
        lengths = [len(encode(Coded(own), Envelope(1, j), DOUBLE)) for j, own in enumerate(numbers)]
        assert batch_bytes(Coded(numbers), DOUBLE).tolist() == lengths


class Sparse(Message):
    compact = True

    numbers: Payload = wire("entries", dtype="small_ints")
    more: Payload = wire("rows", "features", dtype="small_ints", ragged=True)
    loss: Payload = wire(dtype="float64")


LENGTHS = st.one_of(st.integers(0, 40), st.integers(250, 400), st.integers(4000, 5000))


@settings(max_examples=200)
@given(
    LENGTHS, st.integers(0, 9), LENGTHS, st.sampled_from([0.0, 0.001, 0.02, 0.3]), st.integers(0, 2**32 - 1), st.booleans()
)
def test_messages_of_mostly_zeros_arrive(entries, rows, features, share, seed, informed):
    """In blocks of zeros a byte holds 32 integers: the length that a message may have does not follow from its bytes."""
    assert_arrives(entries, rows, features, share, seed, informed)


@pytest.mark.nightly
@settings(max_examples=20)
@given(st.integers(10**5, 10**6), st.sampled_from([0.0, 1e-5, 1e-3, 0.3]), st.integers(0, 2**32 - 1), st.booleans())
def test_long_messages_of_mostly_zeros_arrive(entries, share, seed, informed):
    assert_arrives(entries, 3, entries // 4, share, seed, informed)


def assert_arrives(entries, rows, features, share, seed, informed):
    random = np.random.default_rng(seed)

    def some(*shape):
        size = 10.0 ** random.uniform(0, 4.5)
        return np.where(random.random(shape) < share, size * random.uniform(-1, 1, shape), 0).astype(np.int16)

    message = Sparse(some(entries), some(rows, features), np.pi)
    raw = encode(message, Envelope(7, 3, "curvature"), DOUBLE)
    known = {"entries": entries, "features": features} if informed else {}
    decoded, envelope = decode(Sparse, raw, known)
    assert envelope == Envelope(7, 3, "curvature") and decoded.loss == np.pi
    np.testing.assert_array_equal(decoded.numbers, message.numbers)
    np.testing.assert_array_equal(decoded.more, message.more)
    unaddressed = len(encode(message, Envelope(7, 3), DOUBLE))
    batch = Sparse(message.numbers[None], Ragged(message.more, np.array([0, rows])), np.array([np.pi]))
    assert batch_bytes(batch, DOUBLE).tolist() == [unaddressed]
    with pytest.raises(MessageError):
        decode(Sparse, raw[:-1], known)


@pytest.mark.parametrize("length", [8100, 2**31, 2**62])
def test_coded_integers_that_their_bytes_cannot_hold_are_refused(length):
    """262 bytes that say they are of more integers than they have bits for, in each form of the code."""
    for start in (0, 14, 16):
        raw = encode(Coded(np.zeros(0, np.int16)), Envelope(1), DOUBLE)
        assert raw.endswith(bytes([0x61, 0]))  # integers of one axis, of length 0: seven bits to a byte, the low ones first
        digits = [(length >> shift & 127) | 128 for shift in range(0, 63, 7)]
        forged = raw[:-1] + bytes([*digits[:-1], digits[-1] & 127, start])
        forged += bytes([255]) * (262 - len(forged))  # blocks of zeros, or as many numbers as there can be
        with pytest.raises(MessageError, match=r"field 'numbers' of Coded: .*cut short"):
            decode(Coded, forged)


def test_a_strangers_bytes_take_little_memory():
    """A hundred kilobytes of blocks of zeros, of four million integers; the receiver knows how many columns there are."""
    features, rows = 1000, 4096
    raw = encode(Sparse(np.zeros(0, np.int16), np.zeros((rows, features), np.int16), 0.0), Envelope(1), DOUBLE)
    assert len(raw) < 1.4e5
    peaks = []
    for most in (2 * rows * features, len(raw)):
        tracemalloc.start()
        try:
            decode(Sparse, raw, {"features": features}, most)
        except MessageError:
            pass
        finally:
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[0] < 2 * rows * features + 4 * len(raw) + 5e6  # as many as it holds, two bytes each
    assert peaks[1] < len(raw)  # a receiver who has no more than that


def test_numbers_that_take_more_than_the_receiver_has_are_refused():
    raw = encode(Coded(np.zeros(3200, np.int16)), Envelope(1), DOUBLE)
    assert len(raw) < 150 and decode(Coded, raw, largest_bytes=6400)[0].numbers.size == 3200
    with pytest.raises(MessageError, match="field 'numbers' of Coded has 3200 numbers, which take more than 6399 bytes"):
        decode(Coded, raw, largest_bytes=6399)


def test_a_batch_arrives_as_its_messages_would():
    counts = [2, 5, 1]
    arrived = batch_on_wire(batch(counts), SINGLE)
    for j in range(3):
        alone, _ = decode(Example, encode(split_batch(batch(counts), j), Envelope(1, j), SINGLE))
        for name in Example.specs():
            np.testing.assert_array_equal(getattr(split_batch(arrived, j), name), getattr(alone, name))
