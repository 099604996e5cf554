"""A kernel is called once with each of its parts, whatever the number of threads."""

import numpy as np
import pytest

from fedns.numerics import parallel
from fedns.numerics.cpu.parts import in_parts, launch
from fedns.numerics.jit import jit


@jit
def _fill(values, low, high, factor, out):
    for i in range(low, high):
        out[i] += factor * values[i]


@jit
def _fill_in_parts(starter, cuts, values, factor, out):
    in_parts(starter, _fill, cuts, (values,), (factor, out))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("cuts", [[0, 10], [0, 1, 1, 7, 10], [2, 5, 9]])
def test_every_part_is_worked_on_once(threads, cuts):
    values, out = np.arange(10.0), np.ones(10)
    with parallel.threads(threads):
        launch(_fill_in_parts, np.array(cuts), values, 3.0, out)
    inside = (np.arange(10) >= cuts[0]) & (np.arange(10) < cuts[-1])
    assert np.array_equal(out, np.where(inside, 1.0 + 3.0 * values, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 3, 5000])
def test_threads_that_want_the_same_part_do_not_both_take_it(parts):
    out, launches = np.zeros(parts), max(20, 20_000 // parts)
    with parallel.threads(5):
        for _ in range(launches):
            launch(_fill_in_parts, np.arange(parts + 1), np.ones(parts), 1.0, out)
    assert np.array_equal(out, np.full(parts, launches))
