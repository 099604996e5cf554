"""Requests that no honest run makes: other handlers, more of everything, refusals that talk."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Attacker, Refused, error, recovered
from tests.federation.in_process import Given

from fedns.core.shards import Shards
from fedns.federation.site.service import SiteService
from fedns.methods.curvature import Iterate, SketchRequest
from fedns.methods.exchanges.effective_dimension import CurvatureProbe, curvature_sample
from fedns.methods.exchanges.landmarks import LandmarkRequest, group_means
from fedns.methods.fedavg import CandidateModels, SmoothnessRequest
from fedns.numerics.rng import generator, stream_keys
from fedns.sketches import SRHT, Gaussian

RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(300, 8))
Y = np.where(X @ RANDOM.normal(size=8) + RANDOM.normal(size=300) > 0, 1.0, -1.0)
SHARDS = Shards.from_arrays(X, Y, [300])
ZERO = np.zeros(9)


def sample_curvature(folder, permissions, handlers):
    """As many combinations of rows as there are rows, with a seed of the attacker's choice."""
    attacker = Attacker(SHARDS, folder, permissions, "fedns", handlers)
    if not handlers:
        attacker._handlers = {**attacker._handlers, curvature_sample.__name__: curvature_sample}
    probe = CurvatureProbe(ZERO, np.float64(1.0), np.int64(77), np.int64(0))
    sketch = attacker.ask(curvature_sample.__name__, probe).sketched_root
    matrix = Gaussian(300).matrix(300, stream_keys(77, "effective dimension", 0, [0])[0])
    found = np.linalg.solve(matrix, 2 * np.sqrt(300) * sketch)[:, :-1]
    return recovered(found, X)


def test_a_site_that_answered_other_handlers_would_give_every_row_away(tmp_path):
    assert sample_curvature(tmp_path, GUARD_OFF, (curvature_sample,)) == 1.0


@pytest.mark.parametrize("permissions", [GUARD_OFF, DEFAULTS])
def test_a_site_answers_what_the_method_declares_and_nothing_else(permissions, tmp_path, passes):
    with pytest.raises(Refused, match=r"^R1: 'curvature_sample' is not among what the method may ask for$"):
        sample_curvature(tmp_path, permissions, ())
    assert passes == []


def means_of_chosen_rows(folder, permissions, handlers):
    """Of one group a site takes the mean over 40 rows that the seed names: as many seeds as rows, and solve for the rows."""
    attacker = Attacker(SHARDS, folder, permissions, "fedns", handlers)
    attacker._handlers = {**attacker._handlers, group_means.__name__: group_means}
    members, means = np.zeros((360, 300)), np.zeros((360, 8))
    for seed in range(360):
        members[seed, generator(seed, "landmarks", client=0).choice(300, 40, replace=False)] = 1 / 40
        request = LandmarkRequest(np.float64(1e-9), np.int64(5), np.int64(seed))
        means[seed] = attacker.ask(group_means.__name__, request).means
    found = np.linalg.lstsq(members, means, rcond=None)[0]
    return error(found, X), recovered(found, X)


@pytest.mark.slow
def test_means_over_rows_that_the_coordinator_chooses_add_up_to_every_row(tmp_path):
    off, share = means_of_chosen_rows(tmp_path, GUARD_OFF, (group_means,))
    assert off < 1e-8
    assert share == 1.0


@pytest.mark.slow
def test_with_random_numbers_of_its_own_a_site_chooses_the_rows_itself(tmp_path):
    off, share = means_of_chosen_rows(tmp_path, replace(GUARD_OFF, job_seed=False), (group_means,))
    assert off > 0.9
    assert share == 0.0


@pytest.mark.parametrize("permissions", [GUARD_OFF, DEFAULTS])
def test_a_method_that_does_not_declare_means_gets_none(permissions, tmp_path, passes):
    with pytest.raises(Refused, match=r"^R1: 'group_means' is not among what the method may ask for$"):
        means_of_chosen_rows(tmp_path, permissions, ())
    assert passes == []


def answered(requests):
    """How many requests were answered before the first refusal, and the refusal."""
    count = 0
    try:
        for request in requests:
            request()
            count += 1
    except Refused as refusal:
        return count, str(refusal)
    return count, ""


def ask_round_one(attacker):
    for epoch in range(300):
        yield lambda epoch=epoch: attacker.ask("local_gradient", Iterate(RANDOM.normal(size=9) * 0.1), 1, epoch)


def ask_late_rounds(attacker):
    for round in (1, 200):
        yield lambda round=round: attacker.ask("local_gradient", Iterate(ZERO), round)


@pytest.mark.parametrize(
    ("ask", "rounds", "all_of_them", "few", "sentence"),
    [
        (ask_round_one, 5, 300, 40, "R6: it answers 40 requests in a round"),
        (ask_late_rounds, 1, 2, 1, "R5: round 200 is beyond the 1 rounds of the run"),
    ],
)
def test_rounds_are_those_of_the_run(ask, rounds, all_of_them, few, sentence, tmp_path):
    late_rounds_answered = replace(GUARD_OFF, rounds=1000)
    off = Attacker(SHARDS, tmp_path / "off", late_rounds_answered, "gd", rounds=200 if rounds == 1 else rounds)
    assert answered(ask(off)) == (all_of_them, "")
    on = Attacker(SHARDS, tmp_path / "on", DEFAULTS, "gd", rounds=rounds)
    assert answered(ask(on)) == (few, sentence)


def new_runs(folder, permissions, runs=200):
    """A sketch at the same coefficients from each of many runs, with another seed every time; then solve for the rows."""
    attacker = Attacker(SHARDS, folder, permissions, "fedns", sketch_size=8)
    matrices, sketches = [], []

    def one(seed):
        attacker.begin(seed=seed)
        sketches.append(2 * np.sqrt(300) * attacker.ask("curvature", Iterate(ZERO)).sketched_root)
        matrices.append(SRHT(8).matrix(300, stream_keys(seed, "sketch", 1, [0])[0]))

    count, refusal = answered(lambda seed=seed: one(seed) for seed in range(runs))
    if not sketches:
        return count, refusal, np.inf
    found = np.linalg.lstsq(np.vstack(matrices), np.vstack(sketches), rcond=None)[0][:, :-1]
    return count, refusal, error(found, X)


def test_without_a_guard_many_runs_give_what_one_run_would_not(tmp_path):
    count, _, off = new_runs(tmp_path, GUARD_OFF, 60)
    assert count == 60
    assert off < 1e-8


def test_by_default_the_budget_is_that_of_the_rows_and_not_of_a_run(tmp_path):
    count, refusal, off = new_runs(tmp_path, DEFAULTS)
    assert count == 5 * 300 * 8 // (8 * 9)  # numbers of the table over numbers of a sketch
    assert refusal.startswith("R5: its owner permits 5 times the numbers of its table to leave")
    assert off > 0.9


def test_a_new_process_knows_what_has_left(tmp_path):
    first = new_runs(tmp_path, DEFAULTS)
    assert first[0] > 0
    assert new_runs(tmp_path, DEFAULTS)[0] == 0


def test_the_same_answer_again_costs_nothing(tmp_path):
    attacker = Attacker(SHARDS, tmp_path, replace(DEFAULTS, largest_released_fraction=30 / 2400), "gd")  # a round takes 29
    for _ in range(5):
        attacker.begin()
        attacker.ask("local_gradient", Iterate(ZERO))
    with pytest.raises(Refused, match=r"^R5"):
        [attacker.ask("local_gradient", Iterate(ZERO + 0.01 * step)) for step in range(1, 4)]


def test_without_a_guard_a_sketch_of_any_size_is_taken(tmp_path):
    attacker = Attacker(SHARDS, tmp_path, GUARD_OFF, "fedndes", sketch="gaussian")
    assert attacker.ask("curvature", SketchRequest(ZERO, np.int32(100_000))).sketched_root.shape == (100_000, 9)


@pytest.mark.parametrize(
    ("size", "sentence"),
    [(8_000_000, "^R6: a number in the request is larger than 1000$"), (900, "^R3: a sketch of 900 rows is more than")],
)
def test_by_default_a_large_sketch_is_refused_before_it_is_taken(size, sentence, tmp_path, passes):
    attacker = Attacker(SHARDS, tmp_path, DEFAULTS, "fedndes", sketch="gaussian")
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match=sentence):
            attacker.ask("curvature", SketchRequest(ZERO, np.int32(size)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert passes == []
    assert peak < 2**20


def test_iterations_are_as_many_as_the_coordinator_asks_for_without_a_guard(tmp_path, passes):
    Attacker(SHARDS, tmp_path, GUARD_OFF, "fedavg").ask("local_smoothness", SmoothnessRequest(np.int32(3000)))
    assert len(passes) == 3000


def test_by_default_iterations_are_counted_before_they_are_made(tmp_path, passes):
    with pytest.raises(Refused, match=r"^R6: a number in the request is larger than 1000$"):
        Attacker(SHARDS, tmp_path, DEFAULTS, "fedavg").ask("local_smoothness", SmoothnessRequest(np.int32(2**31 - 1)))
    with pytest.raises(Refused, match=r"^R6: a setting of the method is larger than 1000$"):
        Attacker(SHARDS, tmp_path, DEFAULTS, "fedavg:local_epochs=1000000000")
    assert passes == []


LONG = "gd:step_size=1" + " " * 20_000_000


def test_a_long_job_is_kept_without_a_guard_and_refused_with_one(tmp_path):
    Attacker(SHARDS, tmp_path / "off", GUARD_OFF, LONG)
    assert sum(path.stat().st_size for path in (tmp_path / "off").glob("*.npz")) > 20_000_000
    with pytest.raises(Refused, match=r"^R6: the description of a run may have 65536 bytes, not 20000"):
        Attacker(SHARDS, tmp_path / "on", DEFAULTS, LONG)
    assert not list((tmp_path / "on").glob("*.npz"))


def test_a_request_holds_a_few_vectors_and_no_more(tmp_path):
    many = np.zeros((5000, 9))
    Attacker(SHARDS, tmp_path / "off", GUARD_OFF, "fedavg").ask("candidate_losses", CandidateModels(many))
    with pytest.raises(Refused, match=r"^R6: a request may have 70144 bytes, not 36"):
        Attacker(SHARDS, tmp_path / "on", DEFAULTS, "fedavg").ask("candidate_losses", CandidateModels(many))


AMOUNTS = Shards.from_arrays(X, np.abs(Y + X[:, 0]) * 1000, [300])


def refusal_of_targets(folder, permissions):
    with pytest.raises(Refused) as refusal:
        Attacker(AMOUNTS, folder, permissions, "gd")
    smallest = [f"{value:g}" for value in np.sort(AMOUNTS.targets)[:5]]
    return sum(value in str(refusal.value) for value in smallest), str(refusal.value)


def test_without_a_guard_a_refusal_quotes_the_smallest_targets(tmp_path):
    assert refusal_of_targets(tmp_path, GUARD_OFF)[0] == 5


def test_by_default_a_refusal_holds_no_value_of_the_data_and_the_owner_reads_them_at_home(tmp_path, caplog):
    quoted, sentence = refusal_of_targets(tmp_path, DEFAULTS)
    assert (quoted, sentence) == (0, "R7: it cannot answer; why stands in its own log")
    assert "logistic loss needs labels" in caplog.text


def unreadable():
    raise RuntimeError(f"row 17 is {X[17].tolist()}")


@pytest.mark.parametrize(("permissions", "quoted"), [(GUARD_OFF, True), (DEFAULTS, False)])
def test_texts_of_exceptions_stay_at_home(permissions, quoted, tmp_path, monkeypatch):
    monkeypatch.setattr(SiteService, "_recall", lambda *_: unreadable())
    service = SiteService("site-0", Given(SHARDS), permissions, tmp_path)
    attacker = Attacker(SHARDS, tmp_path, permissions, "gd")
    attacker.service = service
    with pytest.raises(Refused) as refusal:
        attacker.ask("local_gradient", Iterate(ZERO))
    assert (str(X[17, 0]) in str(refusal.value)) == quoted
