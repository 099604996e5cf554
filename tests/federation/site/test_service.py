"""A site by itself: what it answers, what it refuses, what it remembers and what it writes down."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import OPEN_HANDED, Federation, Given, InProcess, run_of

from fedns.core.clients import on_client
from fedns.core.cohort import Hello, Registration
from fedns.core.errors import DataError
from fedns.core.messages import WIRE_PRECISIONS, Message, Payload, wire
from fedns.core.messages.encoding import Envelope, decode, encode
from fedns.core.shards import Shards
from fedns.federation.protocol.absence import FederationError
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, OVERFLOW, REFUSAL, Packet
from fedns.federation.site.memory import RunMemory
from fedns.federation.site.service import LEDGER_FILE, SiteService
from fedns.methods.curvature import Iterate, SketchRequest
from fedns.methods.exchanges.effective_dimension import CurvatureProbe
from fedns.methods.exchanges.landmarks import LandmarkRequest
from fedns.methods.fedavg import SmoothnessRequest
from fedns.methods.fednl import Correction, LearnRequest
from fedns.methods.searches import Ray
from fedns.runs.builder import at_site
from fedns.runs.over_sites import Policy

RUN, OTHER_RUN = bytes(range(16)), bytes(range(16, 32))
SHARDS = make_shards(rows=60, columns=5, sizes=(60,))
FEATURES = 6  # with the intercept
DOUBLE = WIRE_PRECISIONS["float64"]


class Site:
    """A service, and packets to it. Every packet may find a new object over the same folder."""

    def __init__(self, folder, method="fednl", permissions=OPEN_HANDED, shards=SHARDS, build=at_site, **changes):
        self.spec = run_of(method, **changes)
        self.folder = folder
        self.arguments = ("site-1", Given(shards, build), permissions, folder)
        self.service = SiteService(*self.arguments)

    def restart(self, permissions=None):
        self.service = SiteService(*self.arguments[:2], permissions or self.arguments[2], self.folder)

    def send(self, kind, body, exchange=1, *, epoch=0, number=1, committed_rounds=0, run=RUN):
        return Packet.decode(
            self.service.answer(Packet(kind, run, epoch, exchange, number, committed_rounds, body).encode())
        )

    def open(self, **changes):
        return self.send(OPEN, self.spec.agreed(), **changes)

    def open_forged(self, **changes):
        """A description that no coordinator of this version sends."""
        return self.send(OPEN, json.dumps(json.loads(self.spec.agreed()) | changes).encode())

    def ask(self, handler, request, exchange, round=0, **changes):
        return self.send(ASK, encode(request, Envelope(round, handler=handler), DOUBLE), exchange, **changes)

    def learn(self, exchange, round, w=0.0, **changes):
        return self.ask("learn", LearnRequest(np.full(FEATURES, w), np.uint8(8)), exchange, round, **changes)

    def memory(self, run=RUN):
        return RunMemory.load(self.folder / f"{run.hex()}.npz")

    def ledger(self):
        return [json.loads(line) for line in (self.folder / LEDGER_FILE).read_text().splitlines()]


@pytest.fixture
def site(tmp_path):
    opened = Site(tmp_path)
    assert opened.open().kind == ANSWER
    return opened


def refusal(packet):
    assert packet.kind == REFUSAL
    return packet.body.decode()


def test_an_answer_belongs_to_its_request(site):
    reply = site.ask("register", Hello(np.int64(5)), 2)
    assert (reply.kind, reply.run, reply.epoch, reply.exchange, reply.site) == (ANSWER, RUN, 0, 2, 1)
    message, envelope = decode(Registration, reply.body)
    assert (message.num_rows, message.total_weight, message.num_columns) == (60, 60.0, 5)
    assert envelope == Envelope(0, 1, "")


@pytest.mark.parametrize(
    ("permissions", "changes", "sentence"),
    [
        (replace(OPEN_HANDED, smallest_rows=61), {}, "R2: taking part needs at least 61 rows, and it has fewer"),
        (replace(OPEN_HANDED, wire=("float32",)), {}, "R1: it sends numbers as float32, not as float64"),
        (replace(OPEN_HANDED, wire=("float64",)), {"wire": "float32"}, "R1: it sends numbers as float64, not as float32"),
        (replace(OPEN_HANDED, rounds=4), {}, "R5: it permits 4 rounds, the run asks for 5"),
    ],
)
def test_a_run_that_the_owner_does_not_permit_is_not_opened(permissions, changes, sentence, tmp_path):
    site = Site(tmp_path, permissions=permissions, **changes)
    assert refusal(site.open()) == sentence
    assert refusal(site.learn(2, 1)) == "the run has not been opened here"
    assert [entry["purpose"] for entry in site.ledger()] == [sentence, "the run has not been opened here"]


@pytest.mark.parametrize(
    ("handler", "request_made"),
    [
        ("curvature_sample", CurvatureProbe(np.zeros(FEATURES), np.float64(1.0), np.int64(0), np.int64(0))),
        ("group_means", LandmarkRequest(np.float64(1.0), np.int64(5), np.int64(0))),
        ("local_smoothness", SmoothnessRequest(np.int32(1))),
        ("losses_along", Ray(np.zeros(FEATURES), np.zeros(FEATURES), np.float64(0.0))),
        ("overflow_for_a_test", Iterate(np.zeros(FEATURES))),
        ("start_partially", LearnRequest(np.zeros(FEATURES), np.uint8(8))),
    ],
)
def test_what_the_method_of_the_run_does_not_use_is_refused_though_it_can_be_imported(handler, request_made, site):
    """Another method's, a function beside the methods, or the same method's in another variant or with a line search."""
    sentence = f"R1: '{handler}' is not among what the method may ask for"
    assert refusal(site.ask(handler, request_made, 2)) == sentence
    assert site.memory().answer == b""


@pytest.mark.parametrize(
    ("method", "answered"),
    [
        ("fednl", {"start", "learn"}),
        ("fednl:initial_hessian=zero;line_search=aggregate", {"learn", "losses_along"}),
        ("fednl:variant=pp", {"start_partially", "learn_partially"}),
        ("fedndes:line_search=local", {"curvature", "local_step"}),
        ("gd:step_size=0.1", {"local_gradient"}),
        ("localnewton:finish=giant", {"local_model_and_loss", "local_gradient", "local_direction", "losses_along"}),
        ("fedavg", {"local_models", "local_smoothness", "candidate_losses"}),
        ("fedavg:learning_rate=1", {"local_models"}),
    ],
)
def test_a_site_answers_what_its_method_declares(method, answered):
    assert set(at_site(run_of(method))[1]) == answered | {"register", "evaluate_locally"}


def test_only_permitted_handlers_answer(tmp_path):
    site = Site(tmp_path, permissions=replace(OPEN_HANDED, handlers=("register", "start")))
    site.open()
    assert site.ask("register", Hello(np.int64(5)), 2).kind == ANSWER
    assert refusal(site.learn(3, 1)) == "R1: its owner does not permit 'learn', only register, start"
    assert site.memory().exchange == 2  # a refused request is as if it had not come


def test_no_round_beyond_the_permitted_ones_whatever_the_run_said(tmp_path):
    site = Site(tmp_path, permissions=replace(OPEN_HANDED, rounds=5))
    site.open()
    assert site.learn(2, 5).kind == ANSWER
    assert refusal(site.learn(3, 6, committed_rounds=6)) == "R5: round 6 is beyond the 5 rounds of the run"


@pytest.mark.parametrize("method", ["fedns", "fedndes"])
def test_a_sketch_may_not_be_larger_than_permitted(method, tmp_path):
    site = Site(tmp_path, method, replace(OPEN_HANDED, largest_sketch_fraction=0.25), sketch_size=16)
    site.open()
    w = np.zeros(FEATURES)
    request = Iterate(w) if method == "fedns" else SketchRequest(w, np.int32(16))
    assert refusal(site.ask("curvature", request, 2, 1)) == "R3: a sketch of 16 rows is more than 0.25 of its rows"
    if method == "fedndes":  # where the coordinator says how many
        assert site.ask("curvature", SketchRequest(w, np.int32(15)), 3, 1).kind == ANSWER


def test_rows_that_changed_during_a_run_are_not_answered_for(tmp_path):
    site = Site(tmp_path, "fedns")
    site.open()
    assert site.ask("curvature", Iterate(np.zeros(FEATURES)), 2, 1).kind == ANSWER
    site.arguments = (site.arguments[0], Given(make_shards(rows=60, columns=5, sizes=(60,), seed=1)), *site.arguments[2:])
    site.restart()
    assert "rows have changed" in refusal(site.ask("curvature", Iterate(np.zeros(FEATURES)), 3, 2))


def test_a_packet_over_the_permitted_size_is_refused(tmp_path):
    site = Site(tmp_path, permissions=replace(OPEN_HANDED, largest_bytes=1000))
    site.open()
    found = refusal(site.send(ASK, bytes(2000), 2))
    assert found.startswith("a packet of 20") and found.endswith("bytes is over the limit of 1000")


def test_a_run_that_was_not_opened_here_gets_nothing(site):
    assert refusal(site.learn(2, 1, run=OTHER_RUN)) == "the run has not been opened here"


def test_an_open_run_cannot_be_opened_with_other_settings(site):
    assert site.open().kind == ANSWER  # the coordinator may not have got the first answer
    site.spec = replace(site.spec, seed=6)
    assert refusal(site.open()) == "the run has been opened before, with other settings"


@pytest.mark.parametrize("number", [0, 2, 3, 2**32 - 1])
def test_a_request_for_another_site_is_refused(number, site):
    assert refusal(site.open(number=number, run=OTHER_RUN)) == f"this is site 'site-1', not site {number} of the run"
    assert refusal(site.learn(2, 1, number=number)) == f"this is site 1 of the run, the request is for site {number}"


def test_a_method_on_pooled_data_is_refused(tmp_path):
    assert refusal(Site(tmp_path, "newton").open()).startswith("method 'newton' runs on pooled data")


@pytest.mark.parametrize(
    ("forged", "sentence"),
    [
        ({"method": "fednq"}, "unknown method 'fednq': did you mean fedns or fednl"),
        ({"method": "\ud800"}, "unknown method '?'"),  # half of a character
        ({"method": "gd|fedns"}, "unknown method 'gd|fedns'"),
        ({"loss": "logistics"}, "unknown loss 'logistics': did you mean logistic"),
        ({"loss": "auto"}, "unknown loss 'auto'"),
        ({"wire": "float16"}, "unknown wire 'float16'"),
        ({"strength": -1.0}, "strength must be a finite number >= 0, got -1"),
        ({"seed": 2**63}, "seed must be a whole number >= 0 and < 2^63"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"sketch_size": 1.5}, "sketch_size must be a whole number, got 1.5"),
        ({"sites": ["site-0", "site-1", "site-0"]}, "sites must be names, each once"),
        ({"intercept": 1}, "intercept must be true or false, got 1"),
    ],
)
def test_a_forged_description_is_refused_in_the_words_of_a_bad_file(forged, sentence, tmp_path):
    assert refusal(Site(tmp_path).open_forged(**forged)).startswith(f"the description of the run: {sentence}")


def test_targets_that_the_loss_cannot_take_are_refused_at_once(tmp_path):
    regression = make_shards(rows=60, columns=5, sizes=(60,), regression=True)
    assert "logistic" in refusal(Site(tmp_path, shards=regression).open())


@pytest.mark.parametrize(
    ("shards", "sentence"),
    [
        (lambda _: make_shards(), "a site has the rows of one client, not of 5"),
        (lambda _: Shards.from_arrays(np.full((4, 2), np.nan), np.ones(4), [4]), "R7: column 0 has 4 missing"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(shards, sentence, tmp_path):
    assert refusal(Site(tmp_path, shards=shards).open()).startswith(sentence)


def test_a_file_that_is_gone_is_a_refusal_and_no_crash(tmp_path):
    def gone(_):
        raise DataError("rows.csv does not exist")

    assert refusal(Site(tmp_path, shards=gone).open()) == "R7: rows.csv does not exist"


def test_a_handler_that_the_method_lacks(site):
    assert refusal(site.ask("curvature", Iterate(np.zeros(FEATURES)), 2)).startswith("R1: 'curvature' is not among what")


def test_a_request_of_another_kind_than_the_handler_takes(site):
    found = refusal(site.ask("learn", Iterate(np.zeros(FEATURES)), 2))
    assert found == "expected a LearnRequest message, got 'Iterate'"


@pytest.mark.parametrize("length", [0, 5, 7, 1000])
def test_a_vector_of_the_wrong_length_never_reaches_the_kernels(length, site):
    found = refusal(site.ask("learn", LearnRequest(np.zeros(length), np.uint8(8)), 2, 1))
    assert found == f"field 'coefficients' of LearnRequest has shape ({length},), expected (6,)"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_request_that_is_not_finite_is_refused(value, site):
    assert refusal(site.learn(2, 1, w=value)) == "field 'coefficients' of LearnRequest holds NaN or infinite values"


@pytest.mark.parametrize("frame", [b"", b"x", bytes(60), bytes(range(256)), b"\xfd\x01\x01" + bytes(100), b"\xfd\x01\x09"])
def test_garbage_is_refused_in_a_packet_of_no_run(frame, site):
    found = Packet.decode(site.service.answer(frame))
    assert (found.kind, found.run, found.epoch, found.exchange, found.site) == (REFUSAL, bytes(16), 0, 0, 0)
    assert "packet" in found.body.decode()


@pytest.mark.parametrize("body", [b"", b"\0" * 40, bytes(range(250)), b"{}"])
def test_garbage_inside_a_packet_is_refused(body, site):
    before = site.memory()
    assert refusal(site.send(ASK, body, 2))
    assert refusal(site.send(OPEN, body, run=OTHER_RUN))
    assert site.memory() == before and not (site.folder / f"{OTHER_RUN.hex()}.npz").exists()


@pytest.mark.parametrize("kind", [ANSWER, REFUSAL])
def test_a_site_does_not_answer_answers(kind, site):
    assert refusal(site.send(kind, b"")) == "a site answers requests only"


def test_a_replayed_request_is_refused(site):
    site.learn(2, 1)
    site.learn(3, 1, w=0.1)
    kept = site.memory()
    assert refusal(site.learn(2, 1)) == "exchange 2 is over: a request cannot be replayed"
    assert (
        refusal(site.learn(3, 1, w=0.2)) == "exchange 3 is over: a request cannot be replayed"
    )  # another one of that number
    assert refusal(site.learn(4, 0)) == "round 0 is over: this site is in round 1"
    assert_same_memory(site.memory(), kept)


def test_a_request_of_an_older_epoch_is_refused(site):
    site.learn(2, 1, epoch=3)
    assert refusal(site.learn(3, 1, epoch=2)) == "epoch 2 is over: this site is in epoch 3"


def assert_same_memory(one, other):
    assert (one.epoch, one.exchange, one.round, one.answer) == (other.epoch, other.exchange, other.round, other.answer)
    assert_same_arrays(one.arrays, other.arrays)
    assert_same_arrays(one.before_round, other.before_round)


def assert_same_arrays(one, other):
    assert {name: array.tobytes() for name, array in one.items()} == {name: a.tobytes() for name, a in other.items()}


def test_the_same_request_again_gives_the_same_bytes_and_changes_nothing(site):
    first = site.learn(2, 1, w=0.3)
    kept = site.memory()
    assert "fednl_hessian" in kept.arrays
    for _ in range(3):
        assert site.learn(2, 1, w=0.3) == first
        site.restart()
    assert_same_memory(site.memory(), kept)
    following = site.learn(3, 1, w=0.3)
    assert following.body != first.body  # had it been asked once more, the Hessian would have been corrected twice


def test_a_round_that_is_played_again_starts_from_where_it_began(site):
    site.learn(2, 1, w=0.1)
    once = site.learn(3, 2, w=0.3, committed_rounds=2)
    after = site.memory().arrays
    again = site.learn(4, 2, w=0.3, committed_rounds=2, epoch=1)
    assert again.body == once.body
    assert_same_arrays(site.memory().arrays, after)


def test_a_round_that_went_on_without_the_site_is_taken_back(site):
    """Its answer in round 2 came too late: in round 3 it must not build on what nobody has used."""
    site.learn(2, 1, w=0.1)
    kept = site.memory().arrays
    site.learn(3, 2, w=0.3, committed_rounds=2)
    assert_same_arrays(site.memory().before_round, kept)
    late = site.learn(5, 3, w=0.4, committed_rounds=2, epoch=1)
    assert_same_arrays(site.memory().before_round, kept)
    other = Site(site.folder / "other")
    other.open()
    other.learn(2, 1, w=0.1)
    assert other.learn(5, 3, w=0.4, committed_rounds=2, epoch=1).body == late.body


@pytest.mark.parametrize(
    ("method", "exchange"),
    [
        ("fednl:variant=pp", 7),
        ("fednl:initial_hessian=zero", 4),
        ("fednl:line_search=aggregate", 5),  # the correction
        ("fednl:line_search=aggregate", 9),  # the search after it
        ("fednew", 6),
        ("qfednew", 6),
        ("shed", 4),
        ("shed", 7),
    ],
)
def test_an_answer_that_is_lost_leaves_no_trace(method, exchange, tmp_path):
    """The same bits as if the request had not arrived in the first place."""

    def run(folder, lose_the_answer):
        policy = Policy(patience_seconds=0.0, absent="renormalise")
        there = Federation(make_shards(sizes=(90, 60, 150)), tmp_path / folder, run_of(method, rounds=4), policy)

        def lost(site, number):
            if site != "site-1" or number != exchange:
                return ""
            if lose_the_answer:
                there.transport.services[site](last[site])
            return "lost"

        last: dict[str, bytes] = {}
        usual = there.transport.exchange

        def exchange_noting(requests, timeout_seconds):
            last.update(requests)
            return usual(requests, timeout_seconds)

        there.transport.exchange, there.transport.before = exchange_noting, lost
        history = there.start()
        assert "round_lost" in {event["event"] for event in there.events}
        return history.coefficients.tobytes()

    assert run("answer", True) == run("request", False)


def test_a_new_object_for_every_packet_is_as_good_as_one(tmp_path):
    steady, restarted = Site(tmp_path / "a"), Site(tmp_path / "b")
    for exchange, (round, epoch, committed_rounds) in enumerate(
        [(1, 0, 0), (1, 0, 0), (2, 0, 2), (2, 1, 2), (3, 1, 3)], start=2
    ):
        answers = []
        for site in (steady, restarted):
            site.open()
            answers.append(site.learn(exchange, round, w=0.1 * exchange, epoch=epoch, committed_rounds=committed_rounds))
            restarted.restart()
        assert answers[0].kind == ANSWER and answers[0] == answers[1]
    assert_same_memory(steady.memory(), restarted.memory())


def test_two_objects_over_one_folder_agree_on_what_has_been_asked(tmp_path):
    """As when an engine keeps a process for the next message while another answers this one."""
    one, other, alone = Site(tmp_path / "shared"), Site(tmp_path / "shared"), Site(tmp_path / "alone")
    one.open()
    alone.open()
    expected = [alone.learn(exchange, 1, w=0.1 * exchange) for exchange in range(2, 7)]
    assert [site.learn(e, 1, w=0.1 * e) for e, site in enumerate([one, other, other, one, other], start=2)] == expected
    assert refusal(one.learn(5, 1, w=0.5)) == "exchange 5 is over: a request cannot be replayed"


def test_two_runs_do_not_share_a_memory(site):
    site.learn(2, 1, w=0.3)
    site.open(run=OTHER_RUN)
    assert site.memory(OTHER_RUN).arrays == {}
    assert site.learn(2, 1, w=0.3, run=OTHER_RUN).body == site.learn(2, 1, w=0.3).body


def test_a_damaged_memory_is_a_refusal_and_no_crash(site):
    (site.folder / f"{RUN.hex()}.npz").write_bytes(b"half a file")
    site.restart()
    assert refusal(site.learn(2, 1)) == "what this site remembers of the run is damaged: start a new run"


@pytest.mark.parametrize(
    "wrong",
    [{"number": 3}, {"number": -1}, {"epoch": -1}, {"exchange": True}, {"round": 0.0}, {"data": 5}, {"digest": None}],
    ids=str,
)
def test_a_memory_that_no_site_writes_is_not_taken_though_it_is_undamaged(wrong, site):
    """Each mark and count by itself, and the first place that a run of these sites has not."""
    assert len(site.spec.sites) == 3 and site.learn(2, 1).kind == ANSWER
    replace(site.memory(), **wrong).save(site.folder / f"{RUN.hex()}.npz")
    site.restart()
    assert refusal(site.learn(3, 1)) == "another version of fedns wrote what this site remembers: start a new run"


def test_tightened_permissions_hold_for_a_run_that_is_open(site):
    assert site.learn(2, 1).kind == ANSWER
    site.restart(replace(OPEN_HANDED, handlers=("register",)))
    assert refusal(site.learn(3, 1)) == "R1: its owner does not permit 'learn', only register"


class Overflow(Message):
    value: Payload = wire(discloses="nothing")


@on_client(Iterate, Overflow)
def overflow_for_a_test(problem, clients, request):
    return Overflow(value=np.array([np.inf]))


@on_client(Iterate, Overflow)
def bug_for_a_test(problem, clients, request):
    raise IndexError("list index\nout of range")


def with_handlers_for_tests(job):
    problem, handlers = at_site(job)
    return problem, {**handlers, **{handler.__name__: handler for handler in (overflow_for_a_test, bug_for_a_test)}}


def test_a_result_that_is_not_finite_stays_at_the_site(tmp_path):
    site = Site(tmp_path, build=with_handlers_for_tests)
    site.open()
    found = site.ask("overflow_for_a_test", Iterate(np.zeros(FEATURES)), 2)
    assert (found.kind, found.body) == (OVERFLOW, b"field 'value' of Overflow holds NaN or infinite values")
    assert site.memory().answer == b""


def test_a_bug_in_a_handler_is_a_refusal_in_one_line(tmp_path, caplog):
    site = Site(tmp_path, build=with_handlers_for_tests)
    site.open()
    assert refusal(site.ask("bug_for_a_test", Iterate(np.zeros(FEATURES)), 2)) == "R7: IndexError: list index out of range"
    assert "Traceback" in caplog.text
    assert site.learn(3, 1).kind == ANSWER


def test_the_ledger_lists_every_message_with_its_bytes(site):
    answers = [site.ask("register", Hello(np.int64(5)), 2), site.learn(3, 1), site.learn(3, 1), site.learn(2, 1)]
    request = len(encode(LearnRequest(np.zeros(FEATURES), np.uint8(8)), Envelope(1, handler="learn"), DOUBLE))
    hello = len(encode(Hello(np.int64(5)), Envelope(0, handler="register"), DOUBLE))
    facts = [(e["direction"], e["kind"], e["bytes"], e["round"], e["exchange"]) for e in site.ledger()]
    lengths = [len(answer.body) for answer in answers]
    assert facts == [
        ("downlink", "Opening", len(site.spec.agreed()), 0, 1),
        ("downlink", "Hello", hello, 0, 2),
        ("uplink", "Registration", lengths[0], 0, 2),
        ("downlink", "LearnRequest", request, 1, 3),
        ("uplink", "Correction", lengths[1], 1, 3),
        ("downlink", "Repetition", request, 1, 3),
        ("uplink", "Repetition", lengths[2], 1, 3),
        ("uplink", "Refusal", lengths[3], 0, 2),
    ]
    assert {entry["run"] for entry in site.ledger()} == {RUN.hex()}
    correction = site.ledger()[4]
    assert correction["purpose"] == "learn"
    message, _ = decode(Correction, answers[1].body)
    assert correction["fields"] == {name: list(np.shape(getattr(message, name))) for name in Correction.specs()}


def test_the_ledgers_of_the_sites_add_up_to_what_travelled(tmp_path):
    there = Federation(make_shards(sizes=(90, 60, 150)), tmp_path, run_of("fedns", rounds=3))
    down, up = dict.fromkeys(there.spec.sites, 0), dict.fromkeys(there.spec.sites, 0)
    head = len(Packet(ASK, RUN, 0, 0, 0).encode())

    def counted(site, answer):
        def count(frame):
            reply = answer(frame)
            down[site] += len(frame) - head
            # What opens a run is answered with the site's name: no message of a method.
            up[site] += len(reply) - head if Packet.decode(frame).kind == ASK else 0
            return reply

        return count

    there.transport = InProcess({site: counted(site, answer) for site, answer in there.transport.services.items()})
    there.start()
    for site in there.spec.sites:
        entries = [json.loads(line) for line in (tmp_path / site / LEDGER_FILE).read_text().splitlines()]
        assert sum(e["bytes"] for e in entries if e["direction"] == "downlink") == down[site]
        assert sum(e["bytes"] for e in entries if e["direction"] == "uplink") == up[site]


@pytest.mark.parametrize("absent", ["wait", "renormalise"])
@pytest.mark.parametrize(
    ("permissions", "sentence"),
    [
        (replace(OPEN_HANDED, smallest_rows=70), "site 'site-1': refuses: R2: taking part needs at least 70 rows"),
        (replace(OPEN_HANDED, rounds=3), "site 'site-.': refuses: R5: it permits 3 rounds, the run asks for 5"),
        (replace(OPEN_HANDED, handlers=("learn",)), "refuses: R1: its owner does not permit 'register', only learn"),
    ],
)
def test_the_coordinator_reads_why(permissions, sentence, absent, tmp_path):
    policy = Policy(patience_seconds=600.0, absent=absent)  # a refusal is final: nobody waits for it to change
    shards = make_shards(sizes=(90, 60, 150))
    with pytest.raises(FederationError, match=sentence):
        Federation(shards, tmp_path, run_of("fedns"), policy, permissions).start()


def test_a_refusal_in_mid_run_stops_it_or_leaves_the_site_out(tmp_path):
    shards = make_shards(sizes=(90, 60, 150))
    rules = replace(OPEN_HANDED, largest_sketch_fraction=0.4)
    description = run_of("fedns", sketch_size=32)
    sentence = "site 'site-1': refuses: R3: a sketch of 32 rows is more than 0.4 of its rows"
    with pytest.raises(FederationError, match=sentence):
        Federation(shards, tmp_path / "a", description, Policy(absent="wait"), rules).start()
    there = Federation(shards, tmp_path / "b", description, Policy(absent="renormalise"), rules)
    assert there.start().records[-1].diagnostics["sites_present"] == 2.0
    assert {event["site"] for event in there.events if event["event"] == "refused"} == {"site-1"}
