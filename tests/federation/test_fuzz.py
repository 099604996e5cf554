"""Mutated messages through the decoders: none accepted with a number that is not finite, none raising but our own error."""

import importlib
import io
import itertools
import json
import pkgutil
import random
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import make_shards
from tests.federation.in_process import OPEN_HANDED, Given, run_of

import fedns
from fedns.core.errors import MessageError
from fedns.core.messages import CODED, WIRE_PRECISIONS, Message, wire_dtype
from fedns.core.messages.encoding import Envelope, decode, encode, handler_named_in, header
from fedns.federation.coordinator.replies import refuse_huge
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, REFUSAL, Packet
from fedns.federation.site.memory import RunMemory
from fedns.federation.site.service import SiteService
from fedns.models.evaluation import EvaluationPoint
from fedns.numerics.backend import triangle_size
from fedns.runs.over_sites import AGREED, read_agreed

PER_EXAMPLE = 500
MOST_BYTES = 200_000_000  # that a test's process may grow by
STEADY = {"derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


def often(few, many):
    """So many mutations in the ordinary tests, 50,000 in all, and so many in the nightly ones, a million."""
    return pytest.mark.parametrize("number", [few, pytest.param(many, marks=pytest.mark.nightly)])


@pytest.fixture(autouse=True)
def little_memory():
    """What is mutated may say that it is large; nobody may believe it."""
    before = resident_bytes()
    yield
    assert resident_bytes() - before < MOST_BYTES


def resident_bytes():
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    return int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def every_kind():
    for module in pkgutil.walk_packages(fedns.__path__, "fedns."):
        if module.name.split(".")[1] in ("core", "models", "sketches", "methods"):
            importlib.import_module(module.name)
    found = [Message]
    for kind in found:
        found += kind.__subclasses__()
    ours = (kind for kind in found[1:] if kind.__module__.startswith("fedns.") and kind.specs())
    return sorted(ours, key=lambda kind: (kind.__module__, kind.__name__))


KINDS = every_kind()
# Zeros of both signs, the smallest, the largest, infinities, and quiet and signalling NaNs, as double and as single.
DOUBLES = (0, 1 << 63, 1, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 0x7FF0000000000001, 0x54B249AD2594C37D)
SINGLES = (0, 1 << 31, 1, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001)
LENGTHS = (0, 1, 2, 5, 127, 128, 300, 2**20, 2**31, 2**32, 2**62, 2**63 - 1)


class Sample:
    """An encoded message, and where in it the types, the shapes and the numbers are."""

    def __init__(self, kind, seed):
        draw = random.Random(seed)
        features = draw.choice((1, 3, 6, 14))
        lengths = {"features": features, "entries": triangle_size(features)}
        self.kind, self.features = kind, features
        numbers = np.random.default_rng(seed)
        values = {}
        for name, spec in kind.specs().items():
            shape = tuple(lengths.setdefault(d, draw.choice((0, 1, 2, 5, 130))) for d in spec.dimensions)
            wide = (
                numbers.normal(size=shape) if spec.kind in ("real", "float64", "float32") else numbers.integers(0, 9, shape)
            )
            values[name] = wide
        precision = WIRE_PRECISIONS[draw.choice(("float64", "float32"))]
        envelope = Envelope(draw.randrange(50), draw.randrange(5), draw.choice(("", "curvature")))
        arrays = [np.asarray(values[n], dtype=wire_dtype(s, precision)) for n, s in kind.specs().items()]
        self.raw = encode(kind(**values), envelope, precision)
        self.body = len(header(kind, envelope, arrays))
        self.codes = []
        # Compact messages have a checksum in place of the names of their class and fields, and a shorter prefix.
        at = 6 + 4 + 1 + len(envelope.handler) if kind.compact else 10 + 1 + len(kind.kind) + 1 + len(envelope.handler) + 1
        for name, array in zip(kind.specs(), arrays, strict=True):
            self.codes.append(at if kind.compact else at + 1 + len(name))
            at = self.codes[-1] + 1 + sum(1 + (length > 127) + (length > 16383) for length in array.shape)
        assert at == self.body


def varint(value, padding=0):
    out = bytearray()
    while value > 127 or padding:
        out.append(value & 127 | 128)
        value, padding = value >> 7, max(0, padding - 1)
    return bytes(out + bytes([value]))


def flip_bits(raw, draw, sample):
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(len(raw))
        raw[at] ^= 1 << draw.randrange(8)


def flip_header_bits(raw, draw, sample):
    raw[draw.randrange(min(sample.body, len(raw)))] ^= 1 << draw.randrange(8)


def set_bytes(raw, draw, sample):
    raw[draw.randrange(len(raw))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))


def truncate(raw, draw, sample):
    del raw[draw.randrange(len(raw)) :]


def insert(raw, draw, sample):
    at = draw.randrange(len(raw) + 1)
    raw[at:at] = draw.randbytes(draw.choice((1, 4, 8, 100)))


def delete(raw, draw, sample):
    at = draw.randrange(len(raw))
    del raw[at : at + draw.choice((1, 4, 8))]


def duplicate(raw, draw, sample):
    start, at = draw.randrange(len(raw)), draw.randrange(len(raw) + 1)
    raw[at:at] = raw[start : start + draw.choice((1, 8, 50))]


def forge_type(raw, draw, sample):
    at = draw.choice(sample.codes)
    if at < len(raw):
        raw[at] = draw.choice(
            (raw[at] & 15 | draw.randrange(16) << 4, raw[at] & 240 | draw.randrange(16), draw.randrange(256))
        )


def forge_length(raw, draw, sample):
    at = draw.choice(sample.codes) + 1
    raw[at : at + draw.choice((0, 1, 1, 2))] = varint(draw.choice(LENGTHS), draw.choice((0, 0, 0, 1, 9)))


def write_number(raw, draw, sample):
    """Where the type and the alignment are right it is the decoder's business, elsewhere it is noise."""
    width, patterns = draw.choice(((8, DOUBLES), (4, SINGLES)))
    room = (len(raw) - sample.body) // width
    if room > 0:
        at = sample.body + width * draw.randrange(room)
        raw[at : at + width] = draw.choice(patterns).to_bytes(width, "little")


def rename(raw, draw, sample):
    raw[10 : 11 + len(sample.kind.kind)] = bytes([len(other := draw.choice(KINDS).kind)]) + other.encode()


MUTATIONS = (flip_bits, flip_header_bits, set_bytes, truncate, insert, delete, duplicate, forge_type, forge_length)
MUTATIONS += (write_number, write_number, rename)


def mutated(sample, draw, mutations):
    raw = bytearray(sample.raw)
    for mutate in mutations:
        if raw:
            mutate(raw, draw, sample)
    return bytes(raw)


def assert_sound(kind, message, known):
    """What was accepted holds finite numbers of the declared types, in shapes that fit each other."""
    lengths = dict(known)
    for name, spec in kind.specs().items():
        array = getattr(message, name)
        expected = {"real": np.float64, "float32": np.float64, "small_ints": CODED}.get(spec.kind, spec.kind)
        assert array.dtype == np.dtype(expected), (name, array.dtype)
        assert array.ndim == len(spec.dimensions), name
        assert all(lengths.setdefault(d, n) == n for d, n in zip(spec.dimensions, array.shape, strict=True)), name
        assert array.dtype.kind != "f" or np.isfinite(array).all(), name


def is_accepted(kind, raw, known):
    """Whether the message gets through to a method. Anything but a MessageError on the way fails the test."""
    try:
        message, envelope = decode(kind, raw, known)
    except MessageError:
        return False
    assert_sound(kind, message, known)
    assert 0 <= envelope.round < 2**32 and 0 <= envelope.client < 2**32
    try:
        refuse_huge(message)
        message.check()
    except MessageError:
        return False
    return True


def named_handler(raw):
    try:
        return handler_named_in(raw)
    except MessageError:
        return ""


@often(33_000, 850_000)
def test_mutated_messages(number):
    counts = {"messages": 0, "accepted": 0}

    @settings(max_examples=number // PER_EXAMPLE, **STEADY)
    @given(
        st.sampled_from(KINDS),
        st.integers(0, 2**63),
        st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=4),
        st.booleans(),
    )
    def fuzz(kind, seed, mutations, informed):
        sample, draw = Sample(kind, seed), random.Random(seed)
        known = {"features": sample.features} if informed else {}
        assert is_accepted(kind, sample.raw, known) or kind.check is not Message.check
        for _ in range(PER_EXAMPLE):
            raw = mutated(sample, draw, mutations)
            assert named_handler(raw).isascii()
            counts["accepted"] += is_accepted(kind, raw, known)
            counts["messages"] += 1

    fuzz()
    assert counts["messages"] >= number
    # Numbers may change into other numbers; a fuzzer none of whose messages get through would be testing the first check.
    assert 0.02 < counts["accepted"] / counts["messages"] < 0.5


@often(8_000, 80_000)
def test_mutated_packets(number):
    count = 0

    @settings(max_examples=number // PER_EXAMPLE, **STEADY)
    @given(st.integers(0, 2**63), st.binary(max_size=60), st.lists(st.sampled_from(MUTATIONS[:7]), min_size=1, max_size=3))
    def fuzz(seed, body, mutations):
        nonlocal count
        draw = random.Random(seed)
        sample = Sample(KINDS[0], 0)
        sample.raw = Packet(ASK, draw.randbytes(16), 1, 2, 3, 4, body).encode()
        sample.body = len(sample.raw) - len(body)
        assert Packet.decode(sample.raw).body == body
        for _ in range(PER_EXAMPLE):
            count += 1
            raw = mutated(sample, draw, mutations)
            try:
                found = Packet.decode(raw)
            except MessageError:
                continue
            assert found.encode() == raw  # nothing is read that was not there, and nothing is lost

    fuzz()
    assert count >= number


st.text().validate()  # makes Hypothesis' table of characters, some 200 MB in a new checkout, before memory is looked at
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def assert_sound_job(data):
    try:
        found = read_agreed(data)
    except MessageError:
        return
    kinds = {"strength": float, "intercept": bool, "sketch_size": int, "seed": int, "rounds": int, "sites": list}
    assert all(type(value) is kinds.get(name, str) for name, value in json.loads(found.agreed()).items())
    assert np.isfinite(found.strength) and all(type(site) is str for site in found.sites)


@often(5_000, 40_000)
def test_mutated_descriptions_of_runs(number):
    count = 0

    @settings(max_examples=number // PER_EXAMPLE, **STEADY)
    @given(st.integers(0, 2**63), st.lists(st.sampled_from(MUTATIONS[:7]), min_size=1, max_size=2))
    def fuzz(seed, mutations):
        nonlocal count
        draw = random.Random(seed)
        sample = Sample(KINDS[0], 0)
        sample.raw = run_of("fedns", seed=draw.randrange(99)).agreed()
        sample.body = len(sample.raw)
        for _ in range(PER_EXAMPLE):
            count += 1
            assert_sound_job(mutated(sample, draw, mutations))

    fuzz()
    assert count >= number


@settings(max_examples=300, **STEADY)
@given(st.sampled_from(AGREED), JSON_VALUES)
def test_descriptions_with_other_values(name, value):
    assert_sound_job(json.dumps(json.loads(run_of("fedns").agreed()) | {name: value}).encode())


@settings(max_examples=200, **STEADY)
@given(JSON_VALUES)
def test_descriptions_that_are_other_json(value):
    with pytest.raises(MessageError):
        read_agreed(json.dumps(value).encode())


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 5000])
def test_a_strength_that_is_no_finite_number(text):
    with pytest.raises(MessageError):
        read_agreed(run_of("fedns").agreed().replace(b'"strength":0.01', f'"strength":{text}'.encode()))


def test_json_that_is_too_deep():
    with pytest.raises(MessageError, match="not JSON"):
        read_agreed(b"[" * 200_000)


@often(2_000, 20_000)
def test_mutated_memories_of_a_site(number, tmp_path):
    """Of a file that was changed nothing is taken, whatever it says."""
    path, draw, sample = tmp_path / "memory.npz", random.Random(7), Sample(KINDS[0], 0)
    RunMemory(run_of("fednl"), 1, "rows", 2, 3, 4, "digest", b"answer", {"a": np.ones(5)}, {"a": np.zeros(5)}).save(path)
    sample.raw = path.read_bytes()
    sample.body = len(sample.raw)
    assert RunMemory.load(path).answer == b"answer"
    for _ in range(number):
        raw = mutated(sample, draw, draw.choices(MUTATIONS[:7], k=2))
        path.write_bytes(raw)
        if raw != sample.raw:
            with pytest.raises(MessageError):
                RunMemory.load(path)


def with_checksum(content):
    return f"{zlib.crc32(content):08x}\n".encode() + content


def check_memory(path):
    """What is taken is what a site could have written."""
    try:
        found = RunMemory.load(path)
    except MessageError:
        return
    assert min(found.number, found.epoch, found.exchange, found.round) >= 0 and found.number < len(found.spec.sites)
    assert isinstance(found.answer, bytes) and isinstance(found.digest, str)


@often(1_000, 20_000)
def test_mutated_memories_with_the_right_checksum(number, tmp_path):
    """Whoever can write to the disk can write a checksum: the archive by itself stops no process either."""
    path, draw, sample = tmp_path / "memory.npz", random.Random(8), Sample(KINDS[0], 0)
    RunMemory(run_of("fednl"), 1, "rows", 2, 3, 4, "digest", b"answer", {"a": np.ones(5)}, {"a": np.zeros(5)}).save(path)
    sample.raw = path.read_bytes().partition(b"\n")[2]
    sample.body = len(sample.raw)
    for _ in range(number):
        path.write_bytes(with_checksum(mutated(sample, draw, draw.choices(MUTATIONS[:7], k=2))))
        check_memory(path)


VALUES = (None, True, -1, 0, 1.5, 2**70, "", "x", [], {}, [1], "9" * 100_000)


@often(300, 3_000)
def test_memories_of_another_making(number, tmp_path):
    """Archives that are whole, with other names, values and arrays in them."""
    path, draw = tmp_path / "memory.npz", random.Random(9)
    RunMemory(run_of("fednl"), 1, "rows", 2, 3, 4, "digest", b"answer", {"a": np.ones(5)}, {"a": np.zeros(5)}).save(path)
    with np.load(io.BytesIO(path.read_bytes().partition(b"\n")[2])) as archive:
        parts = dict(archive)
    others = (np.zeros(0), np.full(3, np.nan), np.arange(4), np.zeros((2, 0, 3)), np.array("text"), np.array(b"{}"))
    for _ in range(number):
        head = json.loads(parts["head"].tobytes())
        head[draw.choice([*head, "more"])] = draw.choice(VALUES)
        if draw.random() < 0.2:
            del head[draw.choice(list(head))]
        made = parts | {"head": np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)}
        if draw.random() < 0.5:
            made[draw.choice([*made, "now.b", "before.", "other"])] = draw.choice(others)
        buffer = io.BytesIO()
        np.savez(buffer, **made)
        path.write_bytes(with_checksum(buffer.getvalue()))
        check_memory(path)


@often(2_000, 10_000)
def test_mutated_requests_to_a_site(number, tmp_path):
    """A site that is in a run: every request has an answer, nearly all of them a refusal, and never a crash."""
    shards = make_shards(rows=60, columns=3, sizes=(60,))
    service = SiteService("site-0", Given(shards), OPEN_HANDED, tmp_path)
    spec, run = run_of("fedns", 1), bytes(range(16))
    assert Packet.decode(service.answer(Packet(OPEN, run, 1, 1, 0, 0, spec.agreed()).encode())).kind == ANSWER
    body = encode(EvaluationPoint(np.zeros(4)), Envelope(0, handler="evaluate_locally"), WIRE_PRECISIONS["float64"])
    good = Packet(ASK, run, 1, 2, 0, 0, body).encode()
    draw, sample, refused = random.Random(3), Sample(KINDS[0], 0), 0
    sample.raw, sample.body = good, len(good) - len(body)
    for _ in range(number):
        reply = Packet.decode(service.answer(mutated(sample, draw, draw.choices(MUTATIONS[:7], k=1))))
        assert reply.kind in (ANSWER, REFUSAL)
        refused += reply.kind == REFUSAL
    assert refused > number // 2
    assert Packet.decode(service.answer(Packet(ASK, run, 2**31, 2**31, 0, 0, body).encode())).kind in (ANSWER, REFUSAL)


def forged_shapes(kind):
    """Empty messages of this kind with every axis forged in turn, the others of its field 0 or 3 long."""
    nothing = {name: np.zeros((0,) * len(spec.dimensions)) for name, spec in kind.specs().items()}
    raw = encode(kind(**nothing), Envelope(0), WIRE_PRECISIONS["float64"])
    after = 6 + 4 + 1  # in a compact message fields have no names, and begin after prefix, checksum and empty handler
    for name, spec in kind.specs().items():
        axes = len(spec.dimensions)
        at = after + 1 if kind.compact else raw.index(bytes([len(name)]) + name.encode()) + 1 + len(name) + 1
        after = at + axes
        for axis, length, others in itertools.product(range(axes), (2**24, 2**40, 2**62, 2**63 - 1), (0, 3)):
            shape = [varint(length if a == axis else others) for a in range(axes)]
            yield raw[:at] + b"".join(shape) + raw[at + axes :]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_forged_shape_takes_no_memory(kind):
    forged = list(forged_shapes(kind))
    assert bool(forged) == any(spec.dimensions for spec in kind.specs().values())
    tracemalloc.start()
    try:
        for raw in forged:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            is_accepted(kind, raw, {})
            assert tracemalloc.get_traced_memory()[1] - before < 100_000
    finally:
        tracemalloc.stop()
