"""As few rows as coefficients, a single outcome, a single level: then sums over rows are rows."""

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Attacker, Refused, recovered

from fedns.core.shards import Shards
from fedns.methods.fednl import LearnRequest
from fedns.numerics.linalg import symmetric_of


def make(rows, columns, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, columns))
    return x, np.where(x @ random.normal(size=columns) + random.normal(size=rows) > 0, 1.0, -1.0)


def hessians_of_fednewton(attacker, points):
    return [attacker.curvature(w, round) for round, w in enumerate(points, start=1)]


def hessians_of_fednl(attacker, points):
    """The Hessian at the start, and corrections that the identity compressor sends whole."""
    width = attacker.num_features
    known = symmetric_of(attacker.ask("start", LearnRequest(points[0], np.uint8(8)), 0).hessian_triangle, width)
    found = []
    for round, w in enumerate(points, start=1):
        answer = attacker.ask("learn", LearnRequest(w, np.uint8(8)), round)
        known = known + symmetric_of(answer.values, width)
        found.append((answer.gradient, known))
    return found


def rows_and_labels(rows, found):
    """x_i are the eigenvectors of H_1 H_0^+; their scale follows from H_0, their sign from the intercept, y from g_0."""
    (gradient, first), (_, second) = found
    values, vectors = np.linalg.eig(second @ np.linalg.pinv(first, rcond=1e-10))
    directions = vectors[:, np.argsort(-np.abs(values))[:rows]].real
    inverse = np.linalg.pinv(directions)
    lengths = np.sqrt(4 * rows * np.maximum(0.0, np.diag(inverse @ first @ inverse.T)))
    x = (directions * lengths).T
    x = x * np.sign(x[:, -1:])
    return x, -2 * rows * np.linalg.lstsq(x.T, gradient, rcond=None)[0]


def solve(folder, permissions, method, hessians):
    x, y = make(8, 9)
    attacker = Attacker(Shards.from_arrays(x, y, [8]), folder, permissions, method)
    points = [np.zeros(10), np.random.default_rng(5).normal(size=10)]
    rows, labels = rows_and_labels(8, hessians(attacker, points))
    order = [int(np.argmin(((rows[:, :-1] - row) ** 2).sum(axis=1))) for row in x]
    return recovered(rows[:, :-1], x, 1e-6), float(np.mean(np.sign(labels[order]) == y))


HESSIANS = pytest.mark.parametrize(
    ("method", "hessians"), [("fednewton", hessians_of_fednewton), ("fednl:compressor=identity", hessians_of_fednl)]
)


@HESSIANS
def test_without_a_guard_two_hessians_of_fewer_rows_than_coefficients_are_the_rows_and_labels(method, hessians, tmp_path):
    assert solve(tmp_path, GUARD_OFF, method, hessians) == (1.0, 1.0)


@HESSIANS
def test_by_default_so_few_rows_take_no_part(method, hessians, tmp_path, passes):
    with pytest.raises(Refused, match=r"^R2: taking part needs at least 20 rows, and it has fewer$"):
        solve(tmp_path, DEFAULTS, method, hessians)
    assert passes == []


def membership(folder, permissions):
    """Residuals of members and of strangers from the span of a few gradients, which fewer rows than coefficients fill."""
    x, y = make(30, 40)
    strangers = make(30, 40, seed=9)[0]
    attacker = Attacker(Shards.from_arrays(x, y, [30]), folder, permissions, "gd", rounds=60)
    random = np.random.default_rng(3)
    gradients = [attacker.evaluate(random.normal(size=41), round).gradient for round in range(1, 46)]
    basis = np.linalg.svd(np.array(gradients).T)[0][:, :30]

    def residuals(people):
        whole = np.column_stack([people, np.ones(len(people))])
        return np.linalg.norm(whole - whole @ basis @ basis.T, axis=1) / np.linalg.norm(whole, axis=1)

    return residuals(x).max(), residuals(strangers).min()


def test_without_a_guard_gradients_tell_who_is_in_the_data(tmp_path):
    members, strangers = membership(tmp_path, GUARD_OFF)
    assert members < 1e-6
    assert strangers > 0.2


def test_by_default_gradients_of_fewer_rows_than_coefficients_are_refused(tmp_path, passes):
    with pytest.raises(Refused, match=r"^R2: a gradient of 41 coefficients needs at least 51 rows, and it has fewer$"):
        membership(tmp_path, DEFAULTS)
    assert passes == []


def only_other_outcome(folder, permissions):
    """At w = 0: sum y x from the gradient, sum x from the Hessian; with one y = 1 they differ by that one record."""
    x, _ = make(45, 6)
    y = np.where(np.arange(45) == 17, 1.0, -1.0)
    attacker = Attacker(Shards.from_arrays(x, y, [45]), folder, permissions, "fednewton")
    gradient, hessian = attacker.curvature(np.zeros(7))
    record = 0.5 * (-2 * 45 * gradient + 4 * 45 * hessian[-1])
    return float(np.abs(record[:-1] - x[17]).max())


def test_without_a_guard_the_only_patient_with_an_outcome_is_read_from_one_answer(tmp_path):
    assert only_other_outcome(tmp_path, GUARD_OFF) < 1e-12


def test_by_default_a_site_where_an_outcome_is_almost_nobodys_refuses(tmp_path, passes):
    with pytest.raises(Refused, match=r"^R2: a group of its rows is too small"):
        only_other_outcome(tmp_path, DEFAULTS)
    assert passes == []


OTHERS = [0, 1, 3, 4, 5]  # columns of the record that the attacker does not know


def spread_from(found, row):
    return float(np.sqrt(np.mean((found - row) ** 2)))


def only_other_level(folder, permissions):
    """The row of the Hessian that belongs to a column which one person has is that person."""
    x, y = make(200, 6)
    x[:, 2] = np.arange(200) == 17
    attacker = Attacker(Shards.from_arrays(x, y, [200]), folder, permissions, "fednewton")
    _, hessian = attacker.curvature(np.zeros(7))
    with np.errstate(invalid="ignore", divide="ignore"):
        record = np.nan_to_num(hessian[2] / hessian[2, 2])
    return spread_from(record[OTHERS], x[17, OTHERS])


def test_without_a_guard_the_only_person_with_a_level_is_read_from_one_answer(tmp_path):
    assert only_other_level(tmp_path, GUARD_OFF) < 1e-12


def test_by_default_a_level_that_is_almost_nobodys_is_not_shown(tmp_path):
    x, _ = make(200, 6)
    guess = spread_from(x[:, OTHERS].mean(axis=0), x[17, OTHERS])
    assert only_other_level(tmp_path, DEFAULTS) > 0.9 * guess


def only_code(folder, permissions):
    """One person has a code far from the others', as codes for "other" are: the column's products are that record's."""
    x, y = make(200, 6)
    x[:, 2] = np.arange(200) % 3
    x[17, 2] = 999.0
    attacker = Attacker(Shards.from_arrays(x, y, [200]), folder, permissions, "fednewton")
    _, hessian = attacker.curvature(np.zeros(7))
    return spread_from((hessian[2] / hessian[2, 2] * 999.0)[OTHERS], x[17, OTHERS])


def test_a_code_that_one_person_has_is_not_shown_where_the_owner_declares_the_category(tmp_path):
    x, _ = make(200, 6)
    guess = spread_from(x[:, OTHERS].mean(axis=0), x[17, OTHERS])
    assert only_code(tmp_path / "off", GUARD_OFF) < 0.2 * guess
    with pytest.raises(Refused, match=r"^R4"):
        only_code(tmp_path / "undeclared", DEFAULTS)
    assert only_code(tmp_path / "on", replace(DEFAULTS, categories=("2",))) > 0.9 * guess
