"""The rules by themselves, and what an owner reads of them."""

import logging
import tomllib
from dataclasses import fields, replace
from typing import ClassVar

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards
from tests.federation.in_process import Federation, run_of

import fedns
from fedns.core.shards import Shards
from fedns.federation.permissions import Permissions, permit_table
from fedns.federation.rules.refusal import Refusal
from fedns.federation.site.answering import Answering
from fedns.federation.site.budget import Budget, fingerprint
from fedns.federation.site.concentration import Concentration, PartOfRows, Table, squared_norms
from fedns.federation.site.explain import meaning
from fedns.federation.site.guard import Asked, Guard, points_of
from fedns.methods.curvature import Iterate
from fedns.methods.searches import Ray
from fedns.models.losses import LOSSES, Poisson, Squared
from fedns.models.problem import Problem
from fedns.numerics.cpu.backend import CpuBackend


def guard_over(shards, folder, **changes):
    return Guard(Permissions(**changes), folder, shards)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_sums_of_curvatures_are_those_of_the_formulas(sparse, weighted):
    shards = make_shards(rows=300, columns=6, sizes=(300,), sparse=sparse, weighted=weighted)
    x, w = np.column_stack([dense_features(shards), np.ones(300)]), np.random.default_rng(0).normal(size=7)
    probability = 1 / (1 + np.exp(-(x @ w)))
    weights = np.ones(300) if shards.sample_weights is None else shards.sample_weights
    d = probability * (1 - probability) * weights / weights.sum()
    own = d * (x**2).sum(axis=1)
    expected = [d.sum(), (d**2).sum(), own.sum(), own.max()]
    problem, norms = Problem(intercept=True), squared_norms(shards)
    value, gradient, sums = problem.backend.value_gradient_and_curvatures(problem.loss, shards, w, norms)
    np.testing.assert_allclose(sums[0], expected, rtol=1e-12)
    assert (value.tobytes(), gradient.tobytes()) == tuple(a.tobytes() for a in problem.value_and_gradient(w, shards))
    along = problem.backend.curvatures_along(problem.loss, shards, -w, 2 * w, np.array([0.5, 1.0]), norms)
    np.testing.assert_allclose(along[0, 1], expected, rtol=1e-12)
    np.testing.assert_allclose(along[0, 0, 0], 0.25)
    found = Concentration.of(sums[0])
    assert found == pytest.approx((d.sum() ** 2 / (d**2).sum(), own.max() / own.sum(), d.sum()))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_part_of_the_rows_never_claims_more_than_all_of_them(sparse, weighted, intercept):
    shards = make_shards(rows=700, columns=6, sizes=(700,), sparse=sparse, weighted=weighted)
    problem, norms, random = Problem(intercept=intercept), squared_norms(shards), np.random.default_rng(1)
    steps, width = np.array([0.0, 0.03, 1.0, 30.0]), 6 + intercept
    part = PartOfRows(Table(shards), 0.1)
    for _ in range(20):
        w, direction = random.normal(size=width), random.normal(size=width)
        exact = problem.backend.curvatures_along(problem.loss, shards, w, direction, steps, norms)[0]
        for sums, bounds in zip(exact, part.bounds_along(problem, w, direction, steps), strict=True):
            true, claimed = Concentration.of(sums), Concentration.of(bounds)
            assert claimed.effective_rows <= true.effective_rows
            assert claimed.largest_share >= true.largest_share
            assert claimed.mean_curvature <= true.mean_curvature


STEADY = [loss() for loss in LOSSES.values() if np.isfinite(loss.curvature_change)]


@pytest.mark.parametrize("loss", [*STEADY, *(loss.expected for loss in STEADY if loss.expected is not loss)], ids=str)
def test_curvatures_change_no_faster_than_a_loss_says(loss):
    random = np.random.default_rng(3)
    y = np.where(random.random(400) < 0.5, -1.0, 1.0) if loss.name in ("logistic", "cox") else random.gamma(2.0, size=400)
    y = y * np.arange(1.0, 401.0) if loss.name == "cox" else y  # times, with a minus where there was no event
    for spread in (0.1, 1.0, 10.0):
        z = random.normal(scale=spread, size=400)
        for most in (0.01, 1.0, 8.0):
            there, here = loss.curvature(y, z + random.uniform(-most, most, size=400)), loss.curvature(y, z)
            factor = np.exp(loss.curvature_change * most) * (1 + 1e-9)
            assert (there <= here * factor).all() and (here <= there * factor).all()


@pytest.mark.parametrize("loss", STEADY, ids=str)
@pytest.mark.parametrize("plain", [True, False])
def test_all_points_near_one_that_has_passed_would_pass(loss, plain, tmp_path):
    rows, offset, random = 1000, loss.name == "poisson", np.random.default_rng(4)
    shards = make_shards(rows=rows, columns=4 + offset, sizes=(rows,), sparse=not plain, weighted=not plain)
    targets = np.where(random.random(rows) < 0.5, -1.0, 1.0) if loss.name == "logistic" else random.gamma(2.0, size=rows)
    problem = Problem(loss, intercept=loss.takes_intercept, offset=offset)
    rule, width = guard_over(replace(shards, targets=targets), tmp_path).concentration, 4 + loss.takes_intercept
    start = 0.1 * random.normal(size=width)
    rule.check_point(problem, start)
    near = [False, False]
    for size in np.geomspace(0.01, 100.0, 60):
        direction, steps = size * random.normal(size=width), np.array([0.0, 0.5, 1.0])
        inside = rule._near.contain_along(problem, start, direction, steps)
        assert inside.tolist() == [rule._near.contain(problem, start + step * direction) for step in steps]
        exact = rule._sums_along(problem, start, direction, steps)
        assert not (inside & ~rule._permits_sums(exact, width)).any()
        near[int(inside[2])] = True
    assert near[1] and near[0] != loss.curvature_is_constant


@pytest.mark.parametrize("loss", [fedns.Logistic(), Poisson()], ids=str)
def test_how_near_is_near_enough_is_told_by_the_worst_that_could_be(loss, tmp_path):
    rows, random = 400, np.random.default_rng(5)
    x = random.normal(size=(rows, 3)) * [1.0, 100.0, 0.01]
    shards = Shards.from_arrays(x, np.ones(rows), [rows])
    rule, problem, norms = guard_over(shards, tmp_path).concentration, Problem(loss), (x**2).sum(axis=1)
    d = loss.curvature(shards.targets, random.normal(size=rows)) / rows

    def sums(d):
        return np.array([d.sum(), (d**2).sum(), (d * norms).sum(), (d * norms).max()])

    limits = rule._limits(3)._replace(effective_rows=np.float64(100.0), largest_share=np.float64(0.1))
    most = rule._near._largest_change(problem, sums(d), limits)
    assert 0.05 < most < 5.0
    for few in (1, 10, 100, 200):
        for largest in (np.argsort(d)[-few:], np.argsort(d * norms)[-few:]):
            changed = d * np.exp(-most)
            changed[largest] = np.minimum(d[largest] * np.exp(most), loss.curvature_bound / rows)
            found = Concentration.of(sums(changed))
            assert found.effective_rows >= 100.0 and found.largest_share <= 0.1 and found.mean_curvature >= 1e-3
    rule._near.add(problem, np.zeros(3), sums(d), limits)
    (units, _, squared_distance), *_ = rule._near._around[loss, False, False]
    farthest = np.argmax((x / units**2 * x).sum(axis=1))  # along it a margin changes most
    direction = x[farthest] / units**2
    point = direction * np.sqrt(squared_distance) / np.linalg.norm(direction * units)
    assert np.abs(x @ point).max() == pytest.approx(most)


@pytest.mark.parametrize("loss", [loss() for loss in LOSSES.values() if np.isfinite(loss.curvature_bound)], ids=str)
def test_no_curvature_is_above_the_bound_that_such_claims_rest_on(loss):
    z = np.concatenate([np.linspace(-40, 40, 20001), [-1e3, 1e3]])
    for y in (-1.0, 1.0) if loss.name != "squared" else (-3.0, 0.0, 2.5):
        assert loss.curvature(np.full(z.size, y), z).max() <= loss.curvature_bound * (1 + 1e-12)


class CountingBackend(CpuBackend):
    """Notes how many rows each look at curvatures reads."""

    looks: ClassVar[list[int]] = []

    def curvatures_along(self, loss, batch, w, direction, steps, norms):
        self.looks.append(int((batch.stops - batch.starts).sum()))
        return super().curvatures_along(loss, batch, w, direction, steps, norms)


def test_all_rows_are_looked_at_only_where_a_part_leaves_doubt(tmp_path, monkeypatch):
    shards, looks = make_shards(rows=3200, columns=5, sizes=(3200,)), []
    monkeypatch.setattr(CountingBackend, "looks", looks)
    rule = guard_over(shards, tmp_path).concentration
    problem, none = Problem(backend=CountingBackend()), np.zeros(5)
    rule.check_point(problem, none)
    assert looks == [64]
    looks.clear()
    far = np.full(5, 4000.0)
    assert rule.permitted_along(problem, none, far, np.array([0.0, 1e-5, 1e-3, 1.0])).tolist() == [True, True, True, False]
    assert looks == [64, 400, 3200]  # 16 stretches of 4 rows, of 25 rows, all
    unbounded = Problem(Poisson(), intercept=True, backend=problem.backend)  # nothing follows from a part
    rule.check_point(unbounded, np.zeros(6))
    looks.clear()
    assert rule.permitted_along(unbounded, np.zeros(6), np.full(6, 0.1), np.array([0.0, 1.0, 0.5])).all()
    assert looks == []  # they are near
    assert rule.permitted_along(unbounded, np.zeros(6), np.full(6, 4000.0), np.array([0.0, 1.0])).tolist() == [True, False]
    assert looks == [3200]
    looks.clear()
    assert not rule.passes_at_a_glance(problem, np.full(5, -1.5))  # the pass that is to come has the sums of so few
    assert looks == []
    monkeypatch.setattr("fedns.federation.site.concentration._MANY_ROWS", 3200)
    assert rule.passes_at_a_glance(problem, np.full(5, -1.5)) and rule.has_passed(problem, np.full(5, -1.5))
    assert looks == [64]


def test_no_curvature_at_all_is_refused_like_too_little(tmp_path):
    guard = guard_over(make_shards(rows=300, columns=5, sizes=(300,)), tmp_path)
    for sums in (np.zeros(4), np.full(4, np.nan)):
        assert not guard.concentration.permits(Concentration.of(sums), 5)


def test_the_squared_loss_is_looked_at_once(tmp_path):
    shards = make_shards(rows=300, columns=5, sizes=(300,), regression=True)
    guard, problem = guard_over(shards, tmp_path).concentration, Problem(Squared())
    guard.check_point(problem, np.ones(5))
    assert guard.has_passed(problem, np.full(5, 1e9))
    assert not guard.has_passed(Problem(), np.full(5, 1e9))


def test_one_row_that_is_most_of_the_hessian_is_refused_whatever_the_loss(tmp_path):
    x = np.random.default_rng(0).normal(size=(300, 5))
    x[7] *= 100
    shards = Shards.from_arrays(x, np.arange(300.0), [300])
    with pytest.raises(Refusal, match=r"^R4") as refusal:
        guard_over(shards, tmp_path).concentration.check_point(Problem(Squared()), np.zeros(5))
    assert "largest_share" in refusal.value.detail  # for the log
    assert "0." not in str(refusal.value)


def test_trial_steps_that_go_too_far_come_back_as_losses_that_no_search_takes(tmp_path):
    shards = make_shards(rows=300, columns=5, sizes=(300,))
    guard, problem = guard_over(shards, tmp_path), Problem()
    watched = Answering(guard, Asked(bytes(16), 1, [])).watch(problem)
    w, direction, steps = np.zeros(5), np.full(5, 200.0), np.array([0.0, 1.0, 1e-3])
    plain, seen = problem.losses_along(w, direction, steps, shards), watched.losses_along(w, direction, steps, shards)
    assert seen[0, [0, 2]].tolist() == plain[0, [0, 2]].tolist()
    assert seen[0, 1] == 100 * (1 + plain[0, 0])
    with pytest.raises(Refusal, match=r"^R4"):
        watched.losses_along(direction, direction, steps, shards)


def test_points_are_told_apart_by_all_that_is_asked_about_them():
    w, direction = np.zeros(3), np.ones(3)
    assert points_of(Iterate(w)) == points_of(Iterate(-w + 0.0))
    assert points_of(Iterate(w)) != points_of(Iterate(w + 1e-300))
    assert points_of(Iterate(w)) != points_of(Ray(w, direction, np.float64(-1.0)))


def test_what_the_limits_mean_is_said_in_sentences(tmp_path):
    x = np.random.default_rng(0).normal(size=(45, 13))
    x[:, 4] = np.arange(45) == 3
    columns = [f"c{number}" for number in range(13)]
    shards = Shards.from_arrays(x, np.where(np.arange(45) < 3, 1.0, -1.0), [45], columns=columns)
    assert meaning(Permissions(rounds=7), shards, Budget(tmp_path, fingerprint(shards))) == [
        "45 rows, 14 coefficients with the intercept",
        "a gradient of 14 coefficients is permitted",
        "a full Hessian of 14 coefficients is permitted",
        "sketches of up to 11 rows, sjlt up to 3, with secret random numbers",
        "an outcome has fewer rows than your limit of 5: this site will refuse",
        "column 'c4' has a level in fewer than 5 rows: those rows are taken to have the usual value",
        "asked about at 0 of 1000 permitted points; sent 0 of 585 permitted numbers, 0 of 2925 in sketches and 0 of 20 "
        "tables of scores",
        "changed by you: rounds = 7",
    ]
    assert meaning(Permissions(smallest_rows=46), shards)[1] == "fewer rows than your limit of 46: this site will refuse"
    assert meaning(Permissions(rows_per_coefficient=4.0), shards)[2].endswith("needs 56 rows: this site will refuse it")


def test_the_table_of_limits_is_read_as_the_defaults_and_says_why_of_each():
    lines = permit_table().splitlines()
    read = tomllib.loads("\n".join(lines))["permit"]
    assert Permissions(**{name: tuple(value) if isinstance(value, list) else value for name, value in read.items()}) == (
        Permissions()
    )
    names = [one.name for one in fields(Permissions)]
    told = [line.removeprefix("# ") for line in lines if " = " in line and not line.startswith("# R")]
    assert [line.split(" = ")[0] for line in told] == names
    assert [line.split("# ", 1)[1] for line in told] == [one.metadata["reason"] for one in fields(Permissions)]
    # A limit that is off unless it names something is a comment: an empty list would permit nothing.
    assert [name for name in names if name not in read] == ["digests", "handlers", "categories"]
    assert sum(" = [...] " in line for line in lines) == 3


def test_only_runs_that_the_owner_has_agreed_to_are_opened(tmp_path):
    agreed = run_of("fednewton", 2, rounds=3)
    permissions = Permissions(digests=(agreed.digest,))
    shards = make_shards(sizes=(150, 150))
    assert Federation(shards, tmp_path / "agreed", agreed, permissions=permissions).start().round[-1] == 3
    for other in (replace(agreed, rounds=4), replace(agreed, seed=6), replace(agreed, method="fednl")):
        with pytest.raises(fedns.FednsError, match="R1: its owner has agreed to certain runs only"):
            Federation(shards, tmp_path / other.digest, other, permissions=permissions).start()


def test_the_owner_reads_which_columns_are_blanked(tmp_path, caplog):
    x = np.random.default_rng(0).normal(size=(60, 3))
    x[:, 1] = np.arange(60) == 3
    caplog.set_level(logging.WARNING, logger="fedns.site")
    guard = guard_over(Shards.from_arrays(x, np.arange(60.0), [60], columns=["a", "b", "c"]), tmp_path)
    assert "rare levels in columns b: blank" in caplog.text
    assert guard.shards.rows.values[:, 1].tolist() == [0.0] * 60
    assert x[3, 1] == 1.0  # the owner's own rows are as they were


@pytest.mark.parametrize("method", ["auto", "fednewton"])
def test_distinct_coefficients_are_counted_also_where_requests_are_steps(method, tmp_path):
    """`auto` sends steps: the same step twice is two points, and only the site knows them."""
    permissions = Permissions(points=4, requests_per_minute=10_000)
    run = run_of(method, 2, rounds=30, intercept=False)
    federation = Federation(make_shards(sizes=(150, 150)), tmp_path, run, permissions=permissions)
    with pytest.raises(Exception, match="R5: its owner permits answers about 4 distinct coefficients"):
        federation.start()
    assert 3 <= federation.state.session.round <= 5


def test_steps_in_fine_units_are_no_counts(tmp_path):
    federation = Federation(make_shards(sizes=(150, 150)), tmp_path, run_of("auto:prefer=rounds", 2, rounds=6))
    assert federation.start().round[-1] == 6
