"""Coefficients chosen so that one record of ten thousand has all the say."""

import numpy as np
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Attacker, Refused, error

from fedns.core.shards import Shards

ROWS, COLUMNS, TARGETS = 10_000, 5, 25
RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(ROWS, COLUMNS))
SHARDS = Shards.from_arrays(X, np.where(X @ RANDOM.normal(size=COLUMNS) + RANDOM.normal(size=ROWS) > 0, 1.0, -1.0), [ROWS])
AIMED_AT = np.linspace(-1.5, 1.5, TARGETS)


def boundary(sharpness, at):
    """Coefficients whose margin is sharpness * (x_0 - at): only records near that plane have any curvature."""
    return np.array([sharpness, *np.zeros(COLUMNS - 1), -sharpness * at])


def by_hessian(attacker, at):
    """Zoom in: the mean of x_0 under the curvature's weights, and a little beside it, is the next place to look."""
    for sharpness in 10.0 ** np.arange(2, 7.5, 0.5):
        _, hessian = attacker.curvature(boundary(sharpness, at))
        at = hessian[0, -1] / hessian[-1, -1] + 1.0 / sharpness
    return hessian[:-1, -1] / hessian[-1, -1]


def by_gradients(attacker, at):
    """Two gradients at boundaries a little apart differ by the records between them; halve until there is one."""

    def below(place):
        return ROWS * attacker.evaluate(boundary(1e13, place)).gradient

    low, high = at, at + 0.05
    first, last = below(low), below(high)
    while abs(last[-1] - first[-1]) > 1.5:
        middle = 0.5 * (low + high)
        between = below(middle)
        if abs(between[-1] - first[-1]) > 0.5:
            high, last = middle, between
        else:
            low, first = middle, between
    return (last - first)[:-1] / (last - first)[-1]


def isolate(folder, permissions, method, recover):
    attacker = Attacker(SHARDS, folder, permissions, method)
    found = []
    for at in AIMED_AT:
        attacker.begin()
        found.append(recover(attacker, at))
    nearest = [X[np.argmin(((X - row) ** 2).sum(axis=1))] for row in found]
    return float(np.abs(np.array(found) - nearest).max())


CASES = pytest.mark.parametrize(("method", "recover"), [("fednewton", by_hessian), ("gd", by_gradients)])


@CASES
def test_without_a_guard_every_record_that_is_aimed_at_is_found(method, recover, tmp_path):
    assert isolate(tmp_path, GUARD_OFF, method, recover) < 1e-9


@CASES
def test_by_default_the_site_refuses(method, recover, tmp_path):
    with pytest.raises(Refused, match=r"^R4: at these coefficients the answer would be about a few of its rows$"):
        isolate(tmp_path, DEFAULTS, method, recover)


def test_as_sharp_as_the_defaults_allow_it_is_no_better_than_guessing(tmp_path):
    """Half as sharp until the site answers: then the answer is about some ten records, and their mean is nobody's."""
    attacker = Attacker(SHARDS, tmp_path, DEFAULTS, "fednewton")
    found, meant = [], []
    for at in AIMED_AT[::5]:
        attacker.begin()
        for sharpness in 2.0 ** np.arange(14, 0, -1):
            try:
                _, hessian = attacker.curvature(boundary(sharpness, at))
                break
            except Refused:
                continue
        found.append(hessian[:-1, -1] / hessian[-1, -1])
        meant.append(X[np.argmin(np.abs(X[:, 0] - at))])
    # The first column was chosen by the attacker; the others are what it wanted to know.
    assert error(np.array(found)[:, 1:], np.array(meant)[:, 1:]) > 0.8
