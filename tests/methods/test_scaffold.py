"""SCAFFOLD against its algorithm written out in numpy."""

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.methods.local_oracles import VARIANTS, after, assert_checkpoint_continues, problem_and_clients

import fedns

RATE = 0.05


def scaffold(clients, shares, rounds, steps, rate=RATE):
    """Algorithm 1 of the paper with option II, full batches, everybody taking part."""
    x = np.zeros(clients[0].x.shape[1])
    c, own = np.zeros_like(x), [np.zeros_like(x) for _ in clients]
    for _ in range(rounds):
        ends, controls = [], []
        for client, control in zip(clients, own, strict=True):
            y = x.copy()
            for _ in range(steps):
                y -= rate * (client.gradient(y) - control + c)
            ends.append(y)
            controls.append(control - c + (x - y) / (steps * rate))
        x = x + sum(share * (y - x) for share, y in zip(shares, ends, strict=True))
        c = c + sum(share * (new - old) for share, new, old in zip(shares, controls, own, strict=True))
        own = controls
    return x


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_its_algorithm(variant):
    problem, shards, clients, shares = problem_and_clients(variant)
    found = after(fedns.Scaffold(local_steps=3, learning_rate=RATE), problem, shards, 6)
    np.testing.assert_allclose(found, scaffold(clients, shares, 6, 3), rtol=1e-9, atol=1e-11)


def test_it_reaches_the_optimum_where_fedavg_stalls():
    problem = fedns.Problem(penalty=fedns.Ridge(0.1))
    shards = make_shards(sizes=(100, 100, 100))
    optimum = fedns.pooled_optimum(problem, shards)
    ours, averaged = (
        fedns.simulate(method, problem, shards, rounds=400, tol=1e-10, optimum=optimum)
        for method in (fedns.Scaffold(), fedns.FedAvg())
    )
    assert ours.converged and not averaged.converged


def test_float32_messages_still_lead_to_the_optimum():
    """Both ends make the controls from what has travelled, so that they do not drift apart."""
    problem, shards = fedns.Problem(penalty=fedns.Ridge(0.1)), make_shards(sizes=(100, 100, 100))
    history = fedns.simulate(fedns.Scaffold(), problem, shards, rounds=400, tol=1e-10, wire="float32")
    assert history.converged, history.stop_reason


def test_a_checkpoint_continues():
    problem, shards = fedns.Problem(penalty=fedns.Ridge(0.1)), make_shards()
    assert_checkpoint_continues(fedns.Scaffold(), problem, shards)


def test_settings_are_checked():
    with pytest.raises(fedns.ConfigError, match="local_steps of Scaffold must be"):
        fedns.Scaffold(local_steps=0)
    with pytest.raises(fedns.ConfigError, match="learning_rate of Scaffold must be"):
        fedns.Scaffold(learning_rate=-1.0)
