"""FedNL-BC against its algorithm written out in numpy."""

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.methods.local_oracles import assert_checkpoint_continues
from tests.methods.plain import Plain

import fedns

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=True)
ROUNDS = 8


def rank_one(D):
    values, vectors = np.linalg.eigh(D)
    best = np.argmax(np.abs(values))
    return values[best] * np.outer(vectors[:, best], vectors[:, best])


def bidirectional(plain, gradients, kept):
    """Algorithm 5 of the paper with option 1 and rank-1 corrections; `gradients` says in which rounds they are sent."""
    z = anchor = np.zeros(plain.M)
    learned = plain.hessians(z)
    for sends in gradients:
        H = plain.mean(learned)
        if sends:
            anchor, sent = z, plain.mean(plain.gradients(z))
        g = sent + H @ (z - anchor) + plain.penalty * z
        values, vectors = np.linalg.eigh(H)
        B = (vectors * np.maximum(values, 0)) @ vectors.T + np.diag(plain.penalty)
        x = z - np.linalg.solve(B, g)
        learned = learned + np.array([rank_one(D) for D in plain.hessians(z) - learned])
        step = x - z
        step[np.argsort(-np.abs(step))[int(np.ceil(kept * plain.M)) :]] = 0.0
        z = z + step
    return x


@pytest.mark.parametrize("kept", [0.5, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_its_algorithm(kept, weighted):
    shards = make_shards(weighted=weighted)
    history = fedns.simulate(fedns.FedNLBC(kept=kept), PROBLEM, shards, rounds=ROUNDS, seed=3)
    gradients = [bool(record.diagnostics["gradients"]) for record in history.records[1:]]
    assert gradients[0] and not all(gradients)
    expected = bidirectional(Plain(PROBLEM, shards), gradients, kept)
    np.testing.assert_allclose(history.coefficients, expected, rtol=1e-8, atol=1e-9)


def test_uncompressed_it_is_fednl():
    shards = make_shards()
    ours = fedns.simulate(fedns.FedNLBC(kept=1.0, gradient_probability=1.0), PROBLEM, shards, rounds=ROUNDS)
    theirs = fedns.simulate(fedns.FedNL(), PROBLEM, shards, rounds=ROUNDS)
    np.testing.assert_allclose(ours.coefficients, theirs.coefficients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("wire", ["float64", "float32"])
def test_it_reaches_the_optimum(wire):
    history = fedns.simulate(fedns.FedNLBC(), PROBLEM, make_shards(), rounds=150, tol=1e-9, wire=wire)
    assert history.converged, history.stop_reason


def test_half_of_a_step_is_sent():
    history = fedns.simulate(fedns.FedNLBC(), PROBLEM, make_shards(), rounds=3)
    whole = fedns.simulate(fedns.FedNLBC(kept=1.0), PROBLEM, make_shards(), rounds=3)
    assert history.downlink_bytes[-1] < whole.downlink_bytes[-1]


def test_part_of_the_clients_are_told_the_whole_model():
    history = fedns.simulate(fedns.FedNLBC(), PROBLEM, make_shards(sizes=(50,) * 6), rounds=30, participation=0.5)
    assert history.objective[-1] < history.objective[0] - 0.01


def test_a_checkpoint_continues():
    assert_checkpoint_continues(fedns.FedNLBC(), PROBLEM, make_shards())


def test_settings_are_checked():
    with pytest.raises(fedns.ConfigError, match="kept of FedNLBC must be"):
        fedns.FedNLBC(kept=0.0)
    with pytest.raises(fedns.ConfigError, match="compressor of FedNL-BC must be"):
        fedns.FedNLBC(compressor="topk")
