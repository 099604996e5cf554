"""Local steps over a few rows at a time: what a client's model moved by is then about those few."""

import numpy as np
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Attacker, Refused, recovered

from fedns.core.shards import Shards
from fedns.methods.fedavg import Candidates

ROWS, COLUMNS, RATE = 400, 8, 1e-3
RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(ROWS, COLUMNS))
Y = np.where(X @ RANDOM.normal(size=COLUMNS) + RANDOM.normal(size=ROWS) > 0, 1.0, -1.0)
RECORDS = np.column_stack([X, Y])
SHARDS = Shards.from_arrays(X, Y, [ROWS])
ZERO = np.zeros(COLUMNS + 1)


def moved(attacker, w, round=1, rate=RATE):
    """By how much a site's local steps move the coefficients, in units of minus the rate."""
    found = attacker.ask("local_models", Candidates(w[None], np.array([rate])), round).coefficients[0]
    return (found - w) / -rate


def record(gradient):
    """The row, with its label, that a gradient at 0 of the logistic loss is about."""
    return np.append(gradient[:-1] / gradient[-1], -np.sign(gradient[-1]))


def one_at_a_time(folder, permissions, method):
    """A step over one row in each of 347 requests; which row it is a site draws anew in every round."""
    attacker = Attacker(SHARDS, folder, permissions, method, rounds=200)
    found = []
    for request in range(347):
        if request == 200:
            attacker.begin(seed=6)
        found.append(record(moved(attacker, ZERO, 1 + request % 200)))
    return recovered(np.array(found), RECORDS)


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_without_a_guard_every_answer_is_a_person(method, tmp_path):
    assert one_at_a_time(tmp_path, GUARD_OFF, f"{method}:batch_size=1;local_steps=1;learning_rate=1") > 0.55


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_by_default_such_a_run_is_not_opened(method, tmp_path, passes):
    with pytest.raises(Refused, match=r"^R2: a mini-batch for 9 coefficients needs at least 20 rows"):
        one_at_a_time(tmp_path, DEFAULTS, f"{method}:batch_size=1;local_steps=1;learning_rate=1")
    assert passes == []


def last_of_an_epoch(folder, permissions):
    """Batches of 133 rows leave one for the end of an epoch, which has as large a say in the sum as each of the others."""
    attacker = Attacker(SHARDS, folder, permissions, "fedavg:batch_size=133;local_epochs=1;learning_rate=1")
    found = []
    for round in range(1, 21):
        mean = attacker.evaluate(ZERO, round).gradient
        found.append(record(moved(attacker, ZERO, round, 1e-7) - ROWS / 133 * mean))
    # Of rows that the four steps share out, each answer has one that is not among the 399 of the others.
    return np.mean([bool((np.abs(RECORDS - row).max(axis=1) < 0.05).any()) for row in found])


def test_without_a_guard_the_last_batch_of_an_epoch_is_one_person(tmp_path):
    assert last_of_an_epoch(tmp_path, GUARD_OFF) > 0.9


def test_by_default_the_last_batch_of_an_epoch_is_looked_at_too(tmp_path, passes):
    with pytest.raises(Refused, match=r"^R2: a mini-batch for 9 coefficients needs at least 20 rows, the last one of"):
        last_of_an_epoch(tmp_path, DEFAULTS)
    assert passes == []


class SecondStep:
    """A first step that only makes the coefficients 10,001 times as long, by a penalty to suit; then one from there."""

    def __init__(self, folder, permissions, batch_size=ROWS):
        self.longer, self.attacker = 1e4, None
        self.attacker = Attacker(
            SHARDS, folder, permissions, f"fedavg:batch_size={batch_size};local_steps=2;learning_rate=1",
            strength=self.longer / RATE, intercept=False,
        )  # fmt: skip

    def gradient_far_away(self, w):
        """The gradient at about 10,001 w: the slope of each row there is 0, 1 or -1."""
        first = (1 + self.longer) * w + RATE * self.attacker.evaluate(w).gradient
        found = self.attacker.ask("local_models", Candidates(w[None], np.array([-RATE]))).coefficients[0]
        return (found - (1 + self.longer) * first) / RATE


def gradients_of_a_second_step(folder, permissions, batch_size=ROWS):
    attacker = SecondStep(folder, permissions, batch_size)
    w = 0.3 * np.ones(COLUMNS) / COLUMNS
    return attacker.gradient_far_away(w)


def test_without_a_guard_a_second_step_begins_wherever_it_likes(tmp_path):
    found = gradients_of_a_second_step(tmp_path, GUARD_OFF)
    slopes = (X.sum(axis=1) > 0).astype(float) - (Y > 0)
    np.testing.assert_allclose(found, slopes @ X / ROWS, atol=1e-3)


@pytest.mark.parametrize("batch_size", [ROWS, 40])
def test_by_default_every_step_is_looked_at(batch_size, tmp_path):
    with pytest.raises(Refused, match=r"^R4: at these coefficients the answer would be about a few of its rows$"):
        gradients_of_a_second_step(tmp_path, DEFAULTS, batch_size)


@pytest.mark.parametrize(("batch_size", "steps", "permitted"), [(20, 20, True), (19, 1, False), (100, 4, True),
                                                                (133, 3, True), (133, 4, False), (190, 3, True),
                                                                (191, 3, False)])  # fmt: skip
def test_both_sides_of_the_limit(batch_size, steps, permitted, tmp_path):
    """Twenty rows or more in every batch that is reached: 400 = 3 x 133 + 1 = 2 x 190 + 20 = 2 x 191 + 18."""
    method = f"fedavg:batch_size={batch_size};local_steps={steps};learning_rate=1"
    if permitted:
        assert np.isfinite(moved(Attacker(SHARDS, tmp_path, DEFAULTS, method), ZERO)).all()
    else:
        with pytest.raises(Refused, match=r"^R2: a mini-batch"):
            Attacker(SHARDS, tmp_path, DEFAULTS, method)


def test_the_limit_grows_with_the_coefficients(tmp_path):
    wide = Shards.from_arrays(RANDOM.normal(size=(ROWS, 39)), Y, [ROWS])
    for size, permitted in ((50, True), (49, False)):  # 40 coefficients and 10
        method = f"fedavg:batch_size={size};local_steps=1;learning_rate=1"
        try:
            Attacker(wide, tmp_path / str(size), DEFAULTS, method)
        except Refused:
            assert not permitted
        else:
            assert permitted
