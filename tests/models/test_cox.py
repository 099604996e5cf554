"""Stratified Cox regression against statsmodels' PHReg and a loop over events."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import statsmodels.api as sm

import fedns
from fedns.methods import METHODS
from fedns.models.reference import pooled_optimum
from fedns.numerics.linalg import symmetric_of

PROBLEM = fedns.Problem(fedns.Cox(), fedns.Ridge(0.0))
REFUSED = {  # they need a root of the Hessian, or gradients of a few rows
    "fedns": fedns.FedNS(),
    "fedndes": fedns.FedNDES(),
    "fedavg": fedns.FedAvg(batch_size=8, learning_rate=0.1),
}


def drawn(seed=0, sizes=(60, 90, 75), columns=4, ties=True, weighted=False, centre=0.0):
    """Times with censoring, at most ten distinct ones at each client where there are ties."""
    random = np.random.default_rng(seed)
    rows = sum(sizes)
    x = random.normal(centre, 1.0, size=(rows, columns))
    times = random.exponential(np.exp(-(x - centre) @ random.normal(0, 0.5, columns))) + 0.01
    times = np.ceil(times * 3) if ties else times
    y = np.where(random.uniform(size=rows) < 0.7, times, -times)
    weights = random.uniform(0.5, 2.0, rows) if weighted else None
    return fedns.Shards.from_arrays(x, y, sizes, sample_weights=weights)


def by_loops(shards, client, w):
    """(loss, gradient, Hessian) of a client, event by event."""
    a, b = shards.starts[client], shards.stops[client]
    x, y = shards.rows.values[a:b], shards.targets[a:b]
    s = np.ones(b - a) if shards.sample_weights is None else shards.sample_weights[a:b]
    r = s * np.exp(x @ w)
    loss, gradient, hessian = 0.0, np.zeros(w.size), np.zeros((w.size, w.size))
    for time in np.unique(y[y > 0]):
        events = np.flatnonzero(y == time)
        loss -= s[events] @ (x[events] @ w)
        gradient -= s[events] @ x[events]
        for number in range(len(events)):
            share = r * (np.abs(y) >= time)
            share[events] *= 1 - number / len(events)
            total, weight = share.sum(), s[events].mean()
            mean = share @ x / total
            loss += weight * np.log(total)
            gradient += weight * mean
            hessian += weight * ((x.T * share) @ x / total - np.outer(mean, mean))
    return loss / s.sum(), gradient / s.sum(), hessian / s.sum()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_pass_is_that_of_a_loop_over_events(weighted, sparse):
    shards = drawn(weighted=weighted)
    w = np.array([0.3, -0.2, 0.5, 0.1])
    wanted = [by_loops(shards, client, w) for client in range(shards.num_clients)]
    if sparse:
        kept = shards.rows.values * (np.abs(shards.rows.values) > 1.2)
        shards = replace(shards, rows=fedns.Shards.from_arrays(scipy.sparse.csr_matrix(kept), shards.targets, [225]).rows)
        dense = fedns.Shards.from_arrays(kept, shards.targets, [60, 90, 75], sample_weights=shards.sample_weights)
        wanted = [by_loops(dense, client, w) for client in range(3)]
    values, gradients = PROBLEM.value_and_gradient(w, shards)
    hessians = symmetric_of(PROBLEM.gradient_and_hessian(w, shards)[1], 4)
    vectors = np.random.default_rng(1).normal(size=(1, 2, 4))
    times = PROBLEM.hessian_times(w, vectors, shards)
    for client, (loss, gradient, hessian) in enumerate(wanted):
        assert values[client] == pytest.approx(loss, rel=1e-12)
        np.testing.assert_allclose(gradients[client], gradient, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(hessians[client], hessian, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(times[client], vectors[0] @ hessian, rtol=1e-9, atol=1e-12)
    along = PROBLEM.losses_along(w, w, np.array([0.0, 1.0]), shards)
    np.testing.assert_allclose(along[:, 0], values, rtol=1e-13)
    np.testing.assert_allclose(along[:, 1], PROBLEM.value(2 * w, shards), rtol=1e-13)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("centre", [0.0, 2020.0])
def test_the_fit_is_that_of_statsmodels_with_sites_as_strata(ties, centre):
    shards = drawn(ties=ties, centre=centre)
    history = fedns.simulate(
        fedns.FedNewton(line_search=fedns.ArmijoSearch()), PROBLEM, shards, rounds=30, gradient_tol=1e-13
    )
    strata = np.repeat(np.arange(3), shards.sizes)
    rival = sm.PHReg(
        np.abs(shards.targets),
        shards.rows.values - centre,
        status=(shards.targets > 0).astype(int),
        strata=strata,
        ties="efron",
    ).fit(method="newton", disp=0, tol=1e-14, maxiter=100)
    assert (np.abs(history.coefficients - rival.params) <= 1e-8 * (1 + np.abs(rival.params))).all()
    weights = shards.total_weights
    assert -weights @ PROBLEM.value(history.coefficients, shards) == pytest.approx(rival.llf, rel=1e-10)
    hessian = np.einsum("c,cij->ij", weights, PROBLEM.hessian(history.coefficients, shards))
    np.testing.assert_allclose(np.sqrt(np.diag(np.linalg.inv(hessian))), rival.bse, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS if not METHODS[name].pooled and name not in ("fedns", "fedndes")])
def test_methods_that_need_no_root_fit_it(name):
    problem = fedns.Problem(fedns.Cox(), fedns.Ridge(0.01))
    history = fedns.simulate(METHODS[name](), problem, drawn(columns=6), rounds=3)
    assert history.objective[-1] < history.objective[0]


@pytest.mark.parametrize("name", REFUSED)
def test_the_others_say_what_to_take_instead(name):
    with pytest.raises(fedns.ConfigError, match="fednewton") as refusal:
        fedns.simulate(REFUSED[name], PROBLEM, drawn(), rounds=3)
    assert "\n" not in str(refusal.value)


def test_a_row_that_all_risk_sets_hold_is_seen_as_concentration():
    """What rule R4 of a site's guard goes by: coefficients that put one row above all others are found out."""
    shards = drawn(sizes=(225,))
    norms = np.einsum("ij,ij->i", shards.rows.values, shards.rows.values)
    alike = PROBLEM.passes.curvatures_along(PROBLEM.loss, shards, np.zeros(4), np.zeros(4), np.zeros(1), norms)[0, 0]
    last = np.abs(shards.targets).argmax()  # it is at risk as long as any row
    aimed = 400 * shards.rows.values[last] / norms[last]
    few = PROBLEM.passes.curvatures_along(PROBLEM.loss, shards, aimed, np.zeros(4), np.zeros(1), norms)[0, 0]
    assert alike[0] ** 2 / alike[1] > 50
    assert few[0] ** 2 / few[1] < 10


def test_what_it_cannot_use_is_refused_with_a_sentence():
    with pytest.raises(fedns.ConfigError, match="intercept"):
        fedns.Problem(fedns.Cox(), intercept=True)
    shards = drawn()
    with pytest.raises(fedns.DataError, match="above 0"):
        fedns.Cox().check_targets(replace(shards, targets=np.where(np.arange(225) == 3, 0.0, shards.targets)))
    with pytest.raises(fedns.DataError, match="no event"):
        fedns.Cox().check_targets(replace(shards, targets=-np.abs(shards.targets)))


def test_the_optimum_of_one_client_is_that_of_all_rows_in_one_stratum():
    shards = drawn(sizes=(225,))
    rival = sm.PHReg(np.abs(shards.targets), shards.rows.values, status=shards.targets > 0, ties="efron").fit(disp=0)
    np.testing.assert_allclose(pooled_optimum(PROBLEM, shards).coefficients, rival.params, atol=1e-6)


def scores_by_loops(x, y, s, w):
    """What each row adds to the gradient, event by event, with Efron's rule; rows counted once."""
    found, e = np.zeros_like(x), np.exp(x @ w)
    for time in np.unique(y[y > 0]):
        events = np.flatnonzero(y == time)
        for number in range(len(events)):
            share = np.where(np.abs(y) >= time, 1.0, 0.0)
            share[events] *= 1 - number / len(events)
            total = (s * e * share).sum()
            mean = (s * e * share) @ x / total
            found[events] -= (x[events] - mean) / len(events)
            found += (s[events].mean() * e * share / total)[:, None] * (x - mean)
    return found


@pytest.mark.parametrize("ties", [False, True])
def test_scores_of_rows_are_those_of_a_loop_and_how_the_gradient_changes_with_a_rows_weight(ties):
    shards = drawn(sizes=(70,), columns=3, ties=ties, weighted=True)
    x, y, s, w = shards.rows.values, shards.targets, shards.sample_weights, np.array([0.4, -0.2, 0.1])
    found = fedns.Cox().row_scores(x, x @ w, y, s)
    np.testing.assert_allclose(found, scores_by_loops(x, y, s, w), atol=1e-12)
    np.testing.assert_allclose(s @ found / s.sum(), PROBLEM.gradient(w, shards)[0], atol=1e-12)
    if ties:  # with ties the weights of events are averaged, which a single weight changes, too
        return
    for row in (0, 17, 42):
        changes = []
        for step in (1e-5, -1e-5):
            moved = s + step * (np.arange(s.size) == row)
            other = fedns.Shards.from_arrays(x, y, [70], sample_weights=moved)
            changes.append(PROBLEM.gradient(w, other)[0] * moved.sum())
        np.testing.assert_allclose(found[row], (changes[0] - changes[1]) / 2e-5, atol=1e-7)
