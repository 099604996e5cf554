"""What the one door counts, checks and refuses, against sums that the tests make themselves."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.core.clients import on_client
from fedns.core.cohort import Cohort, Hello, Registration, Session, register
from fedns.core.errors import ConfigError, MessageError
from fedns.core.messages import Message, Payload, Ragged, as_batch, wire
from fedns.core.messages.encoding import Envelope, encode
from fedns.core.messages.ledger import LedgerEntry, Meter
from fedns.core.messages.reducers import mean, mean_gram
from fedns.methods.auto.folding import mean_of_small_ints
from fedns.simulation.answering import LocalClients
from fedns.simulation.simulator import SimulatedCohort

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))
SIZES = (30, 20, 50, 10)
FLOAT64 = np.dtype("<f8")


class Question(Message):
    value: Payload = wire()


class Answer(Message):
    number: Payload = wire(discloses="count")
    vector: Payload = wire("features", discloses="gradient")


@on_client(Question, Answer)
def answer(problem, clients, request):
    raise AssertionError("scripted cohorts answer themselves")


class Scripted(Cohort):
    """Answers what a test wants, in chunks and in an order that the test chooses."""

    def __init__(self, chunks, clients=4, **settings):
        super().__init__(Session(PROBLEM, 0, **settings), np.arange(clients))
        self.weights, self.total_weights = np.full(clients, 1 / clients), np.ones(clients)
        self.chunks, self.frames = chunks, []

    def _deliver(self, handler, frame, ids):
        self.frames.append((handler.__name__, len(frame), ids.tolist()))
        yield from ((np.array(chunk), batch) for chunk, batch in self.chunks)


def batch(*clients, features=3):
    return Answer(np.array(clients, dtype=float), np.outer(np.array(clients, dtype=float), np.ones(features)))


def told_in_order(replies, name):
    """A field of every reply, in the order in which they are handed on."""
    return np.concatenate([getattr(batch, name) for _, batch in replies]).tolist()


def one_message(features=3, round=0):
    return len(encode(Answer(np.float64(0.0), np.zeros(features)), Envelope(round), FLOAT64))


def test_a_meter_adds_what_another_has_counted():
    up, down = (LedgerEntry(1, 2, way, "Answer", ("number",), 3, size) for way, size in (("uplink", 70), ("downlink", 11)))
    one, other = Meter(exchanges=4, evaluation_bytes=5), Meter(exchanges=2, evaluation_bytes=30)
    one.count(up)
    other.count(up)
    other.count(down)
    assert (one.uplink_bytes, one.downlink_bytes, other.uplink_bytes, other.downlink_bytes) == (70, 0, 70, 11)
    one.add(other)
    assert (one.uplink_bytes, one.downlink_bytes, one.exchanges, one.evaluation_bytes) == (140, 11, 6, 35)
    assert one.ledger == [up, up, down] and other.ledger == [up, down]


def test_every_exchange_is_a_line_each_way_and_their_sum_is_the_meter():
    history = fedns.simulate(fedns.FedNDES(fedns.SRHT(8)), PROBLEM, make_shards(rows=110, columns=3, sizes=SIZES), rounds=3)
    for way, total in (("uplink", history.uplink_bytes), ("downlink", history.downlink_bytes)):
        lines = [line for line in history.ledger if line.direction == way]
        for record in history.records:
            assert total[record.round] == sum(line.bytes for line in lines if line.round <= record.round)
        assert [line.exchange for line in lines] == list(range(1, len(lines) + 1)) and len(lines) == history.exchanges[-1]
        assert all(line.messages == len(SIZES) for line in lines)
    first, second = history.ledger[:2]
    assert (first.kind, first.fields, second.kind, second.fields) == (
        "Hello", ("seed",), "Registration", ("num_rows", "total_weight", "num_columns"),
    )  # fmt: skip
    hello = len(encode(Hello(np.int64(0)), Envelope(0, handler="register"), FLOAT64))
    registered = len(encode(Registration(np.int64(1), np.float64(1), np.int64(1)), Envelope(0), FLOAT64))
    assert (first.bytes, second.bytes) == (4 * hello, 4 * registered)


@pytest.mark.parametrize("method", [fedns.Newton(), fedns.NewtonSketch(fedns.SRHT(8))])
def test_nothing_is_counted_where_the_data_are_pooled(method):
    history = fedns.simulate(method, PROBLEM, make_shards(), rounds=2)
    assert not history.uplink_bytes.any() and not history.downlink_bytes.any() and not history.exchanges.any()
    assert history.ledger == [] and not history.evaluation_bytes.any()


def test_a_history_without_a_ledger_has_an_empty_one_of_its_own():
    ended = ("m", [], np.zeros(1), fedns.Ending.OUT_OF_ROUNDS, "used all rounds")
    one, other = fedns.History(*ended), fedns.History(*ended)
    one.ledger.append(LedgerEntry(0, 1, "uplink", "Answer", (), 1, 1))
    assert other.ledger == []


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_answers_are_handed_on_in_client_order_and_counted_once(order):
    chunks = [([0], batch(10)), ([1, 2], batch(11, 12)), ([3], batch(13))]
    cohort = Scripted([chunks[place] for place in order])
    assert told_in_order(cohort.ask(answer, Question(np.float64(1))), "number") == [10, 11, 12, 13]
    meter, request = cohort.session.meter, len(encode(Question(np.float64(1)), Envelope(0, handler="answer"), FLOAT64))
    assert cohort.frames == [("answer", request, [0, 1, 2, 3])]
    assert (meter.exchanges, meter.downlink_bytes, meter.uplink_bytes) == (1, 4 * request, 4 * one_message())


def test_a_run_that_is_not_metered_counts_nothing():
    cohort = Scripted([([0, 1, 2, 3], batch(1, 2, 3, 4))], metered=False)
    cohort.ask(answer, Question(np.float64(1))).fold(mean("vector"))
    assert vars(cohort.session.meter) == vars(Meter())


@pytest.mark.parametrize("wire_precision", ["float64", "float32"])
def test_the_wire_rounds_and_is_counted_as_wide_as_it_is(wire_precision):
    cohort = Scripted([([0, 1, 2, 3], batch(0.1, 0.2, 0.3, 0.4))], wire=wire_precision)
    cohort.session.round = 7
    kind = np.dtype(wire_precision)
    assert told_in_order(cohort.ask(answer, Question(np.float64(1))), "number") == [
        float(kind.type(value)) for value in (0.1, 0.2, 0.3, 0.4)
    ]
    assert int(cohort.number_bytes) == kind.itemsize
    down, up = cohort.session.meter.ledger
    assert (down.round, up.round, up.kind, up.fields, up.messages) == (7, 7, "Answer", ("number", "vector"), 4)
    assert up.bytes == 4 * len(encode(Answer(np.float64(0), np.zeros(3)), Envelope(7), kind.newbyteorder("<")))


@pytest.mark.parametrize(
    ("chunks", "sentence"),
    [
        ([([0, 1], batch(1, 2))], "answer: 2 of 4 clients did not answer"),
        ([([0, 1, 2], batch(1, 2, 3))], "answer: 1 of 4 clients did not answer"),
        ([([1, 2, 3], batch(1, 2, 3))], "answer: 1 of 4 clients did not answer"),
        ([], "answer: 4 of 4 clients did not answer"),
        ([([0, 1, 2, 3], batch(1, 2, 3))], "field 'number' of Answer holds 3 replies for 4 clients"),
        ([([0, 1, 2, 3], batch(1, 2, 3, 4, 5))], "field 'number' of Answer holds 5 replies for 4 clients"),
        ([([0, 1], Answer(np.ones(2), np.ones((1, 3))))], "field 'vector' of Answer holds 1 replies for 2 clients"),
        ([([0, 1], Answer(np.ones(2), np.ones(2)))], "field 'vector' of Answer has 0 axes, expected 1"),
        ([([0], batch(1)), ([1], batch(1, features=2))], r"field 'vector' of Answer has shape \(2,\), expected \(3,\)"),
        ([([0], batch(1)), ([1], batch(1, features=4))], r"field 'vector' of Answer has shape \(4,\), expected \(3,\)"),
        ([([0], Question(np.ones(1)))], "answer must give Answer, got Question"),
    ],
)
def test_who_does_not_answer_or_answers_something_else_is_told_of(chunks, sentence):
    cohort = Scripted(chunks)
    with pytest.raises(MessageError, match=sentence):
        cohort.ask(answer, Question(np.float64(1))).fold(mean("vector"))
    assert cohort.session.meter.uplink_bytes == 0


class Coded(Message):
    """What the reducers of every method add up, in one message."""

    answered: Payload = wire(dtype="uint8", discloses="nothing")
    unit: Payload = wire(dtype="float32", discloses="nothing")
    whole: Payload = wire("features", dtype="small_ints", discloses="gradient")
    packed: Payload = wire("entries", discloses="hessian")
    rows: Payload = wire("rows", "features", ragged=True, discloses="sketch")


@on_client(Question, Coded)
def coded(problem, clients, request):
    """Of two columns; but the field that the request numbers is wider or narrower where the last client answers."""
    there = clients.shards.num_clients
    place, change = divmod(int(request.value), 10)
    widths = {name: 2 if name != "packed" else 3 for name in ("whole", "packed", "rows")}
    if 4 in clients.ids:
        widths[list(widths)[place]] += change - 5
    offsets = 2 * np.arange(there + 1)
    return Coded(
        answered=np.ones(there, dtype=np.uint8), unit=np.ones(there, dtype=np.float32),
        whole=np.ones((there, widths["whole"]), dtype=np.int16), packed=np.ones((there, widths["packed"])),
        rows=Ragged(np.ones((offsets[-1], widths["rows"])), offsets),
    )  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("change", [-1, 0, 1])
def test_a_handler_that_gives_another_width_reaches_no_compiled_sum(chunk, place, change):
    """Which would write beside its total: in this process nothing decodes a reply, and decoding is what checks others."""
    cohort = SimulatedCohort(make_shards(columns=2), Session(PROBLEM, 0), chunk_clients=chunk)
    name, reducer = [
        ("whole", mean_of_small_ints("whole", "unit")), ("packed", mean("packed")), ("rows", mean_gram("rows"))
    ][place]  # fmt: skip
    replies = cohort.ask(coded, Question(np.float64(10 * place + 5 + change)))
    if change == 0:
        (found,) = replies.fold(reducer)
        assert np.ravel(found).tolist() == pytest.approx({"whole": [1] * 2, "packed": [1] * 3, "rows": [2] * 4}[name])
        return
    expected = 3 if name == "packed" else 2
    with pytest.raises(MessageError, match=rf"field '{name}' of Coded has shape \({expected + change},\), expected"):
        replies.fold(reducer)


def test_a_request_of_another_class_is_not_sent():
    cohort = Scripted([])
    with pytest.raises(ConfigError, match="answer takes a Question, got a Hello"):
        cohort.ask(answer, Hello(np.int64(0)))
    assert cohort.frames == [] and cohort.session.meter.exchanges == 0


@pytest.mark.parametrize(("clients", "said"), [([2], "client 2: "), ([1, 2], "client 1 to client 2: ")])
def test_what_cannot_be_added_names_the_clients(clients, said):
    class Refusing:
        def add(self, replies, weights):
            assert weights.tolist() == [0.25] * len(replies.number)
            if clients[0] in replies.number:
                raise MessageError("no sum has room for this")

    before = [([client], batch(float(client))) for client in range(clients[0])]
    cohort = Scripted([*before, (clients, batch(*map(float, clients)))])
    with pytest.raises(MessageError, match=f"^{said}no sum has room for this"):
        cohort.ask(answer, Question(np.float64(1))).fold(Refusing())


@pytest.mark.parametrize(
    ("rows", "weight", "columns", "good"),
    [
        (1, 1.0, 1, True),
        (0, 1.0, 1, False),
        (2**48 - 1, 1.0, 1, True),
        (2**48, 1.0, 1, False),
        (5, 5.0, 0, False),
        (5, 5.0, 2**31 - 1, True),
        (5, 5.0, 2**31, False),
        (5, 0.0, 3, False),
        (5, 1e-300, 3, True),
        (5, 5e6, 3, True),
        (5, 5.1e6, 3, False),
    ],
)
def test_what_a_client_states_of_its_data_can_be_true(rows, weight, columns, good):
    stated = Registration(np.int64(rows), np.float64(weight), np.int64(columns))
    if good:
        stated.check()
    else:
        with pytest.raises(MessageError, match=rf"Registration states (a weight of {re.escape(f'{weight:g}')}|{rows} rows)"):
            stated.check()


def test_clients_with_other_columns_are_named():
    cohort = Scripted([])
    told = [Registration(np.int64(5), np.float64(5), np.int64(columns)) for columns in (3, 3, 4, 5)]
    cohort.chunks = [(np.arange(4), as_batch(told))]
    with pytest.raises(MessageError, match="client 2 has 4 columns, client 0 has 3: all clients must have the same"):
        cohort.register_clients()


def test_registration_sets_weights_by_rows_and_the_number_of_coefficients():
    cohort = SimulatedCohort(make_shards(rows=110, columns=3, sizes=SIZES), Session(fedns.Problem(intercept=True), 0))
    assert cohort.total_weights.tolist() == [30, 20, 50, 10] and cohort.num_features == 4
    np.testing.assert_allclose(cohort.weights, np.array(SIZES) / 110, rtol=1e-15)
    assert cohort.start.tolist() == [0.0] * 4
    cohort.session.start = np.arange(4.0)
    cohort.start[0] = 9.0  # a copy
    assert cohort.start.tolist() == [0, 1, 2, 3]


def test_another_objective_leaves_the_cohort_as_it_was_and_is_counted_with_it():
    cohort = SimulatedCohort(make_shards(rows=110, columns=3, sizes=SIZES), Session(PROBLEM, 0))
    other = cohort.with_problem(fedns.Problem(penalty=fedns.Ridge(1.0)), np.arange(3.0))
    assert cohort.start.tolist() == [0, 0, 0] and other.start.tolist() == [0, 1, 2]
    assert cohort.session.problem is PROBLEM and other.session.meter is cohort.session.meter


@pytest.mark.parametrize(("fraction", "count"), [(0.01, 1), (0.3, 1), (0.4, 2), (0.6, 2), (0.65, 3), (1.0, 4)])
def test_a_sample_has_its_size_and_weights_of_its_own(fraction, count):
    cohort = SimulatedCohort(make_shards(rows=110, columns=3, sizes=SIZES), Session(PROBLEM, 0))
    part = cohort.sample(fraction)
    assert part.num_clients == count and part.ids.tolist() == sorted(set(part.ids.tolist()))
    sizes = np.array(SIZES)[part.ids]
    assert part.total_weights.tolist() == sizes.tolist()
    np.testing.assert_allclose(part.weights, sizes / sizes.sum(), rtol=1e-15)
    assert cohort.num_clients == 4
    assert told_in_order(part.ask(register, Hello(np.int64(0))), "num_rows") == sizes.tolist()
    assert cohort.session.meter.ledger[-1].messages == count


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.0001])
def test_a_sample_of_nobody_or_of_more_than_all_is_refused(fraction):
    with pytest.raises(ConfigError, match=rf"participation must be in \(0, 1\], got {fraction}"):
        Scripted([]).sample(fraction)


@pytest.mark.parametrize(("budget", "sizes"), [(10**9, [16, 48]), (1, [1] * 64)])
def test_how_many_clients_are_answered_before_their_replies_are_known(budget, sizes):
    """First some, by what a Hessian of each would take; then as many as the memory holds, and at least one."""
    shards = make_shards(rows=64, columns=400, sizes=(1,) * 64)
    clients = LocalClients(shards, np.arange(64), memory_budget_bytes=budget)
    frame = encode(Hello(np.int64(0)), Envelope(0, handler="register"), FLOAT64)
    assert [ids.size for ids, _ in clients.answer(PROBLEM, 0, register, frame, np.arange(64))] == sizes


def test_a_budget_of_memory_holds_for_replies_whose_size_is_known():
    shards = make_shards(rows=64, columns=4, sizes=(1,) * 64)
    frame = encode(Hello(np.int64(0)), Envelope(0, handler="register"), FLOAT64)
    for budget, most in ((24 * 10, 10), (24 * 10 + 23, 10), (24 * 11, 11), (1, 1)):
        clients = LocalClients(shards, np.arange(64), memory_budget_bytes=budget)
        for _ in range(2):
            chunks = [ids.size for ids, _ in clients.answer(PROBLEM, 0, register, frame, np.arange(64))]
        assert max(chunks) <= most and len(chunks) == -(-64 // most)
