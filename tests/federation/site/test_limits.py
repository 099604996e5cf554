"""Both sides of every limit, through the service: the last that is answered, and the first that is not.

And checks that are made twice: once where the first look refuses before any work, once where only the last one can.
"""

import json
import os
import threading
from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.attacker import DEFAULTS, Attacker, Refused
from tests.attacks.conftest import passes
from tests.attacks.study_site import StudySite
from tests.processes import PATIENCE_SECONDS

from fedns.core.shards import Shards
from fedns.federation.rules.refusal import Refusal
from fedns.federation.site import answering as answers
from fedns.federation.site import budget as budgets
from fedns.federation.site import concentration
from fedns.federation.site import guard as guards
from fedns.federation.site import service as services
from fedns.federation.site.budget import BUDGET_FOLDER, Budget, fingerprint
from fedns.federation.site.concentration import Concentration, Neighbourhoods, Table
from fedns.federation.site.explain import meaning
from fedns.federation.site.guard import Guard, hash_of
from fedns.federation.site.secret_seed import site_secret
from fedns.methods.auto.messages import Move
from fedns.methods.curvature import Iterate, SketchRequest
from fedns.methods.fedavg import CandidateModels, Candidates, SmoothnessRequest
from fedns.models.losses import Poisson
from fedns.models.problem import Problem

assert passes  # a fixture: every pass over rows that is made

ROWS, COLUMNS = 60, 4
RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(ROWS, COLUMNS))
Y = np.where(X[:, 0] + RANDOM.normal(size=ROWS) > 0, 1.0, -1.0)
SHARDS = Shards.from_arrays(X, Y, [ROWS])
WIDTH = COLUMNS + 1


def rows_of(count, columns=COLUMNS):
    x = RANDOM.normal(size=(count, columns))
    return Shards.from_arrays(x, np.where(np.arange(count) % 2, 1.0, -1.0), [count])


def site(folder, method="gd", shards=SHARDS, limits=DEFAULTS, **changes):
    folder.mkdir(exist_ok=True)
    return Attacker(shards, folder, limits, method, **changes)


def gradient(attacker, at=0.0, round=1):
    return attacker.ask("local_gradient", Iterate(np.full(attacker.num_features, at)), round)


def curvature(attacker, at=0.0):
    return attacker.ask("curvature", Iterate(np.full(attacker.num_features, at)))


def spent(attacker, folder):
    """As the disk has it: by somebody who comes later."""
    return Budget(folder, fingerprint(SHARDS)).spent()


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1e9
        for module in (guards, services, answers, budgets):
            monkeypatch.setattr(module.time, "time", lambda: self.now)


# R2: as many rows as are needed, and one less.


@pytest.mark.parametrize(("rows", "limits"), [(20, {}), (33, {"smallest_rows": 33})])
def test_taking_part(rows, limits, tmp_path):
    own = replace(DEFAULTS, rows_beyond_coefficients=0, **limits)
    site(tmp_path / "enough", shards=rows_of(rows), limits=own)
    with pytest.raises(Refused, match=rf"^R2: taking part needs at least {rows} rows, and it has fewer$"):
        site(tmp_path / "less", shards=rows_of(rows - 1), limits=own)


def test_rows_for_a_gradient(tmp_path):
    """15 coefficients with the intercept, and 10 rows more."""
    assert gradient(site(tmp_path / "enough", shards=rows_of(25, 14))).gradient.size == 15
    with pytest.raises(Refused, match=r"^R2: a gradient of 15 coefficients needs at least 25 rows, and it has fewer$"):
        gradient(site(tmp_path / "less", shards=rows_of(24, 14)))


@pytest.mark.parametrize(("columns", "rows"), [(9, 30), (4, 20)])
def test_rows_for_a_hessian(columns, rows, tmp_path):
    """Three for each coefficient, and 20 at least."""
    assert curvature(site(tmp_path / "enough", "fednewton", rows_of(rows, columns))).hessian_triangle.size
    own = replace(DEFAULTS, smallest_rows=1, rows_per_coefficient=rows / (columns + 1))
    with pytest.raises(Refused, match=rf"^R2: a Hessian of {columns + 1} coefficients needs at least {rows} rows"):
        curvature(site(tmp_path / "less", "fednewton", rows_of(rows - 1, columns), own))


@pytest.mark.parametrize(("few", "opened"), [(0, True), (4, False), (5, True), (55, True), (56, False)])
def test_rows_of_an_outcome(few, opened, tmp_path):
    shards = replace(SHARDS, targets=np.where(np.arange(ROWS) < few, 1.0, -1.0))
    if opened:
        site(tmp_path, shards=shards)
    else:
        with pytest.raises(Refused, match=r"^R2: a group of its rows is too small"):
            site(tmp_path, shards=shards)


@pytest.mark.parametrize(("events", "opened"), [(4, False), (5, True), (56, False), (60, True)])
def test_events_of_times(events, opened, tmp_path):
    """Times are all different: it is events that are counted."""
    times = np.arange(1.0, ROWS + 1)
    shards = replace(SHARDS, targets=np.where(np.arange(ROWS) < events, times, -times))
    if opened:
        site(tmp_path, shards=shards, loss="cox", intercept=False)
    else:
        with pytest.raises(Refused, match=r"^R2: a group of its rows is too small"):
            site(tmp_path, shards=shards, loss="cox", intercept=False)


@pytest.mark.parametrize(("few", "rare", "opened"), [(4, "refuse", False), (5, "refuse", True), (4, "blank", True),
                                                     (4, "show", True)])  # fmt: skip
def test_rows_of_a_level(few, rare, opened, tmp_path):
    x = X.copy()
    x[:, 1] = np.arange(ROWS) < few
    own = replace(DEFAULTS, rare_levels=rare)
    if opened:
        blanked = site(tmp_path, shards=Shards.from_arrays(x, Y, [ROWS]), limits=own).service._guarding[1].blanked_columns
        assert blanked == int(rare == "blank")
    else:
        with pytest.raises(Refused, match=r"^R2: a group of its rows is too small"):
            site(tmp_path, shards=Shards.from_arrays(x, Y, [ROWS]), limits=own)


@pytest.mark.parametrize(("smallest", "refuses"), [(60, False), (61, True)])
def test_the_owner_reads_which_side_of_the_limit_the_rows_are_on(smallest, refuses):
    said = meaning(replace(DEFAULTS, smallest_rows=smallest), SHARDS)
    assert any("fewer rows than your limit" in line for line in said) == refuses


# R3: the largest sketch, and one row more.


@pytest.mark.parametrize(
    ("sketch", "limits", "most", "sentence"),
    [
        ("gaussian", {}, 15, "R3: a sketch of 16 rows is more than 0.25 of its rows"),
        ("gaussian", {"largest_sketch_fraction": 0.2}, 12, "R3: a sketch of 13 rows is more than 0.2 of its rows"),
        ("sjlt", {}, 5, "R3: an sjlt sketch of 6 rows needs 12 times as many rows"),
        ("sjlt", {"rows_per_bucket": 20.0}, 3, "R3: an sjlt sketch of 4 rows needs 20 times as many rows"),
        ("rows", {"row_sampling": True}, 15, "R3: a sketch of 16 rows is more than 0.25 of its rows"),
    ],
)
def test_rows_of_a_sketch(sketch, limits, most, sentence, tmp_path):
    attacker = site(tmp_path, "fedndes", limits=replace(DEFAULTS, **limits), sketch=sketch)
    zero = np.zeros(WIDTH)
    assert attacker.ask("curvature", SketchRequest(zero, np.int32(most))).sketched_root.shape == (most, WIDTH)
    with pytest.raises(Refused) as refusal:
        attacker.ask("curvature", SketchRequest(zero, np.int32(most + 1)))
    assert str(refusal.value) == sentence


def test_rows_that_a_method_draws_leave_only_where_the_owner_permits_it(tmp_path, passes):
    """Drawn at the site and no sketch: where sketches may be as large as the table, nothing else refuses them."""
    request, own = SketchRequest(np.zeros(WIDTH), np.int32(8)), replace(DEFAULTS, largest_sketch_fraction=1.0)
    with pytest.raises(Refused, match=r"^R3: rows of the data do not leave it$"):
        site(tmp_path / "a", "fedns:rows=leverage", limits=own).ask("sampled_curvature", request)
    assert passes == []
    permitted = site(tmp_path / "b", "fedns:rows=leverage", limits=replace(own, row_sampling=True))
    assert permitted.ask("sampled_curvature", request).sketched_root.shape == (8, WIDTH)


# R4: each of its parts alone decides, a hair on either side.


def curvatures_at(w):
    """Of the rows, at these coefficients: by the formula."""
    p = 1 / (1 + np.exp(-(np.c_[X, np.ones(ROWS)] @ w)))
    d = p * (1 - p) / ROWS
    own = d * (1 + (X**2).sum(axis=1))
    return d.sum() ** 2 / (d**2).sum(), own.max() / own.sum(), d.sum()


POINT = np.array([3.0, -2.0, 1.0, 0.0, 0.5])
OFF = replace(
    DEFAULTS, smallest_effective_rows=0.0, effective_rows_per_coefficient=0.0, largest_record_share=1.0,
    smallest_mean_curvature=0.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "at_limit", "stricter"),
    [
        ("smallest_effective_rows", lambda rows, share, mean: rows, 1 + 1e-9),
        ("effective_rows_per_coefficient", lambda rows, share, mean: rows / WIDTH, 1 + 1e-9),
        ("largest_record_share", lambda rows, share, mean: share, 1 - 1e-9),
        ("smallest_mean_curvature", lambda rows, share, mean: mean, 1 + 1e-9),
    ],
)
def test_each_part_of_the_rule_about_few_rows(limit, at_limit, stricter, tmp_path):
    value = at_limit(*curvatures_at(POINT))
    laxer = 2 - stricter
    assert gradient_at_point(site(tmp_path / "a", limits=replace(OFF, **{limit: value * laxer}))).size == WIDTH
    with pytest.raises(Refused, match=r"^R4: at these coefficients the answer would be about a few of its rows$"):
        gradient_at_point(site(tmp_path / "b", limits=replace(OFF, **{limit: value * stricter})))


def gradient_at_point(attacker):
    return attacker.ask("local_gradient", Iterate(POINT)).gradient


def test_the_larger_of_two_numbers_of_rows_counts(tmp_path):
    rows = curvatures_at(POINT)[0]
    for fixed, each in ((rows * 1.01, 0.0), (0.0, rows * 1.01 / WIDTH)):
        own = replace(OFF, smallest_effective_rows=fixed, effective_rows_per_coefficient=each)
        with pytest.raises(Refused, match="R4"):
            gradient_at_point(site(tmp_path / f"{fixed:g}", limits=own))


def test_points_that_passed_are_remembered_and_the_oldest_forgotten(monkeypatch, tmp_path):
    monkeypatch.setattr("fedns.federation.site.concentration._REMEMBERED_POINTS", 3)
    rule = Guard(DEFAULTS, tmp_path, SHARDS).concentration
    monkeypatch.setattr(Neighbourhoods, "contain", lambda self, problem, w: False)
    points = [np.full(COLUMNS, 0.01 * number) for number in range(4)]
    for point in points:
        rule.check_point(Problem(), point)
    assert [rule.has_passed(Problem(), point) for point in points] == [False, True, True, True]


def test_a_neighbourhood_stops_looking_where_all_steps_are_inside(monkeypatch, tmp_path):
    rule = Guard(DEFAULTS, tmp_path, SHARDS).concentration
    problem, none = Problem(), np.zeros(COLUMNS)
    for number in range(3):
        rule.check_point(problem, np.full(COLUMNS, 0.5 * number))
    around = rule._near
    assert around.contain_along(problem, none, none, np.zeros(2)).all()
    assert not around.contain_along(problem, np.full(COLUMNS, 1e6), none, np.zeros(2)).any()


@pytest.mark.parametrize("limit", ["largest_record_share", "smallest_effective_rows"])
def test_a_neighbourhood_ends_where_the_worst_that_could_be_would_be_refused(limit, tmp_path):
    """Rows of 1 and -1, whose curvatures exp(w) and exp(-w) are all 1 at 0: at a distance of h one of them could have
    grown by exp(h) while the others have shrunk as much. The limit has room for that up to h = 1."""
    rows = 400
    x = np.where(np.arange(rows) == 7, 1.0, -1.0)[:, None]
    shards = Shards.from_arrays(x, np.ones(rows), [rows])
    room = {"largest_record_share": np.exp(2) / rows, "smallest_effective_rows": rows / np.exp(2)}[limit]
    own = replace(OFF, rare_levels="show", **({"smallest_effective_rows": 1.0} | {limit: room}))
    rule, problem = Guard(own, tmp_path, shards).concentration, Problem(Poisson())
    rule.check_point(problem, np.zeros(1))
    assert [rule.has_passed(problem, np.array([w])) for w in (-1.001, -0.999, 0.999, 1.001)] == [False, True, True, False]
    if limit == "largest_record_share":  # beyond it lies what is refused indeed
        rule.check_point(problem, np.array([0.999]))
        with pytest.raises(Refusal, match="R4"):
            rule.check_point(problem, np.array([1.01]))


def test_norms_of_wide_rows_are_found_block_by_block(monkeypatch):
    monkeypatch.setattr(concentration, "_BLOCK", 3 * COLUMNS)
    assert {block.shape for block in concentration._squares(SHARDS, 0, ROWS)} == {(3, COLUMNS)}
    np.testing.assert_allclose(Table(SHARDS).norms, (X**2).sum(axis=1), rtol=1e-14)


def test_of_no_curvature_at_all_nothing_is_permitted(tmp_path):
    rule = Guard(DEFAULTS, tmp_path, SHARDS).concentration
    assert rule.permits(Concentration(np.float64(10.0), np.float64(0.35), np.float64(1e-3)), 3)
    for changed in ({"effective_rows": 9.999}, {"largest_share": 0.3501}, {"mean_curvature": 9.99e-4}):
        assert not rule.permits(Concentration(*map(np.float64, (10.0, 0.35, 1e-3)))._replace(**changed), 3)


# R5: the last number, point and table that may leave.


def test_points(tmp_path, passes):
    attacker = site(tmp_path, limits=replace(DEFAULTS, points=3))
    for number in range(3):
        gradient(attacker, 0.01 * number)
    gradient(attacker, 0.02)  # a point that was asked about is not another
    passes.clear()
    with pytest.raises(Refused, match=r"^R5: its owner permits answers about 3 distinct coefficients, over all runs$"):
        gradient(attacker, 0.03)
    assert passes == []


def test_points_that_only_the_site_knows(tmp_path, passes):
    """Of a method that sends steps, and no evaluation beside them: the same step again leads to another point."""
    attacker = site(tmp_path, "auto", limits=replace(DEFAULTS, points=3))

    def move(steps, number, whole=()):
        units = np.zeros(WIDTH if number == 0 else 0, np.int8)
        many = np.uint8(8), np.uint8(number), np.int32(0), np.float32(ROWS)
        attacker.ask("change", Move(np.full(WIDTH, steps, np.int8), np.float32(2**-7), *many, units, np.array(whole)))

    for number in range(3):
        move(1, number)
    move(-1, 3)  # back to where it has been
    move(0, 4, np.full(WIDTH, 2**-7))  # and the same as a whole point
    assert spent(attacker, tmp_path).points == {hash_of(np.full(WIDTH, number * 2**-7)) for number in (1, 2, 3)}
    move(1, 5)
    passes.clear()
    with pytest.raises(Refused, match=r"^R5: its owner permits answers about 3 distinct coefficients, over all runs$"):
        move(2, 6)
    assert passes == []


@pytest.mark.parametrize(("numbers", "second"), [(10, True), (9, False)])
def test_numbers_that_leave(numbers, second, tmp_path, passes):
    """Two gradients of five numbers: refused before any pass where the second is one too many."""
    attacker = site(tmp_path)
    limits = replace(DEFAULTS, largest_released_fraction=numbers / (ROWS * COLUMNS))
    attacker.service._permissions = attacker.service._guarding[1].permissions = limits
    gradient(attacker)
    passes.clear()
    if second:
        gradient(attacker, 0.01)
    else:
        with pytest.raises(Refused, match=r"^R5: its owner permits 0.0375 times the numbers of its table to leave"):
            gradient(attacker, 0.01)
        assert passes == []


@pytest.mark.parametrize("job_seed", [False, True])
@pytest.mark.parametrize(("fraction", "second"), [(0.5, True), (0.4999, False)])
def test_numbers_of_sketches(job_seed, fraction, second, tmp_path):
    """With random numbers that the coordinator knows they are numbers like others; 12 x 5 of 240 are a quarter each."""
    name = "largest_released_fraction" if job_seed else "largest_sketched_fraction"
    own = replace(DEFAULTS, job_seed=job_seed, **{name: fraction + (10 / 240 if job_seed else 0)})
    attacker = site(tmp_path, "fedndes", limits=own, sketch="gaussian")
    for at in (0.0, 0.01):
        request = SketchRequest(np.full(WIDTH, at), np.int32(12))
        if at == 0.0 or second:
            attacker.ask("curvature", request)
        else:
            with pytest.raises(Refused, match=r"^R5: its owner permits .* times the numbers of its table to leave"):
                attacker.ask("curvature", request)


@pytest.mark.parametrize(("rounds", "asked", "answered"), [(5, 5, True), (5, 6, False), (201, 1, None), (200, 200, True)])
def test_rounds(rounds, asked, answered, tmp_path):
    if answered is None:
        with pytest.raises(Refused, match=r"^R5: it permits 200 rounds, the run asks for 201$"):
            site(tmp_path, rounds=rounds)
        return
    attacker = site(tmp_path, rounds=rounds)
    if answered:
        gradient(attacker, round=asked)
    else:
        with pytest.raises(Refused, match=r"^R5: round 6 is beyond the 5 rounds of the run$"):
            gradient(attacker, round=asked)


# R6: rates, with their windows of time, and sizes.


def test_requests_of_a_round(tmp_path):
    attacker = site(tmp_path, limits=replace(DEFAULTS, requests_per_round=3))
    for number in range(3):
        gradient(attacker, 0.01 * number)
    with pytest.raises(Refused, match=r"^R6: it answers 3 requests in a round$"):
        gradient(attacker)
    gradient(attacker, round=2)
    attacker.begin()
    gradient(attacker)  # of another run


def test_requests_of_a_minute(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    attacker = site(tmp_path, limits=replace(DEFAULTS, requests_per_minute=2))
    gradient(attacker)
    clock.now += 30.0
    gradient(attacker)
    clock.now += 29.9
    with pytest.raises(Refused, match=r"^R6: it answers 2 requests a minute$"):
        gradient(attacker)
    clock.now += 0.2
    gradient(attacker)  # the first is more than a minute ago
    with pytest.raises(Refused, match="a minute"):
        gradient(attacker)  # the second is not


def test_runs_of_an_hour(tmp_path, monkeypatch):
    attacker = site(tmp_path, limits=replace(DEFAULTS, runs_per_hour=2))
    attacker.begin()
    with pytest.raises(Refused, match=r"^R6: it takes part in 2 runs an hour, those that it refused included$"):
        attacker.begin()
    first, _ = sorted(tmp_path.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
    now = first.stat().st_mtime
    os.utime(first, (now - 3590.0, now - 3590.0))
    with pytest.raises(Refused, match="an hour"):
        attacker.begin()
    os.utime(first, (now - 3700.0, now - 3700.0))
    attacker.begin()


@pytest.mark.parametrize(
    ("method", "opened"),
    [
        ("fednewton:line_search=aggregate;trials=1000", True),
        ("fednewton:line_search=aggregate;trials=1001", False),
        ("fednewton:line_search=aggregate;trials=1000000000", False),
        ("fedavg:local_epochs=1000", True),
        ("fedavg:local_epochs=1001", False),
    ],
)
def test_whole_numbers_among_settings_however_deep(method, opened, tmp_path, passes):
    if opened:
        site(tmp_path, method)
    else:
        with pytest.raises(Refused, match=r"^R6: a setting of the method is larger than 1000$"):
            site(tmp_path, method)
    assert passes == []


def test_whole_numbers_in_a_request(tmp_path):
    attacker = site(tmp_path, "fedavg", limits=replace(DEFAULTS, largest_count=30))
    attacker.ask("local_smoothness", SmoothnessRequest(np.int32(30)))
    for wrong in (31, -31, -(2**31)):
        with pytest.raises(Refused, match=r"^R6: a number in the request is larger than 30$"):
            attacker.ask("local_smoothness", SmoothnessRequest(np.int32(wrong)))


def test_passes_of_an_answer(tmp_path):
    attacker = site(tmp_path, "fedavg", limits=replace(DEFAULTS, passes=7))
    attacker.ask("local_smoothness", SmoothnessRequest(np.int32(7)))
    with pytest.raises(Refused, match=r"^R6: the answer takes more than 7 passes or 60 seconds$"):
        attacker.ask("local_smoothness", SmoothnessRequest(np.int32(8)))


@pytest.mark.parametrize(("passes", "answered"), [(3, True), (2, False)])
def test_passes_over_all_candidates_of_an_answer(passes, answered, tmp_path):
    """Only what R4 refuses at one candidate is left out of an answer; any other refusal is of the whole."""
    attacker = site(tmp_path, "fedavg", limits=replace(DEFAULTS, passes=passes))
    request = CandidateModels(np.outer([0.0, 0.01, 0.02], np.ones(WIDTH)))
    if answered:
        assert attacker.ask("candidate_losses", request).losses.shape == (3,)
    else:
        with pytest.raises(Refused, match=r"^R6: the answer takes more than 2 passes or 60 seconds$"):
            attacker.ask("candidate_losses", request)


def test_a_candidate_that_is_refused_counts_as_worse_than_every_other(tmp_path):
    """Also than a poor one: sites' losses are added up, and a good one here may be a poor one elsewhere."""
    shards = Shards.from_arrays(X, RANDOM.poisson(1.0, ROWS).astype(float), [ROWS])
    attacker = site(tmp_path, "fedavg", shards=shards, loss="poisson")
    good, poor, few = np.zeros(WIDTH), np.r_[np.zeros(COLUMNS), 7.0], np.r_[30.0, np.zeros(COLUMNS)]
    losses = attacker.ask("candidate_losses", CandidateModels(np.stack([good, few, poor]))).losses
    assert losses[2] > 300 * losses[0] and losses[1] == 100 * (1 + losses[2])


def test_seconds_of_an_answer(tmp_path, monkeypatch):
    attacker, real = site(tmp_path, "fedavg", limits=replace(DEFAULTS, answer_seconds=9.0)), answers.time.monotonic
    looks = []

    def later():
        looks.append(None)
        return real() + len(looks)

    monkeypatch.setattr(answers.time, "monotonic", later)
    attacker.ask("local_smoothness", SmoothnessRequest(np.int32(3)))
    with pytest.raises(Refused, match=r"^R6: the answer takes more than 1000 passes or 9 seconds$"):
        attacker.ask("local_smoothness", SmoothnessRequest(np.int32(30)))


@pytest.mark.parametrize(("bytes_", "answered"), [(8 * 15, True), (8 * 15 - 1, False)])
def test_bytes_of_an_answer(bytes_, answered, tmp_path):
    """A packed Hessian of five coefficients is 15 doubles."""
    attacker = site(tmp_path, "fednewton")
    guard = attacker.service._guarding[1]
    guard.permissions = replace(guard.permissions, largest_bytes=bytes_)
    if answered:
        curvature(attacker)
    else:
        with pytest.raises(Refused, match=rf"^R6: the answer takes more than {bytes_} bytes$"):
            curvature(attacker)


def test_bytes_of_a_request(tmp_path):
    """A few vectors of coefficients beside what a description may have: 64 of 40 bytes each."""
    guard = Guard(replace(DEFAULTS, largest_job_bytes=100), tmp_path, SHARDS)
    guard.permissions.check_length(100 + 64 * 8 * WIDTH, WIDTH)
    with pytest.raises(Refusal, match=rf"^R6: a request may have {100 + 2560} bytes, not {100 + 2561}$"):
        guard.permissions.check_length(100 + 64 * 8 * WIDTH + 1, WIDTH)


def test_bytes_of_a_description(tmp_path):
    length = len(site(tmp_path / "a").spec.agreed())
    site(tmp_path / "b", limits=replace(DEFAULTS, largest_job_bytes=length))
    sentence = rf"^R6: the description of a run may have {length - 1} bytes, not {length}$"
    with pytest.raises(Refused, match=sentence):
        site(tmp_path / "c", limits=replace(DEFAULTS, largest_job_bytes=length - 1))


def test_a_setting_that_is_switched_off_is_off_and_one_beside_it_is_not(tmp_path):
    assert OFF.needs_no_measure
    for name in ("smallest_effective_rows", "effective_rows_per_coefficient", "smallest_mean_curvature"):
        assert not replace(OFF, **{name: 1e-9}).needs_no_measure
    assert not replace(OFF, largest_record_share=0.999).needs_no_measure


# Checks that are made twice, and what has to be over before an answer leaves.


def test_what_another_process_spends_while_an_answer_is_made_counts(tmp_path, monkeypatch):
    """Both are permitted when they are asked for, and one when they are ready: the last look is under the lock."""
    limits = replace(DEFAULTS, points=1)
    one, other = site(tmp_path, limits=limits), site(tmp_path, limits=limits)
    make, meanwhile = answers.Answering.reply, []

    def slow(self, *given):
        if not meanwhile:
            meanwhile.append(None)
            meanwhile.append(gradient(other, 0.5))
        return make(self, *given)

    monkeypatch.setattr(answers.Answering, "reply", slow)
    with pytest.raises(Refused, match=r"^R5: its owner permits answers about 1 distinct coefficients"):
        gradient(one)
    assert meanwhile[1].gradient.size == WIDTH
    assert len(spent(one, tmp_path).points) == 1


def test_numbers_are_counted_again_when_they_are_known(tmp_path, monkeypatch):
    limits = replace(DEFAULTS, largest_released_fraction=(5 + 6 + 6) / 240)
    one, other = site(tmp_path, limits=limits), site(tmp_path, limits=limits)
    for number in range(2):
        gradient(other, 0.1 * number)
    make, meanwhile = answers.Answering.reply, []

    def slow(self, *given):
        if not meanwhile:
            meanwhile.append(None)
            gradient(other, 0.5)
        return make(self, *given)

    monkeypatch.setattr(answers.Answering, "reply", slow)
    with pytest.raises(Refused, match=r"^R5: its owner permits 0.0708333 times the numbers"):
        gradient(one, 0.7)


def test_no_answer_leaves_before_what_it_spends_is_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "_boot", str)  # nothing is reserved ahead
    attacker, works, flushed = site(tmp_path), threading.Event(), []
    gradient(attacker, 0.5)  # the site's secret is made

    def waits(file):
        works.wait(PATIENCE_SECONDS)
        flushed.append(file)

    monkeypatch.setattr(budgets.os, "fsync", waits)
    left = []
    asking = threading.Thread(target=lambda: left.append(gradient(attacker)))
    asking.start()
    asking.join(0.3)
    assert asking.is_alive() and left == []
    assert len(spent(attacker, tmp_path).points) == 2  # written, and on its way to the disk
    works.set()
    asking.join(PATIENCE_SECONDS)
    assert len(left) == 1 and flushed


def test_a_refused_point_costs_and_is_on_the_disk_before_the_refusal_leaves(tmp_path, monkeypatch):
    attacker, flushed = site(tmp_path), []
    monkeypatch.setattr(budgets, "_boot", str)
    monkeypatch.setattr(budgets.os, "fsync", flushed.append)
    with pytest.raises(Refused, match="R4"):
        gradient(attacker, 1e4)
    found = spent(attacker, tmp_path)
    assert (len(found.points), found.numbers, sum(found.asked.values())) == (1, 0, 1) and flushed


def test_numbers_that_overflow_cost_a_point_too(tmp_path):
    attacker = site(tmp_path, "fedavg:learning_rate=1", limits=OFF, loss="squared")
    far = Candidates(np.full((1, WIDTH), 1e300), np.array([1e10]))
    with pytest.raises(Refused, match="NaN or infinite"):
        attacker.ask("local_models", far)
    found = spent(attacker, tmp_path)
    assert (len(found.points), found.numbers) == (1, 0)


def test_the_last_of_what_the_budget_has_is_spent_to_the_end_and_no_further(tmp_path):
    """Points, over two runs and a restart: exactly as many as the owner permits."""
    left = 0
    for run in range(3):
        attacker = site(tmp_path, limits=replace(DEFAULTS, points=7)) if left < 7 else None
        for number in range(4):
            if left == 7:
                break
            gradient(attacker, 0.001 * (10 * run + number + 1))
            left += 1
    with pytest.raises(Refused, match="7 distinct"):
        site(tmp_path, limits=replace(DEFAULTS, points=7))
    (file,) = (tmp_path / BUDGET_FOLDER).glob("*.jsonl")
    points = {point for line in file.read_text().splitlines() if line for point in json.loads(line).get("points", [])}
    assert len(points) == 7


def test_a_secret_is_on_the_disk_before_anything_is_made_with_it(tmp_path, monkeypatch):
    """Of a secret that a power cut took the matrices could not be made again, and answers would not be those of before."""
    written, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (written.append(os.fstat(file).st_size), sync(file)))
    secret = site_secret(tmp_path / "new")
    assert len(secret) == 32 and written == [32]
    assert site_secret(tmp_path / "new") == secret and written == [32]  # once


def test_however_studies_code_a_table_it_has_one_budget(tmp_path):
    there = StudySite(tmp_path / "a", DEFAULTS)
    for columns in ("age", "age + weight"):
        text = there.study("dose", family="gaussian").replace("age + dose + weight", columns)
        there.gradient_at_zero(text, 2 + columns.count("+"))
    files = {path.name for path in (there.folder / "state" / BUDGET_FOLDER).glob("*.jsonl")}
    assert files == {f"{there.mark}.jsonl", f"{there.mark}.rows.jsonl"}
    assert len(Budget(there.folder / "state", there.mark).spent().answers) == 2
