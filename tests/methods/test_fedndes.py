"""FedNDES against Algorithm 2 written out in numpy, with the sketch as a matrix."""

from itertools import pairwise

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.methods.local_oracles import VARIANTS, assert_checkpoint_continues
from tests.methods.plain import Plain

import fedns
from fedns.methods import FedNDES
from fedns.numerics.rng import stream_keys

SEED = 5
PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))


def written_out(problem, shards, rounds, sizes, switch, search):
    """Coefficients, and each round's sketch size, squared decrement and step."""
    plain = Plain(problem, shards)
    w, size, log = np.zeros(plain.M), sizes[0], []
    for number in range(1, rounds + 1):
        keys = stream_keys(SEED, "sketch", number, np.arange(len(plain.parts)))
        rooted = [fedns.SRHT(size).matrix(len(a), key) @ a for a, key in zip(plain.roots(w), keys, strict=True)]
        d, slope = plain.newton(w, plain.mean([y.T @ y for y in rooted]))
        step = 1.0 if search is None else plain.step_of(search, w, d, slope)
        log.append((size, -slope, step))
        w, size = w + step * d, sizes[0] if np.sqrt(-slope) > switch else sizes[1]
    return w, log


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("search", "second"), [(fedns.ArmijoSearch(), 0), (fedns.LocalSearch(), 24), (None, 40)])
def test_six_rounds(variant, search, second):
    sparse, intercept, weighted = variant
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=intercept)
    shards = make_shards(sparse=sparse, weighted=weighted)
    w, log = written_out(problem, shards, 6, (12, second or 24), 0.2, search)
    method = FedNDES(fedns.SRHT(12), second_size=second, switch_decrement=0.2, line_search=search)
    history = fedns.simulate(method, problem, shards, rounds=6, seed=SEED)
    np.testing.assert_allclose(history.coefficients, w, rtol=0, atol=1e-8)
    diagnostics = [record.diagnostics for record in history.records[1:]]
    assert [d["sketch_size"] for d in diagnostics] == [size for size, _, _ in log]
    assert [d["step_size"] for d in diagnostics] == [step for _, _, step in log]
    np.testing.assert_allclose([d["newton_decrement"] ** 2 for d in diagnostics], [s for _, s, _ in log], rtol=1e-6)


def test_the_sketch_grows_once_the_decrement_is_small():
    history = fedns.simulate(FedNDES(fedns.SRHT(16)), PROBLEM, make_shards(), rounds=12, seed=SEED)
    seen = [(r.diagnostics["newton_decrement"], r.diagnostics["sketch_size"]) for r in history.records[1:]]
    for (decrement, _), (_, size) in pairwise(seen):
        assert size == (16 if decrement > 0.05 else 32)
    assert {size for _, size in seen} == {16, 32}


def test_it_ends_by_itself_at_the_tolerance():
    method = FedNDES(fedns.SRHT(16), decrement_tolerance=1e-6)
    history = fedns.simulate(method, PROBLEM, make_shards(), rounds=40, seed=SEED)
    *_, before, last = history.records
    assert history.converged and last.round < 40 and "1e-06" in history.stop_reason
    assert last.diagnostics["newton_decrement"] ** 2 <= 1e-6 < before.diagnostics["newton_decrement"] ** 2
    assert last.diagnostics["step_size"] == 0 and last.objective == before.objective
    # Half the squared decrement is the gap of the quadratic model, whose Hessian is within a small factor of the true one.
    assert last.objective - fedns.pooled_optimum(PROBLEM, make_shards()).value < 5e-6


def test_it_descends_from_a_start_where_full_steps_would_not():
    """Rows at very different distances: most sketches of four rows miss the far ones, and steps become far too long."""
    random = np.random.default_rng(1)
    x = random.normal(size=(300, 6)) * np.array([30, 1, 1, 1, 1, 1])
    shards = fedns.Shards.from_arrays(x, np.where(random.random(300) < 0.5, 1.0, -1.0), [100, 100, 100])
    history = fedns.simulate(FedNDES(fedns.RowSampling(4)), PROBLEM, shards, rounds=30, seed=SEED)
    steps = [record.diagnostics["step_size"] for record in history.records[1:]]
    assert min(steps) < 1 and (np.diff(history.objective) <= 1e-12).all()


def test_a_state_can_be_checkpointed():
    assert_checkpoint_continues(FedNDES(fedns.SRHT(4)), PROBLEM, make_shards(), rounds=6)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"second_size": -1}, "second_size"),
        ({"switch_decrement": -0.1}, "switch_decrement"),
        ({"line_search": "x"}, "line_search"),
    ],
)
def test_impossible_settings_are_refused(settings, part):
    with pytest.raises(fedns.ConfigError, match=part):
        FedNDES(**settings)
