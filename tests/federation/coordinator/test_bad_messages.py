"""Bad messages: whatever one site sends, it is the one that is named, and the others go on without it or the run stops."""

import re
from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of

from fedns.core.cohort import Registration
from fedns.core.errors import MessageError
from fedns.core.messages import WIRE_PRECISIONS, Message, Payload, wire
from fedns.core.messages.encoding import decode, encode
from fedns.core.shards import Shards
from fedns.federation.protocol.absence import FederationError
from fedns.federation.protocol.packets import ANSWER, REFUSAL, Packet
from fedns.federation.protocol.transport import Arrival
from fedns.methods.auto.messages import ColumnScales, HessianRoot
from fedns.methods.curvature import SketchedCurvature
from fedns.methods.fednl import Correction, InitialHessian, InitialModel
from fedns.methods.newton import Curvature
from fedns.methods.searches import LossesAlong
from fedns.models.evaluation import LocalEvaluation
from fedns.numerics.small_ints import encode_small_ints
from fedns.runs.over_sites import Policy

SHARDS = make_shards(sizes=(90, 60, 150))
LIAR, ROUND = "site-1", 2
DOUBLE = WIRE_PRECISIONS["float64"]
GO_ON = Policy(patience_seconds=0.0, absent="renormalise")
STOP = Policy(patience_seconds=0.0, absent="wait")


def federation(tmp_path, policy=GO_ON, method="fednewton", **changes):
    return Federation(SHARDS, tmp_path, run_of(method, rounds=3, **changes), policy)


def lying(federation, kind, lie, round=ROUND):
    """The liar's answers of this kind, in this round and later ones, become what `lie(message, envelope)` gives."""

    def after(site, payload):
        packet = Packet.decode(payload)
        if site != LIAR or packet.kind != ANSWER:
            return payload
        try:
            message, envelope = decode(kind, packet.body)
        except MessageError:  # an answer of another kind
            return payload
        return payload if envelope.round < round else replace(packet, body=lie(message, envelope)).encode()

    federation.transport.after = after
    return federation


def with_values(**changes):
    """A lie that changes fields by these functions and encodes them properly."""

    def lie(message, envelope):
        values = {name: getattr(message, name) for name in message.specs()}
        values |= {name: change(values[name]) for name, change in changes.items()}
        return encode(type(message)(**values), envelope, DOUBLE)

    return lie


def with_bytes(change):
    """A lie that changes the encoded message."""
    return lambda message, envelope: change(encode(message, envelope, DOUBLE))


def with_envelope(**changes):
    return lambda message, envelope: encode(message, replace(envelope, **changes), DOUBLE)


def one_entry(value):
    def change(array):
        array = array.copy()
        array.flat[-1] = value
        return array

    return change


def forged(name, specs):
    """A message class of this kind with other fields."""
    return type(name, (Message,), {"__annotations__": dict.fromkeys(specs, Payload), **specs})


def whole_matrix(message, envelope):
    square = forged("Curvature", {"gradient": wire("features"), "hessian_triangle": wire("features", "columns")})
    features = message.gradient.size
    return encode(square(message.gradient, np.triu(np.ones((features, features)))), envelope, DOUBLE)


def whole_numbers(message, envelope):
    typed = forged("Curvature", {"gradient": wire("features", dtype="int64"), "hessian_triangle": wire("entries")})
    return encode(typed(message.gradient.astype(np.int64), message.hessian_triangle), envelope, DOUBLE)


def other_fields(message, envelope):
    renamed = forged("Curvature", {"slope": wire("features"), "hessian_triangle": wire("entries")})
    return encode(renamed(message.gradient, message.hessian_triangle), envelope, DOUBLE)


CURVATURE_LIES = {
    "nan": (with_values(gradient=one_entry(np.nan)), "field 'gradient' of Curvature holds NaN or infinite values"),
    "infinity": (
        with_values(hessian_triangle=one_entry(np.inf)),
        "field 'hessian_triangle' of Curvature holds NaN or infinite",
    ),
    "minus infinity": (with_values(gradient=one_entry(-np.inf)), "field 'gradient' of Curvature holds NaN or infinite"),
    "1e300": (with_values(gradient=one_entry(1e300)), r"field 'gradient' of Curvature holds 1e\+300"),
    "a billion times the others": (with_values(gradient=lambda g: 1e12 * g), "field 'gradient' is .* times as large"),
    "too short": (
        with_values(gradient=lambda g: g[:-1]),
        r"field 'gradient' of Curvature has shape \(13,\), expected \(14,\)",
    ),
    "too many axes": (with_values(gradient=lambda g: g[None]), "field 'gradient' of Curvature has 2 axes, expected 1"),
    "empty": (with_values(gradient=lambda g: g[:0]), r"field 'gradient' of Curvature has shape \(0,\)"),
    "wrong dtype": (whole_numbers, "field 'gradient' of Curvature has dtype int64, expected float64 or float32"),
    "wrong fields": (other_fields, "Curvature must have fields gradient, hessian_triangle, got slope, hessian_triangle"),
    "whole matrix": (whole_matrix, "field 'hessian_triangle' of Curvature has 2 axes, expected 1"),
    "half a triangle": (
        with_values(hessian_triangle=lambda h: h[:-1]),
        r"field 'hessian_triangle' of Curvature has shape \(104,\), expected \(105,\)",
    ),
    "indefinite": (with_values(hessian_triangle=lambda h: -h), "has the eigenvalue .*: no convex loss has that"),
    "barely indefinite": (with_values(hessian_triangle=one_entry(-1e-3)), "has the eigenvalue .*: no convex loss has that"),
    "earlier round": (with_envelope(round=ROUND - 1), "a reply for round 1 of site 1 came in round 2"),
    "later round": (with_envelope(round=99), "a reply for round 99 of site 1 came in round 2"),
    "as another site": (with_envelope(client=0), "a reply for round 2 of site 0 came in round 2"),
    "truncated": (with_bytes(lambda b: b[:-1]), "Curvature message is cut short"),
    "header only": (with_bytes(lambda b: b[:30]), "Curvature message is cut short"),
    "nothing": (with_bytes(lambda b: b""), "Curvature message is cut short: 0 bytes"),
    "too long": (with_bytes(lambda b: b + b"\0"), "Curvature message has 1 bytes too many"),
    "another kind": (
        lambda message, envelope: encode(LossesAlong(np.zeros(13)), envelope, DOUBLE),
        "expected a Curvature message, got 'LossesAlong'",
    ),
    "noise": (with_bytes(lambda b: bytes(range(256))), "not a fedns message of version 3"),
    "other version": (with_bytes(lambda b: b[:1] + b"\x07" + b[2:]), "not a fedns message of version 3"),
}


def assert_goes_on(federation, sentence, event="rejected"):
    """The run ends well; only the liar was turned away, and for this reason."""
    history = federation.start()
    assert history.records[-1].round == federation.spec.rounds
    assert np.isfinite(history.coefficients).all() and np.isfinite(history.objective).all()
    found = [e for e in federation.events if e["event"] in ("rejected", "refused", "away")]
    assert {(e["event"], e["site"]) for e in found} == {(event, LIAR)}
    assert re.search(sentence, found[0]["reason"]), found[0]["reason"]
    return history


def assert_stops(federation, sentence):
    with pytest.raises(FederationError, match=f"site '{LIAR}': .*{sentence}"):
        federation.start()
    assert LIAR in {e["site"] for e in federation.events if e["event"] == "rejected"}


@pytest.mark.parametrize("name", CURVATURE_LIES)
def test_a_bad_reply_is_rejected_and_the_others_go_on(name, tmp_path):
    lie, sentence = CURVATURE_LIES[name]
    there = lying(federation(tmp_path), Curvature, lie)
    history = assert_goes_on(there, sentence)
    assert [r.diagnostics.get("sites_present", 3.0) for r in history.records[1:]] == [3.0, 2.0, 2.0]
    assert there.cohort.link.journal.statuses[1].rejected == 2  # once in each of the rounds 2 and 3


@pytest.mark.parametrize("name", CURVATURE_LIES)
def test_a_bad_reply_stops_a_run_that_needs_every_site(name, tmp_path):
    lie, sentence = CURVATURE_LIES[name]
    assert_stops(lying(federation(tmp_path, STOP), Curvature, lie), sentence)


def test_what_is_left_is_the_run_without_the_liar(tmp_path):
    """A rejected reply has no more influence than none at all."""
    poisoned = lying(federation(tmp_path / "a"), Curvature, with_values(gradient=one_entry(1e300))).start()
    absent = federation(tmp_path / "b")
    absent.transport.before = lambda site, exchange: "gone" if site == LIAR and exchange > 4 else ""
    assert poisoned.coefficients.tobytes() == absent.start().coefficients.tobytes()


@pytest.mark.parametrize(
    ("method", "kind", "lie", "sentence"),
    [
        (
            "fednewton:line_search=aggregate",
            LossesAlong,
            with_values(losses=lambda x: x[:5]),
            r"'losses' has shape \(5,\), most",
        ),
        (
            "fednewton:line_search=aggregate",
            LossesAlong,
            with_values(losses=lambda x: np.tile(x, 99)),
            r"'losses' has shape",
        ),
        ("fednl", Correction, with_values(values=lambda v: v[:0]), "Correction has 0 values for 1 vectors, 0 indices"),
        ("fednl", Correction, with_values(vectors=lambda v: v[:0]), "Correction has 1 values for 0 vectors, 0 indices"),
        ("fednl:compressor=topk", Correction, with_values(indices=one_entry(105)), "'indices' of Correction points outside"),
        ("fednl:compressor=topk", Correction, with_values(indices=one_entry(-1)), "'indices' of Correction points outside"),
        ("fednl:compressor=topk", Correction, with_values(shift=lambda s: s[:0]), r"'shift' has shape \(0,\), most others"),
        (
            "fedns",
            SketchedCurvature,
            with_values(sketched_root=lambda y: y[:, :5]),
            r"'sketched_root' .* has shape \(8, 5\)",
        ),
    ],
)
def test_shapes_that_only_the_method_knows_are_checked_too(method, kind, lie, sentence, tmp_path):
    assert_goes_on(lying(federation(tmp_path / "a", method=method), kind, lie), sentence)
    assert_stops(lying(federation(tmp_path / "b", STOP, method), kind, lie), sentence)


def test_a_sketch_with_too_many_rows_for_the_sum_names_its_site(tmp_path):
    there = federation(tmp_path, method="fedns:aggregation=sum;line_search=aggregate")
    lying(there, SketchedCurvature, with_values(sketched_root=lambda y: np.concatenate([y, y])))
    with pytest.raises(MessageError, match=f"site '{LIAR}': field 'sketched_root' .* has 16 rows, at most 8 fit"):
        there.start()


@pytest.mark.parametrize(
    ("method", "kind"), [("fednl", InitialHessian), ("newtonzero", InitialHessian), ("fednl:variant=pp", InitialModel)]
)
@pytest.mark.parametrize("change", [lambda h: h[:-3], lambda h: -h], ids=["short", "indefinite"])
def test_a_bad_hessian_at_the_start(method, kind, change, tmp_path):
    lie = with_values(hessian_triangle=change)
    assert_goes_on(
        lying(federation(tmp_path / "a", method=method), kind, lie, round=0), "field 'hessian_triangle' of Initial"
    )
    assert_stops(lying(federation(tmp_path / "b", STOP, method), kind, lie, round=0), "field 'hessian_triangle' of Initial")


@pytest.mark.parametrize("value", [np.nan, 1e300], ids=str)
def test_a_bad_evaluation_is_left_out_of_the_objective_or_stops_the_run(value, tmp_path):
    lie = with_values(loss=lambda loss: np.float64(value))
    assert_goes_on(lying(federation(tmp_path / "a"), LocalEvaluation, lie), "field 'loss' of LocalEvaluation holds")
    assert_stops(lying(federation(tmp_path / "b", STOP), LocalEvaluation, lie), "field 'loss' of LocalEvaluation holds")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"total_weight": lambda w: -w}, "Registration states a weight of -60 for 60 rows"),
        ({"total_weight": lambda w: w * 0}, "Registration states a weight of 0 for 60 rows"),
        ({"total_weight": lambda w: 1e9 * w}, r"Registration states a weight of 6e\+10 for 60 rows"),
        ({"total_weight": lambda w: w * np.nan}, "field 'total_weight' of Registration holds NaN"),
        ({"total_weight": lambda w: w + 1e300}, "field 'total_weight' of Registration holds 1e"),
        ({"num_rows": lambda n: -n}, "Registration states -60 rows and 13 columns"),
        ({"num_rows": lambda n: n + 2**60}, "Registration states .* rows and 13 columns"),
        ({"num_columns": lambda n: n * 0}, "Registration states 60 rows and 0 columns"),
        ({"num_columns": lambda n: n + 2**40}, "Registration states 60 rows and .* columns"),
        (
            {"num_rows": lambda n: n * 10**9, "total_weight": lambda w: w * 1e9},
            "field 'num_rows' is 4e.08 times as large as that of the median site",
        ),
    ],
)
@pytest.mark.parametrize("policy", [GO_ON, STOP], ids=["renormalise", "wait"])
def test_a_bad_registration_stops_the_start(changes, sentence, policy, tmp_path):
    """Whoever is to take part must be there at the start: no policy leaves a site out of the weights."""
    there = lying(federation(tmp_path, policy), Registration, with_values(**changes), round=0)
    assert_stops(there, sentence)


def test_a_site_with_other_columns_is_named(tmp_path):
    there = lying(federation(tmp_path), Registration, with_values(num_columns=lambda n: n + 1), round=0)
    with pytest.raises(MessageError, match=f"site '{LIAR}' has 14 columns, site 'site-0' has 13"):
        there.start()


def tampered(federation, change, exchange=5):
    """The liar's packets, from this exchange on, become what `change(packet)` gives."""

    def after(site, payload):
        packet = Packet.decode(payload)
        return change(packet).encode() if site == LIAR and packet.exchange >= exchange else payload

    federation.transport.after = after
    return federation


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(p, exchange=p.exchange - 1),
        lambda p: replace(p, exchange=p.exchange + 1),
        lambda p: replace(p, epoch=p.epoch + 1),
        lambda p: replace(p, site=0),
        lambda p: replace(p, run=bytes(reversed(p.run))),
        lambda p: replace(p, kind=2),
        lambda p: replace(p, kind=REFUSAL, run=bytes(reversed(p.run))),
        lambda p: replace(p, kind=REFUSAL, exchange=p.exchange - 1),
    ],
    ids=["old exchange", "future exchange", "other epoch", "other site", "other run", "a request", "refusal of other run",
         "refusal of before"],
)  # fmt: skip
def test_an_answer_to_another_question_is_rejected(change, tmp_path):
    sentence = r"came where that of epoch \d, exchange \d+, site 1 was expected: a replay\?"
    assert_goes_on(tampered(federation(tmp_path / "a"), change), sentence)
    assert_stops(tampered(federation(tmp_path / "b", STOP), change), sentence)


def test_an_older_epoch_is_rejected(tmp_path):
    """The round is repeated because of site-0; the liar answers as if it were the first time."""
    there = federation(tmp_path)
    there.transport.before = lambda site, exchange: "gone" if site == "site-0" and exchange == 4 else ""
    tampered(there, lambda p: replace(p, epoch=0))
    there.start()
    reasons = [e["reason"] for e in there.events if e["event"] == "rejected" and e["site"] == LIAR]
    assert reasons[0].startswith("the answer of epoch 0, exchange 5, site 1 came where that of epoch 1, exchange 5")


def test_a_replayed_answer_is_rejected(tmp_path):
    """The very bytes of an answer that was fine when it came first."""
    there, heard = federation(tmp_path), []

    def after(site, payload):
        if site == LIAR:
            heard.append(payload)
        return heard[3] if site == LIAR and len(heard) > 4 else payload

    there.transport.after = after
    assert_goes_on(there, "exchange 4, site 1 came where that of epoch 0, exchange 5, site 1 was expected: a replay")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda b: b[:-1], "a packet of .* bytes arrived with"),
        (lambda b: b[:10], "a packet of 10 bytes is cut short"),
        (lambda b: b"", "a packet of 0 bytes is cut short"),
        (lambda b: b + b"!", "a packet of .* bytes arrived with"),
        (lambda b: b"\0" * 200, "not a fedns packet of version 2: it starts with 000000"),
        (lambda b: b + bytes(100_000), "a packet of .* bytes is over the limit of 50000"),
    ],
    ids=["truncated", "head cut", "nothing", "too long", "noise", "oversized"],
)
def test_a_broken_packet_is_rejected(change, sentence, tmp_path):
    for folder, absent, check in (("a", "renormalise", assert_goes_on), ("b", "wait", assert_stops)):
        there = federation(tmp_path / folder, Policy(patience_seconds=0.0, absent=absent, largest_bytes=50_000))
        count = iter(range(1000))
        there.transport.after = lambda site, b, n=count: change(b) if site == LIAR and next(n) > 3 else b
        check(there, sentence)


def arriving(federation, extra):
    """The arrivals of every exchange, with what `extra(requests, arrivals)` makes of them."""
    usual = federation.transport.exchange

    def exchange(requests, timeout_seconds):
        yield from extra(requests, list(usual(requests, timeout_seconds)))

    federation.transport.exchange = exchange
    return federation


def assert_undisturbed(federation, tmp_path):
    """The extra answers change nothing, and each is in the event log."""
    plain = Federation(SHARDS, tmp_path / "plain", federation.spec, federation.spec.policy).start()
    assert federation.start().coefficients.tobytes() == plain.coefficients.tobytes()
    events = [e for e in federation.events if e["event"] == "rejected"]
    assert len(events) == federation.transport.exchanges
    assert {e["reason"] for e in events} == {"an answer that nobody asked for, or a second one"}
    return {e["site"] for e in events}


def test_an_answer_of_a_stranger_is_rejected(tmp_path):
    there = arriving(federation(tmp_path, STOP), lambda _, found: [Arrival("stranger", found[0].payload), *found])
    assert assert_undisturbed(there, tmp_path) == {"stranger"}


def test_only_the_first_of_two_answers_counts(tmp_path):
    def twice(requests, found):
        (liars,) = (a for a in found if a.site == LIAR)
        packet = Packet.decode(liars.payload)
        return [*found, replace(liars, payload=replace(packet, body=bytes(8)).encode())]

    assert assert_undisturbed(arriving(federation(tmp_path, STOP), twice), tmp_path) == {LIAR}


def test_a_good_answer_does_not_make_up_for_a_bad_one_or_a_refusal_before_it(tmp_path):
    for kind, event in ((ANSWER, "rejected"), (REFUSAL, "refused")):

        def twice(requests, found, kind=kind):
            if LIAR not in requests or Packet.decode(found[0].payload).exchange < 5:
                return found
            (liars,) = (a for a in found if a.site == LIAR)
            packet = Packet.decode(liars.payload)
            return [replace(liars, payload=replace(packet, kind=kind, body=b"no").encode()), *found]

        there = arriving(federation(tmp_path / event), twice)
        there.start()
        bad = [(e["event"], e["site"], e["reason"]) for e in there.events if e["event"] in ("rejected", "refused")]
        assert bad[0][:2] == (event, LIAR)
        assert bad[1] == ("rejected", LIAR, "an answer that nobody asked for, or a second one")
        there = arriving(federation(tmp_path / f"{event} and stop", STOP), twice)
        with pytest.raises(FederationError, match=f"site '{LIAR}': "):
            there.start()


def test_an_answer_of_a_site_that_is_not_asked_any_more_is_rejected(tmp_path):
    """It is left out of the round, but goes on sending."""
    there = federation(tmp_path)
    there.transport.before = lambda site, exchange: "gone" if site == LIAR and exchange == 5 else ""
    late = Arrival(LIAR, Packet(ANSWER, bytes(16), 0, 5, 1).encode())
    arriving(there, lambda requests, found: found if LIAR in requests else [late, *found])
    assert np.isfinite(there.start().coefficients).all()
    assert LIAR in {e["site"] for e in there.events if e["event"] == "rejected"}


def test_the_words_of_a_refusal_are_made_fit_to_show(tmp_path):
    text = b"\x1b[2Jno\nand\0 again no " + b"x" * 10**6
    there = tampered(federation(tmp_path, STOP), lambda p: replace(p, kind=REFUSAL, body=text))
    with pytest.raises(FederationError, match=r"refuses: \[2Jno and again no x+$") as stopped:
        there.start()
    assert len(str(stopped.value)) < 1100 and str(stopped.value).isprintable()


def test_where_no_majority_agrees_nobody_is_believed(tmp_path):
    shards = make_shards(rows=150, sizes=(90, 60))
    there = Federation(shards, tmp_path, run_of("fednewton:line_search=aggregate", sites=2, rounds=4), STOP)
    lying(there, LossesAlong, with_values(losses=lambda x: x[:5]))
    with pytest.raises(FederationError, match=r"site 'site-0': .* \(13,\), another has \(5,\); site 'site-1': .* \(5,\)"):
        there.start()


def test_an_honest_site_among_sites_of_low_rank_is_believed(tmp_path):
    """Four sites have fewer rows than columns: what they send of their spectrum is rounding errors, the fifth's is not."""
    shards = make_shards(rows=180, sizes=(8, 9, 150, 6, 7))
    there = Federation(shards, tmp_path, run_of("shed", sites=5, rounds=10), STOP)
    assert there.start().records[-1].round == 10
    assert "rejected" not in {e["event"] for e in there.events}


def unit_columns(columns, clients=3, rows=400):
    """Columns of ones and minus ones, the scale of all of which is sent as 0, at every client."""
    random = np.random.default_rng(columns)
    features = random.choice([-1.0, 1.0], size=(rows * clients, columns))
    targets = np.where(features[:, :6].sum(axis=1) + random.normal(size=rows * clients) > 0, 1.0, -1.0)
    return Shards.from_arrays(features, targets, [rows] * clients)


@pytest.mark.parametrize("columns", [180, 320])
def test_many_columns_of_one_size_reach_the_coordinator(columns, tmp_path):
    """A zero takes a quarter of a bit: a message has more integers than it has bits."""
    there = Federation(unit_columns(columns), tmp_path, run_of("auto", rounds=3))
    history = there.start()
    assert len(history.records) == 4 and not [e for e in there.events if e["event"] == "rejected"]


def zeros_beyond_belief(message, envelope):
    """The right number of columns, in blocks of zeros of which there are too few."""
    raw = encode(message, envelope, DOUBLE)
    return raw[: -len(encode_small_ints(message.exponents))] + bytes([16, 255, 255])


AUTO_LIES = {
    "zeros beyond belief": (ColumnScales, zeros_beyond_belief, "field 'exponents' of ColumnScales: .*cut short", 1),
    "units": (ColumnScales, with_values(exponents=lambda e: e + 10_000), "'exponents' of ColumnScales has units beyond", 1),
    "no order": (HessianRoot, with_values(order=lambda o: o * 0), "'order' of HessianRoot must have every column once", 1),
    "root": (HessianRoot, with_values(exponents=lambda e: e + 10_000), "'exponents' of HessianRoot has units beyond", 1),
}


@pytest.mark.parametrize("name", AUTO_LIES)
def test_bad_integers_are_refused_in_a_sentence(name, tmp_path):
    kind, lie, sentence, first = AUTO_LIES[name]
    shards, spec = unit_columns(180), run_of("auto", rounds=3)
    if kind is HessianRoot:  # site-1 is the first who is asked for one
        shards = make_shards(rows=1200, columns=30, sizes=(300,) * 4)
        spec = run_of("auto:prefer=balanced", sites=4, rounds=3)
    assert_stops(lying(Federation(shards, tmp_path, spec, STOP), kind, lie, round=first), sentence)
